"""A whole chat reply of vLLM, each byte of it read once: the log-probabilities as numbers, all else as the bytes that came in.

The prompt's ids, the logprobs and the sampled ids are nearly all of a reply. They are looked for where vLLM writes them and cut
out; what is left is small, and decoded. Each cut leaves a mark that stands nowhere else in what is left. When the mark is the
value of a member, the cut was that member, and whole, if what was cut out reads as one value: the numbers and the sampled ids
are decoded here, and the prompt's ids by who parses them. Where anything is not as vLLM writes it, nothing is guessed.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from polarproxy.engine.choice import NULL, is_null, read_numbers
from polarproxy.engine.ids import decode_ids
from polarproxy.errors import BadReply

if TYPE_CHECKING:
    from polarproxy.engine.ids import JsonText
    from polarproxy.model import TokenIds

_BEFORE = b',"logprobs":'
_OPENING = b',"logprobs":{"content":['
_CLOSING = b"}]}"
_AFTER = b'}]},"finish_reason":'
_SAMPLED = b'"token_ids":['
_PROMPT = b'"prompt_token_ids":['
_NULL = b"null"
_STEM = b"%d" % secrets.randbelow(1 << 62)
"""Of all marks: a number that nobody can know before."""
_LOGPROBS_CUT, _SAMPLED_CUT, _PROMPT_CUT = _STEM + b"1", _STEM + b"2", _STEM + b"3"


class WholeChoice(msgspec.Struct):
    """The members of a choice that are read."""

    index: int = 0
    logprobs: msgspec.Raw = NULL
    finish_reason: msgspec.Raw = NULL
    stop_reason: msgspec.Raw = NULL
    token_ids: msgspec.Raw = NULL


class WholeReply(msgspec.Struct):
    """The members of a reply that are read."""

    choices: list[WholeChoice]
    id: msgspec.Raw = NULL
    model: msgspec.Raw = NULL
    prompt_token_ids: msgspec.Raw = NULL
    usage: msgspec.Raw = NULL


_reply = msgspec.json.Decoder(WholeReply)


@dataclass(slots=True)
class Read:
    """A reply with one choice."""

    reply: WholeReply
    view: bytes
    """The reply with null in place of what the client is not to see."""
    logprobs: memoryview
    """The JSON object that was cut out."""
    numbers: list[float | None]
    """The log-probabilities in it, None where the engine could not write one."""
    sampled: TokenIds | None
    """The sampled ids. None: the engine gave none."""
    prompt: JsonText
    """The JSON array of the prompt's ids, or null. When it was cut out, not known to be one."""


def read_whole(data: bytes, *, cut_prompt: bool, cut_sampled: bool) -> Read | None:
    """None: the reply is not quite as vLLM writes it, or is none. `cut_…`: the client is not to see these ids."""
    size = len(data)
    prompt = _array(data, _PROMPT, 0, size) if cut_prompt else None
    after = data.rfind(_AFTER, 0, prompt[0] if prompt else size)
    before = data.find(_OPENING, 0, max(after, 0))
    if before < 0:
        return None
    begin, end = before + len(_BEFORE), after + len(_CLOSING)
    sampled = _array(data, _SAMPLED, end, prompt[0] if prompt else size) if cut_sampled else None
    whole = memoryview(data)
    # Views: each piece is copied once, into what is left.
    kept: list[bytes | memoryview] = [whole[:begin]]
    marks, at = [_LOGPROBS_CUT], end
    for place, mark in ((sampled, _SAMPLED_CUT), (prompt, _PROMPT_CUT)):
        if place is not None:
            kept.append(whole[at : place[0]])
            marks.append(mark)
            at = place[1]
    kept.append(whole[at:])
    left = _joined(kept, marks)
    try:
        reply = _reply.decode(left)
        numbers = read_numbers(whole[begin:end])
        ids = None if sampled is None else decode_ids(whole[slice(*sampled)])
    except (BadReply, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if left.count(_STEM) != len(marks) or len(reply.choices) != 1:
        return None
    (choice,) = reply.choices
    if bytes(choice.logprobs) != _LOGPROBS_CUT:
        return None
    if not _fits(choice.token_ids, sampled, _SAMPLED_CUT, cut=cut_sampled):
        return None
    if not _fits(reply.prompt_token_ids, prompt, _PROMPT_CUT, cut=cut_prompt):
        return None
    if sampled is None and not is_null(choice.token_ids):
        try:
            ids = decode_ids(choice.token_ids)
        except BadReply:
            return None
    return Read(
        reply,
        _joined(kept, [_NULL] * len(marks)),
        whole[begin:end],
        numbers,
        ids,
        reply.prompt_token_ids if prompt is None else whole[slice(*prompt)],
    )


def _array(data: bytes, name: bytes, start: int, stop: int) -> tuple[int, int] | None:
    """Where the array that follows the last such name seems to begin and end. None: there seems to be none."""
    place = data.rfind(name, start, stop)
    begin = place + len(name) - 1
    end = data.find(b"]", begin, stop) + 1 if place >= 0 else 0
    return (begin, end) if end else None


def _joined(kept: list[bytes | memoryview], between: list[bytes]) -> bytes:
    pieces = [kept[0]]
    for mark, piece in zip(between, kept[1:], strict=True):
        pieces += (mark, piece)
    return b"".join(pieces)


def _fits(member: msgspec.Raw, place: tuple[int, int] | None, mark: bytes, *, cut: bool) -> bool:
    """Whether what was cut out is all of this member, or there was nothing to cut out."""
    if place is None:
        return not cut or is_null(member)
    return bytes(member) == mark

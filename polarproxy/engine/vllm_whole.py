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

from polarproxy.engine.choice import NULL, Count, is_null, read_numbers
from polarproxy.engine.ids import decode_ids
from polarproxy.errors import UNREADABLE, BadReply

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

    index: Count = 0
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
    prompt = _array(data, _PROMPT, _PROMPT_CUT, 0, len(data)) if cut_prompt else None
    stop = len(data) if prompt is None else prompt.begin
    logprobs = _logprobs(data, stop)
    if logprobs is None:
        return None
    sampled = _array(data, _SAMPLED, _SAMPLED_CUT, logprobs.end, stop) if cut_sampled else None
    cuts = [cut for cut in (logprobs, sampled, prompt) if cut is not None]
    kept, whole = _kept(data, cuts), memoryview(data)
    left = _joined(kept, [cut.mark for cut in cuts])
    try:
        reply = _reply.decode(left)
        if left.count(_STEM) != len(cuts) or len(reply.choices) != 1:
            return None
        (choice,) = reply.choices
        if not (
            bytes(choice.logprobs) == logprobs.mark
            and _fits(choice.token_ids, sampled, wanted=cut_sampled)
            and _fits(reply.prompt_token_ids, prompt, wanted=cut_prompt)
        ):
            return None
        ids = choice.token_ids if sampled is None else whole[sampled.begin : sampled.end]
        return Read(
            reply=reply,
            view=_joined(kept, [_NULL] * len(cuts)),
            logprobs=whole[logprobs.begin : logprobs.end],
            numbers=read_numbers(whole[logprobs.begin : logprobs.end]),
            sampled=None if is_null(ids) else decode_ids(ids),
            prompt=reply.prompt_token_ids if prompt is None else whole[prompt.begin : prompt.end],
        )
    except (BadReply, *UNREADABLE):
        return None


@dataclass(frozen=True, slots=True)
class _Cut:
    """A value that is cut out: from where to where, and what stands in its place."""

    begin: int
    end: int
    mark: bytes


def _logprobs(data: bytes, stop: int) -> _Cut | None:
    """What seems to be the object with the logprobs. None: there seems to be none."""
    after = data.rfind(_AFTER, 0, stop)
    before = data.find(_OPENING, 0, max(after, 0))
    return _Cut(before + len(_BEFORE), after + len(_CLOSING), _LOGPROBS_CUT) if before >= 0 else None


def _array(data: bytes, name: bytes, mark: bytes, start: int, stop: int) -> _Cut | None:
    """What seems to be the array that follows the last such name. None: there seems to be none."""
    place = data.rfind(name, start, stop)
    begin = place + len(name) - 1
    end = data.find(b"]", begin, stop) + 1 if place >= 0 else 0
    return _Cut(begin, end, mark) if end else None


def _kept(data: bytes, cuts: list[_Cut]) -> list[memoryview]:
    """What stands before, between and behind the cuts. Views: each piece is copied once, into what is left."""
    whole = memoryview(data)
    begins = [0, *(cut.end for cut in cuts)]
    ends = [*(cut.begin for cut in cuts), len(data)]
    return [whole[begin:end] for begin, end in zip(begins, ends, strict=True)]


def _joined(kept: list[memoryview], between: list[bytes]) -> bytes:
    pieces: list[memoryview | bytes] = [kept[0]]
    for put, piece in zip(between, kept[1:], strict=True):
        pieces += (put, piece)
    return b"".join(pieces)


def _fits(member: msgspec.Raw, cut: _Cut | None, *, wanted: bool) -> bool:
    """Whether what was cut out is all of this member, or there was nothing to cut out."""
    if cut is None:
        return not wanted or is_null(member)
    return bytes(member) == cut.mark

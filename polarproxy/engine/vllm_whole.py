"""A whole chat reply of vLLM, each byte of it read once: the log-probabilities as numbers, all else as the bytes that came in.

The prompt's ids and the logprobs are nearly all of a reply. They are looked for where vLLM writes them and cut out; what is
left is small, and decoded. When a cut left a `null` in the very place of a member, it was that member, and whole, if what was
cut out reads as one value: the numbers are decoded here, and the ids by who parses them. Where anything is not as vLLM
writes it, nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from polarproxy.engine.choice import NULL, is_null, read_numbers
from polarproxy.engine.cuts import Places
from polarproxy.errors import BadReply

_BEFORE = b',"logprobs":'
_OPENING = b',"logprobs":{"content":['
_CLOSING = b"}]}"
_AFTER = b'}]},"finish_reason":'
_PROMPT = b'"prompt_token_ids":['
_NULL = b"null"


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


@dataclass(frozen=True, slots=True)
class Read:
    """A reply with one choice."""

    reply: WholeReply
    places: Places
    """In the reply without what was cut out."""
    logprobs: memoryview
    """The JSON object that was cut out."""
    numbers: list[float | None]
    """The log-probabilities in it, None where the engine could not write one."""
    prompt: memoryview | msgspec.Raw
    """The JSON array of the prompt's ids, or null. When it was cut out, not known to be one."""


def read_whole(data: bytes, *, cut_prompt: bool) -> Read | None:
    """None: the reply is not quite as vLLM writes it, or is none. `cut_prompt`: the client is not to see the prompt's ids."""
    ids = _place_of_prompt(data) if cut_prompt else None
    after = data.rfind(_AFTER, 0, len(data) if ids is None else ids[0])
    before = data.find(_OPENING, 0, max(after, 0))
    if before < 0:
        return None
    begin, end = before + len(_BEFORE), after + len(_CLOSING)
    whole = memoryview(data)
    # Views: each piece is copied once, into what is left.
    pieces: list[bytes | memoryview] = [whole[:begin], _NULL, whole[end:]]
    if ids is not None:
        pieces[2:] = whole[end : ids[0]], _NULL, whole[ids[1] :]
    places = Places(b"".join(pieces))
    try:
        reply = _reply.decode(places.whole)
        numbers = read_numbers(whole[begin:end])
    except (BadReply, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if len(reply.choices) != 1 or not _stands(reply.choices[0].logprobs, places, begin):
        return None
    if ids is None:
        if cut_prompt and not is_null(reply.prompt_token_ids):
            return None
        return Read(reply, places, whole[begin:end], numbers, reply.prompt_token_ids)
    if not _stands(reply.prompt_token_ids, places, ids[0] - (end - begin) + len(_NULL)):
        return None
    return Read(reply, places, whole[begin:end], numbers, whole[slice(*ids)])


def _place_of_prompt(data: bytes) -> tuple[int, int] | None:
    """Where the array seems to begin and end. None: there seems to be none."""
    name = data.rfind(_PROMPT)
    begin = name + len(_PROMPT) - 1
    end = data.find(b"]", begin) + 1 if name >= 0 else 0
    return (begin, end) if end else None


def _stands(null: msgspec.Raw, places: Places, at: int) -> bool:
    """Whether it is the `null` in this place."""
    return null is not NULL and places.of(null) == (at, at + len(_NULL))

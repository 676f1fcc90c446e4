"""A whole chat reply of vLLM, read in one pass: the log-probabilities as numbers, all else as the bytes that came in.

The prompt's ids, often half of a reply, are cut out before: their reader will see whether they are numbers and commas, and
then nothing in them can be structure. That it was them is known by the place of what stands for them.

To be cut out, a value must be known by its place, and msgspec tells the place of what it leaves as bytes only. The logprobs
are half of a reply; reading them twice, once for their place and once for their numbers, would be the dearest part of
recording. Their place follows from their neighbours, whose places are known: the message before them, the last member of
their last entry, and the member after them. Where these do not stand as vLLM writes them, nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from polarproxy.engine.choice import NULL
from polarproxy.engine.cuts import Places

_BEFORE = b',"logprobs":'
_OPENING = b',"logprobs":{"content":['
_CLOSING = b"}]}"
_AFTER = b'}]},"finish_reason":'
_PROMPT = b'"prompt_token_ids":['
_NULL = b"null"


class _Entry(msgspec.Struct, gc=False):
    logprob: float | None = None
    top_logprobs: msgspec.Raw = NULL
    """The last member of an entry."""


class _Logprobs(msgspec.Struct):
    content: list[_Entry] | None = None


class WholeChoice(msgspec.Struct):
    """The members of a choice that are read."""

    index: int = 0
    message: msgspec.Raw = NULL
    logprobs: _Logprobs | None = None
    finish_reason: msgspec.Raw = NULL
    stop_reason: msgspec.Raw = NULL
    token_ids: msgspec.Raw = NULL

    def numbers(self) -> list[float | None]:
        """The log-probabilities, None where the engine could not write one."""
        return [] if self.logprobs is None else [entry.logprob for entry in self.logprobs.content or ()]

    def place_of_logprobs(self, places: Places) -> tuple[int, int] | None:
        """Where they begin and end. None: they are null or absent, or do not stand where they are looked for."""
        entries = self.logprobs and self.logprobs.content
        if not entries or self.message is NULL or entries[-1].top_logprobs is NULL:
            return None
        _, before = places.of(self.message)
        _, last = places.of(entries[-1].top_logprobs)
        if not places.whole.startswith(_OPENING, before) or not places.whole.startswith(_AFTER, last):
            return None
        return before + len(_BEFORE), last + len(_CLOSING)


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
    """A reply, and where the logprobs of each choice stand in it."""

    reply: WholeReply
    places: Places
    """In the reply without the prompt's ids, if they were cut out."""
    logprobs: list[tuple[int, int]]
    prompt: bytes | msgspec.Raw
    """The JSON array of the prompt's ids, or null. When it was cut out, not known to be one."""


def read_whole(data: bytes, *, cut_prompt: bool) -> Read | None:
    """None: the reply is not quite as vLLM writes it, or is none. `cut_prompt`: the client is not to see the prompt's ids."""
    begin = data.rfind(_PROMPT) + len(_PROMPT) - 1 if cut_prompt else 0
    end = data.find(b"]", begin) + 1 if begin >= len(_PROMPT) else 0
    if not end:
        return _read(data)
    read = _read(b"".join((data[:begin], _NULL, data[end:])), data[begin:end])
    told = NULL if read is None else read.reply.prompt_token_ids
    if read is None or told is NULL or read.places.of(told) != (begin, begin + len(_NULL)):
        return _read(data)
    return read


def _read(data: bytes, prompt: bytes | None = None) -> Read | None:
    """`prompt`: what was cut out."""
    try:
        reply = _reply.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    places, found = Places(data), list[tuple[int, int]]()
    for choice in reply.choices:
        place = choice.place_of_logprobs(places)
        if place is None:
            return None
        found.append(place)
    return Read(reply, places, found, reply.prompt_token_ids if prompt is None else prompt)

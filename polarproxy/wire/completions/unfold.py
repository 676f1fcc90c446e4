"""A whole reply as the events of a stream, for engines that cannot stream what is needed.

Folding these events gives the reply back (law 8). Source: OpenAI API reference, "The completion object", which is the same
whether streamed or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE, BadReply
from polarproxy.wire.sse import DONE, encode_event

if TYPE_CHECKING:
    from polarproxy.wire.chat.fields import Fields

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_choices = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_encode = msgspec.json.Encoder().encode

_HEAD = ("id", "object", "created", "model", "system_fingerprint")
_SAID = ("index", "text", "logprobs")


def unfold(body: bytes) -> list[bytes]:
    """The stream events of a reply, the last one `[DONE]`.

    What is said once (usage, llama.cpp's `timings`) stands in the last chunk, as llama.cpp puts it there unasked.
    Raises `BadReply` when it is none of this API.
    """
    try:
        return _unfold(_object.decode(body))
    except (*UNREADABLE, KeyError) as error:
        raise BadReply(f"the engine's reply cannot be cut into events ({error!r}): {body[:200]!r}") from error


def _unfold(reply: Fields) -> list[bytes]:
    head = {name: value for name, value in reply.items() if name in _HEAD}
    once = {name: value for name, value in reply.items() if name not in (*_HEAD, "choices")}
    chunks: list[dict[str, object]] = [
        {**head, "choices": [part]} for choice in _choices.decode(reply["choices"]) for part in _parts(choice)
    ]
    if chunks:
        chunks[-1] |= once
    return [*(encode_event(_encode(chunk)) for chunk in chunks), encode_event(DONE)]


def _parts(choice: Fields) -> list[dict[str, object]]:
    """What was sampled, then why it ended."""
    said = {name: value for name, value in choice.items() if name in _SAID}
    ending = {name: value for name, value in choice.items() if name not in ("text", "logprobs")}
    return [{**said, "finish_reason": None}, {**ending, "text": "", "logprobs": None}]

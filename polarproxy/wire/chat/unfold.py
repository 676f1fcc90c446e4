"""A whole chat reply as the events of a stream, for engines that cannot stream what is needed.

Folding these events gives the reply back (law 8). Source: OpenAI API reference, "The chat completion chunk object".
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
_calls = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_encode = msgspec.json.Encoder().encode

_CHUNK = msgspec.Raw(b'"chat.completion.chunk"')
_HEAD = ("id", "created", "model", "system_fingerprint")
_TEXTS = ("reasoning", "reasoning_content", "content")
"""In the order in which they are sampled."""


def unfold(body: bytes, *, usage: bool) -> list[bytes]:
    """The stream events of a chat reply, the last one `[DONE]`; with a usage chunk when the client asked for `usage`.

    Members of the reply that no chunk has by right (llama.cpp's `timings`) stand in the last chunk, as llama.cpp puts them.
    Raises `BadReply` when it is none of this API.
    """
    try:
        return _unfold(_object.decode(body), usage=usage)
    except (*UNREADABLE, KeyError) as error:
        raise BadReply(f"the engine's reply cannot be cut into events ({error!r}): {body[:200]!r}") from error


def _unfold(reply: Fields, *, usage: bool) -> list[bytes]:
    head = {name: reply[name] for name in _HEAD if name in reply} | {"object": _CHUNK}
    rest = {name: value for name, value in reply.items() if name not in (*_HEAD, "object", "choices", "usage")}
    chunks: list[dict[str, object]] = [
        {**head, "choices": [chunk]} for choice in _choices.decode(reply["choices"]) for chunk in _choice_chunks(choice)
    ]
    if usage and "usage" in reply:
        chunks.append({**head, "choices": [], "usage": reply["usage"]})
    if chunks:
        chunks[-1] |= rest
    return [*(encode_event(_encode(chunk)) for chunk in chunks), encode_event(DONE)]


def _choice_chunks(choice: Fields) -> list[dict[str, object]]:
    index = choice.get("index", msgspec.Raw(b"0"))
    message = _object.decode(choice["message"])

    def chunk(delta: dict[str, object]) -> dict[str, object]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    chunks = [chunk({"role": "assistant", "content": ""})]
    others = (name for name in message if name not in (*_TEXTS, "role", "tool_calls"))
    deltas: list[dict[str, object]] = [
        {name: message[name]} for name in (*_TEXTS, *others) if _says_something(message.get(name))
    ]
    if "tool_calls" in message and bytes(message["tool_calls"]) != b"null":
        calls = _calls.decode(message["tool_calls"])
        deltas.extend({"tool_calls": [{"index": place, **call}]} for place, call in enumerate(calls))
    chunks.extend(chunk(delta) for delta in deltas)
    ending = {name: value for name, value in choice.items() if name not in ("index", "message", "logprobs")}
    chunks.append(chunk({}) | ending)
    # With the first chunk after the role's; it is the last one when nothing was said.
    chunks[1]["logprobs"] = choice.get("logprobs")
    return chunks


def _says_something(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(raw) not in (b"null", b'""')

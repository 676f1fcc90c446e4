"""A whole chat reply as the events of a stream, for engines that cannot stream what is needed.

Folding these events gives the reply back (law 8). Source: OpenAI API reference, "The chat completion chunk object".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.wire.sse import DONE, encode_event

if TYPE_CHECKING:
    from polarproxy.wire.chat import Fields

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_choices = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_calls = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_encode = msgspec.json.Encoder().encode

_NULL = msgspec.Raw(b"null")
_CHUNK = msgspec.Raw(b'"chat.completion.chunk"')
_HEAD = ("id", "created", "model", "system_fingerprint")
_TEXTS = ("reasoning", "reasoning_content", "content")


def unfold(body: bytes, *, usage: bool) -> list[bytes]:
    """The stream events of a chat reply, the last one `[DONE]`; with a usage chunk when the client asked for `usage`."""
    reply = _object.decode(body)
    head = {name: reply[name] for name in _HEAD if name in reply} | {"object": _CHUNK}
    events = [
        encode_event(_encode({**head, "choices": [chunk]}))
        for choice in _choices.decode(reply["choices"])
        for chunk in _choice_chunks(choice)
    ]
    if usage and "usage" in reply:
        events.append(encode_event(_encode({**head, "choices": [], "usage": reply["usage"]})))
    return [*events, encode_event(DONE)]


def _choice_chunks(choice: Fields) -> list[dict[str, object]]:
    index = choice.get("index", msgspec.Raw(b"0"))
    message = _object.decode(choice["message"])

    def chunk(delta: dict[str, object], **members: object) -> dict[str, object]:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **members}

    chunks = [chunk({"role": "assistant", "content": ""})]
    deltas: list[dict[str, object]] = [{name: message[name]} for name in _TEXTS if _says_something(message.get(name))]
    if "tool_calls" in message and bytes(message["tool_calls"]) != b"null":
        calls = _calls.decode(message["tool_calls"])
        deltas.extend({"tool_calls": [{"index": place, **call}]} for place, call in enumerate(calls))
    for place, delta in enumerate(deltas):
        chunks.append(chunk(delta, **({"logprobs": choice["logprobs"]} if place == 0 and "logprobs" in choice else {})))
    chunks.append(chunk({}, finish_reason=choice.get("finish_reason", _NULL)))
    return chunks


def _says_something(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(raw) not in (b"null", b'""')

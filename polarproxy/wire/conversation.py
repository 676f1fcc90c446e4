"""Recognising a conversation by its messages, for clients that name no session.

A request that repeats the messages of an earlier one, then the reply to it, continues that conversation. Messages are
compared by meaning (parsed, keys sorted), since harnesses re-serialise them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from polarproxy.errors import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Sequence


def _plain_text(content: Any) -> Any:
    """A list of text parts and the same text as one string are the same content."""
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return "".join(str(part.get("text", "")) for part in content)
    return content


def _message_key(message: bytes) -> bytes:
    value = msgspec.json.decode(message)
    if isinstance(value, dict):
        value["content"] = _plain_text(value.get("content"))
    return msgspec.json.encode(value, order="sorted")


def prefix_digests(messages: Sequence[bytes]) -> list[bytes]:
    """Digest of the first k messages for k = 1..len(messages); raises `msgspec.DecodeError` for a message that is not JSON."""
    digests, state = [], xxhash.xxh3_128()
    for message in messages:
        key = _message_key(message)
        state.update(len(key).to_bytes(8, "little"))
        state.update(key)
        digests.append(state.copy().digest())
    return digests


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _ToolCall(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None


class _Assistant(msgspec.Struct):
    content: Any = None
    tool_calls: list[_ToolCall] | None = None


def reply_digest(message: bytes) -> bytes | None:
    """What an assistant message says (text and ids of its tool calls), as a digest; None when it cannot be read.

    Reasoning is left out: most harnesses do not send it back.
    """
    try:
        said = msgspec.json.decode(message, type=_Assistant)
    except msgspec.DecodeError:
        return None
    content = _plain_text(said.content)
    calls = [(call.id or "", (call.function and call.function.name) or "") for call in said.tool_calls or ()]
    return xxhash.xxh3_128_digest(msgspec.json.encode([content or "", calls], order="sorted"))


class _Choice(msgspec.Struct):
    message: msgspec.Raw


class _Reply(msgspec.Struct):
    choices: list[_Choice]


def reply_messages(body: bytes) -> list[bytes]:
    """The assistant message of each choice of a whole reply; empty when it cannot be read."""
    try:
        reply = msgspec.json.decode(body, type=_Reply)
    except UNREADABLE:
        return []
    return [bytes(choice.message) for choice in reply.choices]

"""Conversations in the engine's words (chat messages as JSON), and stand-ins for parts of them that are only to be rendered.

A stand-in has the shape of what it stands for (roles, names and number of tool calls, whether there is text) and words of
its own, so that its rendering can be kept and used again for other turns of that shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from polarproxy.errors import UNREADABLE, BadReply, BadRequest
from polarproxy.model import TokenIds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Json: TypeAlias = dict[str, Any]
Settings: TypeAlias = "Mapping[str, msgspec.Raw]"

RENDER_ROUTE = "/v1/chat/completions/render"

RENDERED_FIELDS = (
    "model",
    "tools",
    "tool_choice",
    "chat_template",
    "chat_template_kwargs",
    "documents",
    "reasoning_effort",
    "response_format",
    "add_special_tokens",
)
"""Members of a chat request, besides the messages, on which the rendering depends. Source: vLLM 0.32, `build_chat_params`."""

FIRST, SECOND = "zebra", "quick"
"""The words of stand-ins: they begin and end differently, so that two renderings differ over the whole of them."""

_TEXT_PARTS = frozenset(("text", "input_text", "output_text", "refusal", "thinking"))


class _Function(msgspec.Struct):
    name: str


class _Call(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    role: str
    content: msgspec.Raw = msgspec.Raw(b"null")
    name: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _Kind(msgspec.Struct):
    type: str = "text"


class _Rendered(msgspec.Struct):
    token_ids: list[int]


_message = msgspec.json.Decoder(_Message)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_parts = msgspec.json.Decoder(list[msgspec.Raw])
_kind = msgspec.json.Decoder(_Kind)
_rendered = msgspec.json.Decoder(_Rendered)
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a turn."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Message:
    """A message of chat, as far as its shape goes."""

    raw: msgspec.Raw
    role: str
    name: str | None
    says: bool | None
    """Whether it has text. None: its content is null."""
    calls: tuple[Call, ...]
    tool_call_id: str | None
    media: bool
    """Whether it holds anything that is no text."""


def read_message(raw: msgspec.Raw) -> Message:
    """Raises `BadRequest` for a message that is none."""
    try:
        said = _message.decode(raw)
        says, media = _content(bytes(said.content))
    except UNREADABLE as error:
        raise BadRequest(f"a message cannot be read: {error}") from error
    calls = tuple(
        Call(call.id or "", call.function.name) for call in said.tool_calls or () if call.function is not None
    )
    return Message(raw, said.role, said.name, says, calls, said.tool_call_id, media)


def _content(content: bytes) -> tuple[bool | None, bool]:
    if content == b"null":
        return None, False
    if not content.startswith(b"["):
        return content != b'""', False
    parts = [part for part in _parts.decode(content) if not bytes(part).startswith(b'"')]
    return True, any(_kind.decode(part).type not in _TEXT_PARTS for part in parts)


def render_body(settings: Settings, messages: Sequence[msgspec.Raw | Json], *, prompt: bool = True) -> bytes:
    """A request to the engine's render route. `prompt`: with what begins the assistant's next turn."""
    body: Json = {name: settings[name] for name in RENDERED_FIELDS if name in settings}
    body["messages"] = list(messages)
    return _encode(body if prompt else body | {"add_generation_prompt": False})


def rendered_ids(reply: bytes) -> TokenIds:
    """The ids in the engine's answer; raises `BadReply` when it has none."""
    try:
        return TokenIds.of(_rendered.decode(reply).token_ids)
    except UNREADABLE as error:
        raise BadReply(f"the engine's rendering cannot be read: {error}") from error


def user(word: str = FIRST) -> Json:
    """A message of the user."""
    return {"role": "user", "content": word}


def turn_like(turn: Message, word: str, ids: Callable[[str], str]) -> Json:
    """A stand-in for a turn of the assistant. An empty turn gets a text: it is closed as one with text is."""
    calls = [
        {
            "id": ids(call.id),
            "type": "function",
            "function": {"name": call.name, "arguments": f'{{"{FIRST}": "{word}"}}'},
        }
        for call in turn.calls
    ]
    content = word if turn.says or not calls else ("" if turn.says is False else None)
    named = {} if turn.name is None else {"name": turn.name}
    return {"role": "assistant", "content": content, **named} | ({"tool_calls": calls} if calls else {})


def opening_like(tail: Sequence[Message], ids: Callable[[str], str]) -> list[Json]:
    """Stand-ins for what follows a turn directly: its tool results, or one message. They say another word than it does."""
    results = list(takewhile(lambda message: message.role == "tool", tail))
    return [_like(message, ids) for message in results or tail[:1]]


def _like(message: Message, ids: Callable[[str], str]) -> Json:
    called = {} if message.tool_call_id is None else {"tool_call_id": ids(message.tool_call_id)}
    word = SECOND if FIRST.encode() in bytes(message.raw) else FIRST
    return {"role": message.role, "content": word, **called} | _named(message)


def _named(message: Message) -> Json:
    return {} if message.name is None else {"name": message.name}


def with_ids(message: Message, ids: Callable[[str], str]) -> msgspec.Raw | Json:
    """The same message with another id of the call that it answers."""
    if message.tool_call_id is None:
        return message.raw
    return _members.decode(message.raw) | {"tool_call_id": ids(message.tool_call_id)}


def without_reasoning(message: Message) -> msgspec.Raw | Json:
    """The same message without the assistant's reasoning, which templates drop at different times."""
    if message.role != "assistant":
        return message.raw
    members = _members.decode(message.raw)
    return {name: value for name, value in members.items() if name not in ("reasoning", "reasoning_content")}

"""OpenAI Chat Completions: the messages of a request, read.

Besides the API's own shapes, what vLLM takes is taken: `reasoning` and `reasoning_content` of assistants, parts that are
plain strings, arguments that are objects. The deprecated role `function` and `function_call` are a tool's without an id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.chat.media import Audio, File, Url, from_audio, from_file, from_url
from polarproxy.wire.chat.members import note_unknown
from polarproxy.wire.neutral.reading import read
from polarproxy.wire.neutral.request import Media, Message, Part, Role, Text, Thinking, ToolResult, ToolUse

if TYPE_CHECKING:
    from collections.abc import Iterable

_NOTHING = msgspec.Raw(b"null")
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


class _Function(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b'""')


class _ToolCall(msgspec.Struct):
    id: str | None = None
    type: str | None = None
    function: _Function | None = None


class _Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    thinking: str | None = None
    image_url: Url | str | None = None
    audio_url: Url | str | None = None
    video_url: Url | str | None = None
    input_audio: Audio | None = None
    file: File | None = None


class _Message(msgspec.Struct):
    role: str
    content: msgspec.Raw = _NOTHING
    name: str | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None
    function_call: _Function | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None


_list = msgspec.json.Decoder(list[msgspec.Raw])
_message = msgspec.json.Decoder(_Message)
_part = msgspec.json.Decoder(_Part)
_string = msgspec.json.Decoder(str)

_MESSAGE_NAMES = frozenset(_Message.__struct_fields__)
_PART_NAMES = frozenset(_Part.__struct_fields__)


def decode_messages(raw: msgspec.Raw) -> tuple[tuple[Message, ...], list[Loss]]:
    """The messages in canonical form; raises `BadRequest` naming the message that cannot be read."""
    losses: list[Loss] = []
    messages: list[Message] = []
    every = read(_list, raw, "messages")
    for index, each in enumerate(every):
        where = f"messages[{index}]"
        said = read(_message, each, where)
        note_unknown(each, _MESSAGE_NAMES, where, losses)
        message = _one(said, where, losses)
        if message.role == "tool" and messages and messages[-1].role == "tool":
            message = Message("tool", messages.pop().parts + message.parts)
        messages.append(message)
    return tuple(messages), losses


def _one(said: _Message, where: str, losses: list[Loss]) -> Message:
    role = _ROLES.get(said.role)
    if role is None:
        losses.append(Loss(f"{where}.role", f"the role {said.role!r} is not known; taken for a user's message"))
        role = "user"
    parts = _content(said.content, where, losses)
    if role == "tool":
        content = tuple(part for part in parts if isinstance(part, (Text, Media)))
        return Message("tool", (ToolResult(said.tool_call_id or "", content, name=said.name),))
    if role == "assistant":
        parts = [*_thinking(said), *parts, *_refusal(said), *_calls(said, where, losses)]
    return Message(role, tuple(parts), said.name)


def _thinking(said: _Message) -> Iterable[Thinking]:
    text = said.reasoning if said.reasoning is not None else said.reasoning_content
    return (Thinking(text),) if text else ()


def _refusal(said: _Message) -> Iterable[Text]:
    return (Text(said.refusal),) if said.refusal else ()


def _calls(said: _Message, where: str, losses: list[Loss]) -> Iterable[ToolUse]:
    for place, call in enumerate(said.tool_calls or ()):
        if call.function is None:
            losses.append(Loss(f"{where}.tool_calls[{place}]", f"a call of type {call.type!r}; left out"))
        else:
            yield ToolUse(call.id or "", call.function.name, _arguments(call.function.arguments))
    if said.function_call is not None:
        yield ToolUse("", said.function_call.name, _arguments(said.function_call.arguments))


def _arguments(raw: msgspec.Raw) -> str:
    text = bytes(raw)
    if text == b"null":
        return ""
    return _string.decode(raw) if text.startswith(b'"') else text.decode()


def _content(raw: msgspec.Raw, where: str, losses: list[Loss]) -> list[Part]:
    body = bytes(raw)
    if body == b"null":
        return []
    if body.startswith(b"["):
        parts = read(_list, raw, f"{where}.content")
        known = (_content_part(part, f"{where}.content[{place}]", losses) for place, part in enumerate(parts))
        return [part for part in known if part is not None]
    text = read(_string, raw, f"{where}.content")
    return [Text(text)] if text else []


def _content_part(raw: msgspec.Raw, where: str, losses: list[Loss]) -> Part | None:
    if bytes(raw).startswith(b'"'):
        return Text(read(_string, raw, where))
    said = read(_part, raw, where)
    note_unknown(raw, _PART_NAMES, where, losses)
    part = _text_part(said) or _media_part(said)
    if part is None:
        losses.append(Loss(where, f"a part of type {said.type!r} that cannot be carried; left out"))
    return part


def _text_part(said: _Part) -> Part | None:
    match said.type:
        case "text" | "input_text" | "output_text" if said.text is not None:
            return Text(said.text)
        case "refusal" if said.refusal is not None:
            return Text(said.refusal)
        case "thinking" if said.thinking is not None:
            return Thinking(said.thinking)
    return None


def _media_part(said: _Part) -> Media | None:
    match said.type:
        case "image_url" if said.image_url is not None:
            return from_url("image", said.image_url)
        case "audio_url" if said.audio_url is not None:
            return from_url("audio", said.audio_url)
        case "video_url" if said.video_url is not None:
            return from_url("video", said.video_url)
        case "input_audio" if said.input_audio is not None:
            return from_audio(said.input_audio)
        case "file" if said.file is not None:
            return from_file(said.file)
    return None

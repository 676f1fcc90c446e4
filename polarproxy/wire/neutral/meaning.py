"""What messages and tools mean, as bytes that are equal when the meaning is, however a harness wrote it.

Equal: a string and a list of that one text; no content, null and an empty text; texts of the assistant in one part or in
several, with or without white space around them; arguments of tool calls as JSON values. Numbers are compared as float64,
which is all that a harness in JavaScript can carry back (`1e3`, `1000`, `1000.0`); of duplicate keys the last counts, as
every parser has it; arguments that are no JSON are compared as text. Ids of tool calls are replaced by the place of the
call in the conversation, for ids that a client makes itself are another spelling.

Different: several texts of a user or a tool and the same in one, since engines join them with a line break; any white
space outside the assistant's texts; another name, order or error mark. Reasoning is no part of a message's meaning.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from polarproxy.wire.neutral.request import Media, Text, Thinking, ToolResult, ToolUse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.wire.neutral.request import Message, Part, Request

_Plain: TypeAlias = str | int | bool | list["_Plain"] | None

_encode = msgspec.json.Encoder().encode

_TEMPLATE_MEMBERS = ("add_special_tokens", "chat_template", "chat_template_kwargs", "documents", "response_format")
"""Members of an engine's request that have no place in a neutral one, on which the head of a prompt depends."""


def _number(text: str) -> float:
    # Adding zero makes 0 of -0, which JSON writers do not tell apart.
    return float(text) + 0.0


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def canonical_json(text: str) -> str:
    """A JSON text in one spelling for each value; text that is no JSON as it is, marked."""
    try:
        value: Any = json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_refuse)
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return f"no JSON: {text}"


def arguments_value(text: str) -> str:
    """Arguments of a tool call in one spelling; blank ones are an empty object."""
    stripped = text.strip()
    return canonical_json(stripped) if stripped else "{}"


def said_text(parts: Iterable[Part]) -> str:
    """What an assistant says in words."""
    return "".join(part.text for part in parts if isinstance(part, Text)).strip()


def reasoning_text(parts: Iterable[Part]) -> str:
    """How an assistant reasons; empty when it does not, or when it was not sent back."""
    return "".join(part.text for part in parts if isinstance(part, Thinking)).strip()


def tool_uses(parts: Iterable[Part]) -> list[ToolUse]:
    """The tool calls of an assistant."""
    return [part for part in parts if isinstance(part, ToolUse)]


@dataclass(slots=True)
class Meanings:
    """Reads a conversation from its first message on; keeps which tool call had which id."""

    _calls: int = 0
    _places: dict[str, int] = field(default_factory=dict)
    """Of the tool calls so far, by id: their places in the conversation. An id used again means the later call."""
    _unanswered: list[int] = field(default_factory=list)

    def message(self, message: Message) -> bytes:
        """What the next message means."""
        if message.role == "assistant":
            value: _Plain = ["assistant", message.name, *self._assistant(message.parts)]
        else:
            value = [message.role, message.name, self._content(message.parts)]
        return encoded(value)

    def _assistant(self, parts: tuple[Part, ...]) -> list[_Plain]:
        uses = tool_uses(parts)
        for use in uses:
            if use.id:
                self._places[use.id] = self._calls
            self._unanswered.append(self._calls)
            self._calls += 1
        others = [self._part(part) for part in parts if isinstance(part, (Media, ToolResult))]
        return [said_text(parts), [[use.name, arguments_value(use.arguments)] for use in uses], others]

    def _content(self, parts: tuple[Part, ...]) -> list[_Plain]:
        if len(parts) == 1 and isinstance(parts[0], Text) and not parts[0].text:
            return []
        return [self._part(part) for part in parts]

    def _part(self, part: Part) -> _Plain:
        match part:
            case Text():
                return part.text
            case Media():
                return ["media", part.mime, part.url]
            case ToolResult():
                return ["result", self._answers(part.id), part.name, part.is_error, self._content(part.content)]
            case Thinking():
                return ["thinking", part.text]
            case ToolUse():
                return ["call", part.name, arguments_value(part.arguments)]

    def _answers(self, id: str) -> _Plain:
        """The place of the call that a result answers: that of its id, or the first unanswered one if it has none."""
        place = self._places.get(id)
        if place is None:
            if id or not self._unanswered:
                return ["unknown", id]
            return self._unanswered.pop(0)
        if place in self._unanswered:
            self._unanswered.remove(place)
        return place


def head_meaning(request: Request) -> bytes:
    """What stands before the messages, or may, in some templates: tools, their choice, the output's form, and settings.

    The model first: what one adapter said is no other's turn.
    """
    tools: list[_Plain] = [
        [
            tool.name,
            tool.description,
            _json(tool.parameters),
            tool.strict,
        ]
        for tool in request.tools
    ]
    choice, output = request.tool_choice, request.output
    chosen: list[_Plain] = [] if not tools or choice is None or choice.mode == "auto" else [choice.mode, choice.name]
    form: list[_Plain] = (
        [] if output is None else [output.name, output.description, output.strict, _json(output.schema)]
    )
    reasoning = request.reasoning
    settings: list[_Plain] = [_json(request.extra.get(name)) for name in _TEMPLATE_MEMBERS]
    thinking: list[_Plain] = [] if reasoning is None else [reasoning.enabled, reasoning.effort]
    said = thinking if any(each is not None for each in thinking) else []
    return encoded([request.model, tools, chosen, form, settings, said])


def _json(raw: bytes | None) -> str | None:
    """A member of a request in one spelling; None where it is absent or null."""
    return None if raw is None or raw == b"null" else canonical_json(raw.decode(errors="surrogateescape"))


def encoded(value: _Plain) -> bytes:
    """As bytes, of which none is a prefix of another's."""
    try:
        text = _encode(value)
    except UnicodeEncodeError:
        # Half a character, as JSON can escape it.
        text = json.dumps(value).encode()
    return len(text).to_bytes(8, "little") + text

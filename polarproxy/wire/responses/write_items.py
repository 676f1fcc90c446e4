"""Messages as items of an input: the other direction of `read_items`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.neutral.request import Media, Message, Text, Thinking, ToolResult, ToolUse
from polarproxy.wire.neutral.seal import seal
from polarproxy.wire.responses.calls import action_of
from polarproxy.wire.responses.content import InputAudio, InputFile, InputImage, InputText, OutputText, write_part
from polarproxy.wire.responses.freeform import FreeformInput
from polarproxy.wire.responses.output_items import ReasoningText

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polarproxy.wire.responses.tools import ToolNames

_Content: TypeAlias = InputText | InputImage | InputFile | InputAudio


class _Message(msgspec.Struct, tag_field="type", tag="message"):
    role: str
    content: list[_Content | OutputText]


class _Reasoning(msgspec.Struct, tag_field="type", tag="reasoning"):
    summary: list[str]
    content: list[ReasoningText]
    encrypted_content: str


class _FunctionCall(msgspec.Struct, tag_field="type", tag="function_call", omit_defaults=True):
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class _CustomCall(msgspec.Struct, tag_field="type", tag="custom_tool_call", omit_defaults=True):
    call_id: str
    name: str
    input: str
    namespace: str | None = None


class _ShellCall(msgspec.Struct, tag_field="type", tag="local_shell_call"):
    id: str
    call_id: str
    action: msgspec.Raw
    status: str = "completed"


class _FunctionOutput(msgspec.Struct, tag_field="type", tag="function_call_output", omit_defaults=True):
    call_id: str
    output: str | list[_Content]


class _CustomOutput(msgspec.Struct, tag_field="type", tag="custom_tool_call_output"):
    call_id: str
    output: str | list[_Content]


_Item: TypeAlias = _Message | _Reasoning | _FunctionCall | _CustomCall | _ShellCall | _FunctionOutput | _CustomOutput


@dataclass(slots=True)
class ItemWriter:
    """Writes messages one after the other."""

    names: ToolNames
    losses: list[Loss]
    _kinds: dict[str, str] = field(default_factory=dict)
    """The kind of the tool of each call so far: its result is an item of that kind too."""

    def write(self, message: Message, where: str) -> Iterator[_Item]:
        """The items of a message; what cannot be said is reported."""
        if message.name is not None:
            self.losses.append(Loss(f"{where}.name", "a message has no name here; left out"))
        if message.role == "assistant":
            yield from self._assistant(message, where)
        elif message.role == "tool":
            results = (part for part in message.parts if isinstance(part, ToolResult))
            yield from (self._result(result, where) for result in results)
        else:
            yield _Message(message.role, [*self._content(message.parts, where)])

    def _assistant(self, message: Message, where: str) -> Iterator[_Item]:
        said: list[_Content | OutputText] = []
        for part in message.parts:
            if isinstance(part, Text):
                said.append(OutputText(text=part.text))
                continue
            if said:
                yield _Message("assistant", said)
                said = []
            match part:
                case Thinking():
                    content = [ReasoningText(part.text)] if part.text else []
                    yield _Reasoning([], content, part.seal if part.seal is not None else seal(part.text))
                case ToolUse():
                    yield self._call(part, where)
                case _:
                    self.losses.append(Loss(where, "media in a message of the assistant; left out"))
        if said or not message.parts:
            yield _Message("assistant", said)

    def _call(self, use: ToolUse, where: str) -> _Item:
        tool = self.names.tool(use.name)
        self._kinds[use.id] = tool.kind
        own = tool.own_name or tool.name
        match tool.kind:
            case "custom":
                freeform = FreeformInput()
                said = freeform.feed(use.arguments)
                rest, wrong = freeform.close()
                self._report(wrong, where)
                return _CustomCall(use.id, own, said + rest, tool.namespace)
            case "local_shell":
                action, wrong = action_of(use.arguments)
                self._report(wrong, where)
                return _ShellCall(use.id, use.id, action)
        return _FunctionCall(use.id, own, use.arguments, tool.namespace)

    def _result(self, result: ToolResult, where: str) -> _Item:
        if result.is_error:
            self._report("a result of a tool has no mark of an error here; its text is kept", where)
        output: str | list[_Content]
        match result.content:
            case ():
                output = ""
            case (Text(text),):
                output = text
            case _:
                output = [*self._content(result.content, where)]
        if self._kinds.get(result.id) == "custom":
            return _CustomOutput(result.id, output)
        return _FunctionOutput(result.id, output)

    def _content(self, parts: Sequence[object], where: str) -> Iterator[_Content]:
        return (write_part(part, where, self.losses) for part in parts if isinstance(part, (Text, Media)))

    def _report(self, why: str | None, where: str) -> None:
        if why is not None:
            self.losses.append(Loss(where, why))

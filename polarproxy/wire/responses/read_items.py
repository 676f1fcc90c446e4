"""Items of an input as messages.

What the assistant said in a row (reasoning, message, calls) is one message, since that is how a chat template renders a
turn; so are the results of calls in a row. Ids of items are accepted and never rendered.
Source: OpenAI API reference, Responses, `input`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from polarproxy.errors import BadRequest
from polarproxy.model import Loss
from polarproxy.wire.neutral.reading import read
from polarproxy.wire.neutral.request import Media, Message, Part, Role, Text, Thinking, ToolResult, ToolUse
from polarproxy.wire.neutral.seal import unseal
from polarproxy.wire.responses import freeform
from polarproxy.wire.responses.calls import arguments_of_action
from polarproxy.wire.responses.content import Part as ContentPart
from polarproxy.wire.responses.content import read_content
from polarproxy.wire.responses.reading import given, members

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.wire.responses.tools import ToolNames


class ItemKind(msgspec.Struct):
    """What tells an item from the others."""

    type: str | None = None
    role: str | None = None
    id: str | None = None

    def name(self) -> str:
        """The type; an item that has none is a message, or else a reference."""
        return self.type or ("message" if self.role is not None else "item_reference")


item_kind = msgspec.json.Decoder(ItemKind)


class _Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ContentPart] | None = None


class _Reasoning(msgspec.Struct):
    summary: list[ContentPart] | None = None
    content: list[ContentPart] | None = None
    encrypted_content: str | None = None


class _FunctionCall(msgspec.Struct):
    call_id: str
    name: str
    arguments: str = ""
    namespace: str | None = None


class _CustomCall(msgspec.Struct):
    call_id: str
    name: str
    input: str
    namespace: str | None = None


class _ShellCall(msgspec.Struct):
    action: msgspec.Raw
    call_id: str | None = None
    id: str | None = None


class _Output(msgspec.Struct):
    output: str | list[ContentPart]
    call_id: str | None = None
    id: str | None = None
    name: str | None = None


_message = msgspec.json.Decoder(_Message)
_reasoning = msgspec.json.Decoder(_Reasoning)
_function_call = msgspec.json.Decoder(_FunctionCall)
_custom_call = msgspec.json.Decoder(_CustomCall)
_shell_call = msgspec.json.Decoder(_ShellCall)
_output = msgspec.json.Decoder(_Output)


_ASIDE = frozenset(
    (
        *("type", "id", "status", "async", "async_", "caller", "created_by"),
        "internal_chat_message_metadata_passthrough",
    )
)
"""Members that say nothing to the model."""
_KNOWN: dict[str, frozenset[str]] = {
    "message": _ASIDE | {"role", "content"},
    "reasoning": _ASIDE | {"summary", "content", "encrypted_content"},
    "function_call": _ASIDE | {"call_id", "name", "arguments", "namespace"},
    "custom_tool_call": _ASIDE | {"call_id", "name", "input", "namespace"},
    "local_shell_call": _ASIDE | {"call_id", "action"},
    "function_call_output": _ASIDE | {"call_id", "output", "name", "namespace"},
    "custom_tool_call_output": _ASIDE | {"call_id", "output", "name", "namespace"},
    "local_shell_call_output": _ASIDE | {"call_id", "output"},
    "additional_tools": _ASIDE | {"role", "tools"},
}


@dataclass(slots=True)
class ItemReader:
    """Reads items one after the other."""

    names: ToolNames
    losses: list[Loss]
    messages: list[Message] = field(default_factory=list)
    """Those of the assistant and of tools are not joined yet."""
    _shell_calls: dict[str, str] = field(default_factory=dict)
    """Calls of the local shell by the id of their item, which some outputs name instead of the call's."""

    _reported: set[tuple[str, str]] = field(default_factory=set)

    def read(self, raw: msgspec.Raw, kind: ItemKind, where: str) -> None:
        """Adds what an item says; raises `BadRequest`."""
        self._report_members(raw, kind.name(), where)
        match kind.name():
            case "message" if kind.role != "assistant":
                self._add_message(raw, where)
            case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
                self._say("tool", self._result(raw, where))
            case "additional_tools":
                pass  # Its tools are declared before any item is read.
            case "item_reference":
                raise BadRequest(f"{where}: Item with id '{kind.id}' not found.")
            case name if (parts := self.said(raw, kind, where)) is not None:
                # Reasoning of which nothing is left is no turn of its own; an empty message is one.
                if parts or name == "message":
                    self._say("assistant", *parts)
            case other:
                self.losses.append(Loss(where, f"an item of type {other!r}; left out"))

    def _report_members(self, raw: msgspec.Raw, name: str, where: str) -> None:
        """Reports each unknown member of each type once: a harness that sends one sends it with every item."""
        if (known := _KNOWN.get(name)) is None:
            return
        for member, value in read(members, raw, where).items():
            if member not in known and given(value) is not None and (name, member) not in self._reported:
                self._reported.add((name, member))
                self.losses.append(Loss(f"{where}.{member}", "not understood; passed over, here and further on"))

    def said(self, raw: msgspec.Raw, kind: ItemKind, where: str) -> list[Text | Thinking | ToolUse] | None:
        """What the assistant says by an item; None when the item is none of the assistant's. Raises `BadRequest`."""
        match kind.name():
            case "message":
                content = read_content(read(_message, raw, where).content, f"{where}.content", self.losses)
                self._report_media(content, where)
                return [part for part in content if isinstance(part, Text)]
            case "reasoning":
                return list(self._thinking(raw, where))
            case "function_call":
                call = read(_function_call, raw, where)
                return [ToolUse(call.call_id, self.names.name(call.name, call.namespace), call.arguments)]
            case "custom_tool_call":
                custom = read(_custom_call, raw, where)
                name = self.names.name(custom.name, custom.namespace)
                return [ToolUse(custom.call_id, name, freeform.arguments_of(custom.input))]
            case "local_shell_call":
                return [self._shell_use(raw, where)]
        return None

    def _add_message(self, raw: msgspec.Raw, where: str) -> None:
        message = read(_message, raw, where)
        self.messages.append(Message(message.role, read_content(message.content, f"{where}.content", self.losses)))

    def _say(self, role: Role, *parts: Part) -> None:
        self.messages.append(Message(role, parts))

    def _report_media(self, content: Sequence[Text | Media], where: str) -> None:
        if any(isinstance(part, Media) for part in content):
            self.losses.append(Loss(f"{where}.content", "media in a message of the assistant; left out"))

    def _thinking(self, raw: msgspec.Raw, where: str) -> Sequence[Thinking]:
        item = read(_reasoning, raw, where)
        token = item.encrypted_content or None
        text = unseal(token) if token is not None else None
        if text is not None:
            token = None
        else:
            content = "".join(part.text or "" for part in item.content or ())
            text = content or "\n\n".join(part.text or "" for part in item.summary or ())
        return (Thinking(text, token),) if text or token else ()

    def _shell_use(self, raw: msgspec.Raw, where: str) -> ToolUse:
        item = read(_shell_call, raw, where)
        call = item.call_id or item.id or ""
        if item.id is not None:
            self._shell_calls[item.id] = call
        try:
            return ToolUse(call, self.names.shell(), arguments_of_action(bytes(item.action)))
        except msgspec.DecodeError as error:
            raise BadRequest(f"{where}.action: {error}") from error

    def _result(self, raw: msgspec.Raw, where: str) -> ToolResult:
        item = read(_output, raw, where)
        call = item.call_id or self._shell_calls.get(item.id or "", item.id) or ""
        return ToolResult(call, read_content(item.output, f"{where}.output", self.losses), name=item.name)

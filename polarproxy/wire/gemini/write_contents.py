"""From messages to `contents` and `systemInstruction`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from polarproxy.model import Loss
from polarproxy.wire.gemini.results import result_object
from polarproxy.wire.gemini.shapes import Blob, Content, FileData, FunctionResponse, Part
from polarproxy.wire.gemini.write_parts import call_part
from polarproxy.wire.neutral.request import Media, Text, Thinking, ToolResult, ToolUse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polarproxy.wire.neutral.request import Message

_HEAD = ("system", "developer")


class ContentsWriter:
    """Writes the messages of one request. `own`: the client's name of a tool, by the engine's."""

    def __init__(self, own: Mapping[str, str]) -> None:
        self.losses: list[Loss] = []
        self._own = own
        self._called: dict[str, str] = {}

    def write(self, messages: Sequence[Message]) -> tuple[Content | None, list[Content]]:
        """`systemInstruction`, if there is one, and `contents`."""
        system: list[Part] = []
        contents: list[Content] = []
        for place, message in enumerate(messages):
            where = f"messages[{place}]"
            if place and _run_together(messages[place - 1], message):
                self.losses.append(
                    Loss(where, "read as one turn with the one before it; a thought may merge with another")
                )
            if message.name is not None:
                self.losses.append(Loss(f"{where}.name", "contents have no name; left out"))
            if message.role not in _HEAD:
                contents.append(self._content(message, where))
            elif contents:
                self.losses.append(Loss(where, "instructions stand only at the head; said by the user"))
                contents.append(Content(self._plain(message, where), "user"))
            else:
                if message.role == "developer" or system:
                    self.losses.append(Loss(where, "there is one system instruction only; made part of it"))
                system.extend(self._plain(message, where))
        return Content(system) if system else None, contents

    def _content(self, message: Message, where: str) -> Content:
        if message.role == "assistant":
            return Content(self._said(message, where), "model")
        return Content(self._plain(message, where), "user")

    def _said(self, message: Message, where: str) -> list[Part]:
        """What the model said. Another provider's signature rides on the part after its thought."""
        parts: list[Part] = []
        signature: str | None = None
        for place, part in enumerate(message.parts):
            if isinstance(part, Thinking):
                if signature is not None:
                    parts.append(Part(text="", thought_signature=signature))
                signature = part.seal
                parts.extend([Part(text=part.text, thought=True)] if part.text else [])
                continue
            written = self._part(part, f"{where}.parts[{place}]")
            if signature is not None:
                written.thought_signature, signature = signature, None
            parts.append(written)
        return [*parts, Part(text="", thought_signature=signature)] if signature is not None else parts

    def _plain(self, message: Message, where: str) -> list[Part]:
        return [self._part(part, f"{where}.parts[{place}]") for place, part in enumerate(message.parts)]

    def _part(self, part: Text | Media | Thinking | ToolUse | ToolResult, where: str) -> Part:
        match part:
            case Text():
                return Part(text=part.text)
            case Thinking():
                return Part(text=part.text, thought=True)
            case Media():
                return self._media(part, where)
            case ToolUse():
                self._called[part.id] = part.name
                written, malformed = call_part(part.id, self._own.get(part.name, part.name), part.arguments)
                if malformed:
                    self.losses.append(Loss(f"{where}.arguments", "they are no JSON object; wrapped in one"))
                return written
            case ToolResult():
                return Part(function_response=self._result(part, where))

    def _media(self, media: Media, where: str) -> Part:
        if media.detail is not None:
            self.losses.append(Loss(f"{where}.detail", "there is no detail of images; left out"))
        name = UNSET if media.name is None else media.name
        head, comma, data = media.url.partition(",")
        if comma and head.startswith("data:") and head.endswith(";base64"):
            return Part(inline_data=Blob(media.mime, data, name))
        return Part(file_data=FileData(media.mime, media.url, name))

    def _result(self, result: ToolResult, where: str) -> FunctionResponse:
        texts = [part.text for part in result.content if isinstance(part, Text)]
        if len(texts) > 1 or (texts and not isinstance(result.content[0], Text)):
            self.losses.append(Loss(f"{where}.content", "texts and media of a result stand apart here; texts joined"))
        engine_name = result.name or self._called.get(result.id, "")
        return FunctionResponse(
            id=result.id or UNSET,
            name=self._own.get(engine_name, engine_name),
            response=msgspec.Raw(result_object("".join(texts), result.is_error) if texts else b"{}"),
            parts=[self._media(part, where) for part in result.content if isinstance(part, Media)] or UNSET,
        )


def _run_together(before: Message, message: Message) -> bool:
    """Whether two turns of the model, which the API reads as one, hold a thought that another provider signed."""
    if before.role != "assistant" or message.role != "assistant":
        return False
    return any(isinstance(part, Thinking) and part.seal is not None for part in (*before.parts, *message.parts))

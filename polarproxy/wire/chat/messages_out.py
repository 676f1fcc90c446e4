"""OpenAI Chat Completions: the messages of a request, written, for an engine or for any reader of chat.

An engine is told what its templates understand: they drop a role that they do not know (`developer`) in silence, and read
one string where a client may send several. vLLM joins a list of texts with line breaks, so lists stay lists except for an
assistant, whose texts follow each other as they were sampled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from polarproxy.model import Loss
from polarproxy.wire.chat.media import KINDS, Json, shown_type, to_part
from polarproxy.wire.neutral.request import Media, Message, Part, Text, Thinking, ToolResult, ToolUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PLACE: dict[type[Part], int] = {Thinking: 0, Text: 1, ToolUse: 2}
"""The order in which an assistant's message of chat says its parts."""


@dataclass(slots=True)
class Writer:
    """Writes the messages of one request."""

    engine: bool
    """Whether an engine is to read them."""
    losses: list[Loss] = field(default_factory=list)
    _made: int = 0
    """How many ids were made for calls that had none."""
    _unanswered: list[str] = field(default_factory=list)
    """The ids made for calls whose result has not been seen."""

    def write(self, messages: Sequence[Message]) -> list[Json]:
        """The messages as JSON values; `losses` has what they do not say."""
        return [written for index, message in enumerate(messages) for written in self._message(message, index)]

    def _message(self, message: Message, index: int) -> Iterable[Json]:
        where = f"messages[{index}]"
        match message.role:
            case "assistant":
                return [self._assistant(message, where)]
            case "tool":
                return self._results(message, where)
            case "developer" if self.engine:
                role = "system"
            case role:
                pass
        content = self._content(message.parts, where)
        return [{"role": role, "content": content, **_named(message.name)}]

    def _assistant(self, message: Message, where: str) -> Json:
        thinking = [part.text for part in message.parts if isinstance(part, Thinking)]
        text = "".join(part.text for part in message.parts if isinstance(part, Text))
        calls = [self._call(part) for part in message.parts if isinstance(part, ToolUse)]
        self._lost_of_assistant(message.parts, where)
        written: Json = {"role": "assistant", "content": text if text or not calls else None, **_named(message.name)}
        if any(thinking):
            written["reasoning"] = "".join(thinking)
        if calls:
            written["tool_calls"] = calls
        return written

    def _lost_of_assistant(self, parts: tuple[Part, ...], where: str) -> None:
        places = [_PLACE.get(type(part), 3) for part in parts]
        if places.count(0) > 1 or any(after < before for before, after in pairwise(places)):
            self._lost(f"{where}.content", "chat has no order of parts; written as reasoning, text, tool calls")
        for place, part in enumerate(parts):
            if isinstance(part, Thinking) and part.seal is not None:
                self._lost(f"{where}.content[{place}].seal", "chat has no place for a token of reasoning; left out")
            if places[place] == 3:
                self._lost(f"{where}.content[{place}]", "an assistant of chat says text and calls only; left out")

    def _call(self, use: ToolUse) -> Json:
        return {
            "id": use.id or self._make_id(),
            "type": "function",
            "function": {"name": use.name, "arguments": use.arguments},
        }

    def _make_id(self) -> str:
        made = f"call_{self._made}"
        self._made += 1
        self._unanswered.append(made)
        return made

    def _results(self, message: Message, where: str) -> Iterable[Json]:
        """A message for each result, then one of the user with what an engine takes from a user only."""
        written: list[Json] = []
        moved: list[Json] = []
        for place, part in enumerate(message.parts):
            if isinstance(part, ToolResult):
                at = f"{where}.content[{place}]"
                content = self._content(self._kept(part, at, moved), at)
                tool_call_id = part.id or (self._unanswered.pop(0) if self._unanswered else self._make_id())
                written.append({"role": "tool", "tool_call_id": tool_call_id, "content": content, **_named(part.name)})
        if moved:
            written.append({"role": "user", "content": moved})
        return written

    def _kept(self, result: ToolResult, where: str, moved: list[Json]) -> tuple[Part, ...]:
        """What of a result its own message says."""
        if result.is_error:
            self._lost(f"{where}.is_error", "chat has no mark for a failed call; the text says what it says")
        if not self.engine:
            return result.content
        for place, part in enumerate(result.content):
            if isinstance(part, Media) and (said := self._media(part, f"{where}.content[{place}]")):
                self._lost(
                    f"{where}.content[{place}]", "templates take media from users only; moved behind the results"
                )
                moved.append(said)
        return tuple(part for part in result.content if isinstance(part, Text))

    def _content(self, parts: tuple[Part, ...], where: str) -> str | list[Json]:
        if not parts:
            return ""
        if len(parts) == 1 and isinstance(parts[0], Text):
            return parts[0].text
        written: list[Json] = []
        for place, part in enumerate(parts):
            match part:
                case Text():
                    written.append({"type": "text", "text": part.text})
                case Media():
                    written.extend(said for said in (self._media(part, f"{where}.content[{place}]"),) if said)
                case _:
                    self._lost(f"{where}.content[{place}]", "only an assistant says this in chat; left out")
        return written or ""

    def _media(self, media: Media, where: str) -> Json | None:
        known = media.mime.partition("/")[0] in KINDS
        if self.engine and not known:
            self._lost(where, f"the engine reads no {media.mime}; left out")
            return None
        if not self.engine and known and media.name is not None:
            self._lost(f"{where}.name", "chat has names for documents only; left out")
        if not self.engine and shown_type(media) != media.mime:
            self._lost(f"{where}.mime", f"chat does not tell that it is {media.mime}")
        return to_part(media)

    def _lost(self, where: str, why: str) -> None:
        self.losses.append(Loss(where, why))


def _named(name: str | None) -> Json:
    return {} if name is None else {"name": name}

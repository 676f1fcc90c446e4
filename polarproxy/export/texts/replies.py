"""What the model said in a turn, from two witnesses: the tokens it sampled, and the later request that repeats it.

The tokens are the truth; the request tells how the engine's parser read them. A repeated reply is believed when the tokens
agree with it: because they are, token for token, in the later prompt, or because what it says stands in their spelling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.model import Dialect, FinishReason
from polarproxy.wire.neutral.meaning import arguments_value, reasoning_text, said_text, tool_uses
from polarproxy.wire.neutral.request import Message, Text, Thinking, ToolUse
from polarproxy.wire.neutral.written import Written, read_written, without_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.trajectory.forest import Node
    from polarproxy.wire.neutral.request import Part, Request


@dataclass(frozen=True, slots=True)
class Spelled:
    """A completion in letters."""

    raw: str
    """All of its tokens, marks of the template too."""
    written: Written
    ended_by_call: bool
    """Whether the engine found tool calls in it."""
    place: str
    """By which ids for its tool calls are made."""

    @property
    def understood(self) -> bool:
        """Whether its parts are known without another witness."""
        return not self.written.foreign and (bool(self.written.tools) or not self.ended_by_call)

    def reply(self) -> Message:
        """The message that it is. Ids of tool calls are made, for nobody sampled them."""
        written = self.written
        parts: list[Part] = [Thinking(written.thinking)] if written.thinking else []
        parts += [Text(written.text)] if written.text else []
        parts += [
            ToolUse(f"call_{self.place}_{index}", use.name, use.arguments) for index, use in enumerate(written.tools)
        ]
        return Message("assistant", tuple(parts))

    def says(self, told: Message) -> bool:
        """Whether all that a repeated reply says stands in these tokens."""
        pieces = [said_text(told.parts), reasoning_text(told.parts), *(use.name for use in tool_uses(told.parts))]
        return all(piece in self.raw for piece in pieces)


def spelled(node: Node, request: Request | None, spellings: Mapping[int, bytes]) -> Spelled | None:
    """A completion in letters. None: some of its tokens have no known spelling."""
    call, completion = node.captured.call, node.completion
    pieces = [spellings.get(token) for token in completion.token_ids]
    if any(piece is None for piece in pieces):
        return None
    raw = b"".join(piece for piece in pieces if piece is not None).decode("utf-8", "replace")
    if completion.stop_reason and completion.stop_reason in raw:
        # The client is told what stands before its stop string.
        raw = raw[: raw.rindex(completion.stop_reason)]
    by_call = completion.finish_reason is FinishReason.TOOL_CALLS
    if call.dialect is Dialect.COMPLETIONS:
        written = Written(without_end(raw))
    else:
        written = read_written(raw, tools=by_call or request is None or bool(request.tools))
    return Spelled(raw, written, by_call, f"{call.ordinal}_{completion.index}")


def merged(told: Message, own: Spelled | None) -> Message:
    """A repeated reply, with the reasoning that was not sent back and the arguments byte for byte as they were sampled.

    Arguments that mean something else than any that can be read in the tokens stay as they were sent.
    """
    if own is None:
        return told
    sampled: dict[tuple[str, str], list[str]] = {}
    for use in own.written.tools:
        sampled.setdefault((use.name, arguments_value(use.arguments)), []).append(use.arguments)
    parts: list[Part] = []
    for part in told.parts:
        if isinstance(part, ToolUse):
            exact = sampled.get((part.name, arguments_value(part.arguments)))
            parts.append(ToolUse(part.id, part.name, exact.pop(0)) if exact else part)
        else:
            parts.append(part)
    if own.written.thinking and not reasoning_text(told.parts):
        parts = [Thinking(own.written.thinking), *(part for part in parts if not isinstance(part, Thinking))]
    return Message("assistant", tuple(parts), told.name)


def same_meaning(told: Message, own: Spelled) -> bool:
    """Whether a repeated reply and what was sampled are the same text and the same calls."""
    said = [(use.name, arguments_value(use.arguments)) for use in tool_uses(told.parts)]
    meant = [(use.name, arguments_value(use.arguments)) for use in own.written.tools]
    return said == meant and said_text(told.parts) == own.written.text.strip()

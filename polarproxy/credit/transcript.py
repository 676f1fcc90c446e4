"""What was said in a session, turn by turn: what judges read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE

if TYPE_CHECKING:
    from polarproxy.credit.rollouts import TurnKey


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by the model."""

    name: str
    arguments: str
    """As sampled, or as the harness sent them back; a JSON object, if the model did well."""
    result: str | None = None
    """What the tool answered. None: no later request shows it."""

    @property
    def readable(self) -> bool:
        """Whether the arguments are a JSON object."""
        try:
            return isinstance(msgspec.json.decode(self.arguments.encode()), dict)
        except UNREADABLE:
            return False


@dataclass(frozen=True, slots=True)
class SaidTurn:
    """One trained turn."""

    key: TurnKey
    text: str
    """Without reasoning and tool calls."""
    thinking: str = ""
    tools: tuple[ToolCall, ...] = ()
    tokens: int = 0
    """Sampled tokens, reasoning and all."""
    cut: bool = False
    """Whether it ended at the length limit."""
    subagent: bool = False

    @property
    def well_formed(self) -> bool:
        """Whether all of its tool calls can be read, and none stands in its text as markup that nobody understood."""
        return not self.cut and "<tool_call>" not in self.text and all(tool.readable for tool in self.tools)

    @property
    def code(self) -> str:
        """The arguments of its tool calls, one after the other."""
        return "\n".join(tool.arguments for tool in self.tools)

    @property
    def whole(self) -> str:
        """Text and tool calls."""
        return "\n".join([self.text, *(f"{tool.name} {tool.arguments}" for tool in self.tools)])


@dataclass(frozen=True, slots=True)
class Transcript:
    """The trained turns of a session by arrival."""

    instruction: str
    """What the user asked first. Empty: no request is kept that could be read."""
    turns: tuple[SaidTurn, ...]

    @property
    def final_text(self) -> str:
        """The text of the main agent's last turn (of any, where only sub-agents have one); empty when there is none."""
        mains = [turn for turn in self.turns if not turn.subagent]
        return next((turn.text for turn in reversed(mains or self.turns)), "")

    @property
    def tokens(self) -> int:
        """Sampled tokens of all turns."""
        return sum(turn.tokens for turn in self.turns)

"""A session as one run of its main agent: the prompt that it began with, and all that came of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from polarproxy.export.texts.chat import Json, write_messages, write_tools
from polarproxy.export.texts.dialogues import Dialogue, Dialogues
from polarproxy.model import CallKind

if TYPE_CHECKING:
    from polarproxy.export.format import Reading, Taken
    from polarproxy.model import TokenIds
    from polarproxy.trajectory.branches import Branch, Turn


class NoRun(StrEnum):
    """Why a session is not one run."""

    NOTHING = "no_turn_of_the_main_agent"
    UNREADABLE = "not_readable"
    """Its first request or its last turn cannot be read."""
    REPLACED = "history_was_replaced"
    """What was said last does not begin with what was asked first (a compaction, an edit)."""


@dataclass(frozen=True, slots=True)
class Run:
    """What was asked first, and everything up to the last answer."""

    taken: Taken
    prompt: TokenIds
    """Of the first call."""
    model: str | None
    """That sampled the first answer."""
    opening: list[Json]
    """The messages of the first call."""
    rest: list[Json]
    """Those that came after them, tool results and all; assistants have their `weight`."""
    tools: list[Json]
    call_ids: list[str]
    """The calls of the branch that the last answer stands in."""


def run_of(taken: Taken, reading: Reading) -> Run | NoRun:
    """The run of a session of which something is trained."""
    first, last = _ends(taken)
    if first is None or last is None:
        return NoRun.NOTHING
    reader = Dialogues(taken.rebuilt.forest, reading)
    call = first.node.captured.call
    request, dialogue = reader.request(call), reader.of(last)
    if request is None or not isinstance(dialogue, Dialogue):
        return NoRun.UNREADABLE
    if not reader.begins_with(dialogue, call):
        return NoRun.REPLACED
    # One writer for both, so that ids that are made for calls are the same.
    written = write_messages(dialogue.lines)
    opening = len(write_messages(dialogue.lines[: len(request.messages)]).messages)
    return Run(
        taken=taken,
        prompt=first.node.prompt,
        model=call.served_model,
        opening=written.messages[:opening],
        rest=written.messages[opening:],
        tools=write_tools(dialogue.tools),
        call_ids=[turn.node.captured.call.call_id for turn in dialogue.branch.turns],
    )


def _ends(taken: Taken) -> tuple[Turn | None, Branch | None]:
    """The main agent's first turn, and the branch that its last one ends."""
    branches = () if taken.trajectory is None else taken.trajectory.branches
    mains = [
        (turn.node.captured.call.ordinal, turn.node.completion.index, place, turn)
        for place, branch in enumerate(branches)
        for turn in branch.turns
        if turn.node.captured.kind is not CallKind.SUBAGENT
    ]
    if not mains:
        return None, None
    first = min(mains, key=lambda one: one[:3])[3]
    last = max(mains, key=lambda one: (one[0], -one[1], -one[2]))
    return first, branches[last[2]]

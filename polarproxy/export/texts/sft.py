"""Supervised fine-tuning: one conversation a line, of which only what the model sampled and may be trained has weight 1.

Form: the chat form of OpenAI's fine-tuning files (`messages`, `tools`, and `weight` on assistants), which TRL, Axolotl and
LLaMA-Factory load; reasoning stands in `reasoning_content`, as chat templates know it. Arguments of tool calls are the
sampled text. Columns that trainers do not know stand in `metadata`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.export.records import write_lines
from polarproxy.export.texts.chat import Json, write_messages, write_tools
from polarproxy.export.texts.choosing import best, cached, counted_lines, dialogues_of, groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from polarproxy.export.format import Context, Taken
    from polarproxy.export.texts.dialogues import Dialogue
    from polarproxy.model import Session
    from polarproxy.trajectory.branches import Turn

CONVERSATIONS, TURNS = "conversations", "turns"
FORMS = (CONVERSATIONS, TURNS)


class Metadata(msgspec.Struct, omit_defaults=False):
    """Where a conversation comes from. None: not known."""

    session_id: str
    task_id: str | None
    group_id: str | None
    harness: str | None
    model: str | None
    reward: float | None
    branch_index: int
    call_ids: list[str]


class Conversation(msgspec.Struct):
    """One line of the form `conversations`."""

    messages: list[Json]
    tools: list[Json]
    metadata: Metadata


class Answer(msgspec.Struct):
    """One line of the form `turns`: the loss of a trainer that knows no weights is on what was sampled alone."""

    prompt: list[Json]
    completion: list[Json]
    tools: list[Json]
    metadata: Metadata


def conversation(dialogue: Dialogue, session: Session, messages: list[Json]) -> Conversation:
    """A dialogue as a line; `messages` are its lines in chat."""
    return Conversation(messages, write_tools(dialogue.tools), _metadata(dialogue, session, dialogue.branch.turns))


def answers(dialogue: Dialogue, session: Session) -> Iterator[Answer]:
    """A line for each turn of a dialogue that is trained in it."""
    for place, line in enumerate(dialogue.lines):
        if line.turn is not None and line.turn.trained:
            messages = write_messages(dialogue.lines[: place + 1], weights=False).messages
            metadata = _metadata(dialogue, session, (line.turn,))
            yield Answer(messages[:-1], messages[-1:], write_tools(dialogue.tools), metadata)


def _metadata(dialogue: Dialogue, session: Session, turns: Sequence[Turn]) -> Metadata:
    calls = [turn.node.captured.call for turn in turns]
    return Metadata(
        session_id=session.session_id,
        task_id=session.task_id,
        group_id=session.group_id,
        harness=session.harness,
        model=calls[-1].served_model,
        reward=None if session.reward is None else session.reward.value,
        branch_index=dialogue.branch.index,
        call_ids=[call.call_id for call in calls],
    )


def write_sft(path: Path, sessions: Iterable[Taken], context: Context) -> None:
    """A conversation for each branch in which something is trained, or a line for each turn."""
    write_lines(path, counted_lines(_lines(sessions, context), _said, context))


def _lines(sessions: Iterable[Taken], context: Context) -> Iterator[Conversation | Answer]:
    reading = cached(context.reading)
    for group in groups(sessions):
        for taken in best(group, context.texts.best_of, context.account):
            for dialogue in dialogues_of(taken, context, reading):
                written = write_messages(dialogue.lines)
                if written.losses:
                    context.account.texts["parts that chat says in another way, or not"] += written.losses
                if context.form == TURNS:
                    yield from answers(dialogue, taken.session)
                else:
                    yield conversation(dialogue, taken.session, written.messages)


def _said(line: Conversation | Answer) -> object:
    """Whoever said it."""
    said = (line.messages,) if isinstance(line, Conversation) else (line.prompt, line.completion)
    return said, line.tools

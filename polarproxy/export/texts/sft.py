"""Supervised fine-tuning: one conversation a line, of which only what the model sampled and may be trained has weight 1.

Form: the chat form of OpenAI's fine-tuning files (`messages`, `tools`, and `weight` on assistants), which TRL, Axolotl and
LLaMA-Factory load; reasoning stands in `reasoning_content`, as chat templates know it. Arguments of tool calls are the
sampled text. Columns that trainers do not know stand in `metadata`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.export.records import write_lines
from polarproxy.export.texts.chat import write_messages, write_tools
from polarproxy.export.texts.choosing import LINES, best, cached, dialogues_of, groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from polarproxy.export.format import Context, Taken
    from polarproxy.export.texts.dialogues import Dialogue
    from polarproxy.model import Session


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
    """One line."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    metadata: Metadata

    @property
    def said(self) -> bytes:
        """What is said in it, whoever said it: equal for conversations that are the same."""
        return msgspec.json.encode((self.messages, self.tools))


def conversation(dialogue: Dialogue, session: Session) -> Conversation:
    """A dialogue as a line."""
    written = write_messages(dialogue.lines)
    calls = [turn.node.captured.call for turn in dialogue.branch.turns]
    metadata = Metadata(
        session_id=session.session_id,
        task_id=session.task_id,
        group_id=session.group_id,
        harness=session.harness,
        model=calls[-1].served_model,
        reward=None if session.reward is None else session.reward.value,
        branch_index=dialogue.branch.index,
        call_ids=[call.call_id for call in calls],
    )
    return Conversation(written.messages, write_tools(dialogue.tools), metadata)


def write_sft(path: Path, sessions: Iterable[Taken], context: Context) -> None:
    """A conversation for each branch in which something is trained."""
    write_lines(path, _conversations(sessions, context))


def _conversations(sessions: Iterable[Taken], context: Context) -> Iterator[Conversation]:
    options, told, reading = context.texts, context.account.texts, cached(context.reading)
    seen: set[bytes] = set()
    for group in groups(sessions):
        for taken in best(group, options.best_of, context.account):
            for dialogue in dialogues_of(taken, context, reading):
                line = conversation(dialogue, taken.session)
                digest = blake2b(line.said, digest_size=16).digest() if options.dedup else b""
                if digest in seen:
                    told["written already"] += 1
                    continue
                if options.dedup:
                    seen.add(digest)
                told[LINES] += 1
                yield line

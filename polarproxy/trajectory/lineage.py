"""Who asked, in a harness's own words: what its headers say of agents, their parents, and the turns between them.

Sources: requests of Claude Code 2.1, Codex CLI 0.171 and OpenCode 1.18 as recorded in `tests/fixtures/harnesses`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.model import Call


@dataclass(frozen=True, slots=True)
class Identity:
    """What the headers of one call say. None: they do not say."""

    agent: str | None = None
    """The agent that asked, by the harness's id of it."""
    parent: str | None = None
    """The agent that made it."""
    turn: str | None = None
    """The turn of the user that the call belongs to; several calls share it."""
    parent_turn: str | None = None
    """The turn of the parent in which the agent was made."""
    is_subagent: bool = False
    """Whether they say that a sub-agent asked."""
    purpose: str | None = None
    """What the request was for, in the harness's word: Codex's `turn`, `compaction`, `review`, …"""


class _CodexTurn(msgspec.Struct):
    thread_id: str | None = None
    turn_id: str | None = None
    parent_thread_id: str | None = None
    parent_turn_id: str | None = None
    request_kind: str | None = None
    thread_source: str | None = None


_codex_turn = msgspec.json.Decoder(_CodexTurn)


def identity(call: Call) -> Identity:
    """Who asked, as the headers of this call tell it."""
    return identity_of(dict(call.headers))


def identity_of(said: Mapping[str, str]) -> Identity:
    """Who asked, as headers tell it. `said` knows them by their names in lower case."""
    if "x-codex-turn-metadata" in said or "x-codex-window-id" in said:
        return _codex(said)
    if "x-claude-code-session-id" in said:
        agent = said.get("x-claude-code-agent-id")
        # The main agent has no id of its own; the session's stands for it.
        return Identity(agent or said["x-claude-code-session-id"], is_subagent=agent is not None)
    if "x-session-id" in said:
        parent = said.get("x-parent-session-id")
        return Identity(said["x-session-id"], parent, is_subagent=parent is not None)
    return Identity()


def _codex(said: Mapping[str, str]) -> Identity:
    try:
        turn = _codex_turn.decode(said.get("x-codex-turn-metadata", "{}"))
    except UNREADABLE:
        turn = _CodexTurn()
    kind = said.get("x-openai-subagent")
    return Identity(
        agent=said.get("thread-id") or turn.thread_id,
        parent=said.get("x-codex-parent-thread-id") or turn.parent_thread_id,
        turn=turn.turn_id or None,
        parent_turn=turn.parent_turn_id,
        is_subagent=kind is not None or turn.thread_source == "subagent",
        purpose=turn.request_kind if turn.request_kind not in (None, "turn") else kind or turn.request_kind,
    )

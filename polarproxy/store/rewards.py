"""Rewards in their tables. They are only ever appended: the latest one of a session counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, insert, select

from polarproxy.errors import InvalidValue, NotFound, StoreDamaged
from polarproxy.model import ComponentKind, Reward, RewardComponent, TurnReward
from polarproxy.store.schema import reward_components, rewards, sessions, turn_rewards

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, RowMapping, Select

_AT_ONCE = 500
"""Ids in one question; SQLite takes 999 parameters at the least."""


@dataclass(frozen=True, slots=True)
class SetReward:
    """A reward that was set at some time."""

    session_id: str
    recorded_at: datetime
    reward: Reward


def append(connection: Connection, session_id: str, reward: Reward, recorded_at: datetime) -> None:
    """Appends a reward of a session that is there."""
    row = {"session_id": session_id, "recorded_at": recorded_at, "value": reward.value, "spec": reward.spec}
    reward_id = connection.execute(insert(rewards).values(row).returning(rewards.c.reward_id)).scalar_one()
    if reward.components:
        parts = [
            {"reward_id": reward_id, "place": place, "name": part.name, "value": part.value, "kind": part.kind.value}
            for place, part in enumerate(reward.components)
        ]
        connection.execute(insert(reward_components), parts)
    if reward.turns:
        turns = [
            {"reward_id": reward_id, "place": place, "call_id": turn.call_id, "turn": turn.turn, "value": turn.value}
            for place, turn in enumerate(reward.turns)
        ]
        connection.execute(insert(turn_rewards), turns)


def add(connection: Connection, given: Sequence[tuple[str, Reward]]) -> None:
    """Appends rewards; raises `NotFound` when one of the sessions is not there."""
    ids = sorted({session_id for session_id, _ in given})
    known: set[str] = set()
    for start in range(0, len(ids), _AT_ONCE):
        query = select(sessions.c.session_id).where(sessions.c.session_id.in_(ids[start : start + _AT_ONCE]))
        known.update(connection.execute(query).scalars())
    unknown = [session_id for session_id in ids if session_id not in known]
    if unknown:
        raise NotFound(f"there is no session {', '.join(map(repr, unknown))}; `polarproxy sessions list` shows all")
    now = datetime.now(UTC)
    for session_id, reward in given:
        append(connection, session_id, reward, now)


def latest(connection: Connection, session_ids: Sequence[str]) -> dict[str, Reward]:
    """The reward that counts of each of these sessions; those without one are missing."""
    found: dict[str, Reward] = {}
    for start in range(0, len(session_ids), _AT_ONCE):
        of_these = rewards.c.session_id.in_(session_ids[start : start + _AT_ONCE])
        newest = select(func.max(rewards.c.reward_id)).where(of_these).group_by(rewards.c.session_id)
        found.update((given.session_id, given.reward) for given in _read(connection, newest))
    return found


def latest_of(connection: Connection, group_id: str | None) -> list[SetReward]:
    """The reward that counts of every session of a group, or of all, in the order in which they were set."""
    newest = select(func.max(rewards.c.reward_id)).group_by(rewards.c.session_id)
    if group_id is not None:
        newest = newest.join_from(rewards, sessions).where(sessions.c.group_id == group_id)
    return _read(connection, newest)


def history(connection: Connection, session_id: str) -> list[SetReward]:
    """Every reward of a session in the order in which they were set; the last one counts."""
    return _read(connection, select(rewards.c.reward_id).where(rewards.c.session_id == session_id))


def _read(connection: Connection, chosen: Select[Any]) -> list[SetReward]:
    parts = _by_reward(connection.execute(_of(reward_components, chosen)).mappings())
    turns = _by_reward(connection.execute(_of(turn_rewards, chosen)).mappings())
    query = select(rewards).where(rewards.c.reward_id.in_(chosen)).order_by(rewards.c.reward_id)
    return [
        SetReward(
            row["session_id"],
            row["recorded_at"],
            _reward(row, parts.get(row["reward_id"], ()), turns.get(row["reward_id"], ())),
        )
        for row in connection.execute(query).mappings()
    ]


def _of(table: Any, chosen: Select[Any]) -> Select[Any]:
    return select(table).where(table.c.reward_id.in_(chosen)).order_by(table.c.reward_id, table.c.place)


def _by_reward(found: Iterable[RowMapping]) -> dict[int, list[RowMapping]]:
    by_id: dict[int, list[RowMapping]] = {}
    for row in found:
        by_id.setdefault(row["reward_id"], []).append(row)
    return by_id


def _reward(row: RowMapping, parts: Iterable[RowMapping], turns: Iterable[RowMapping]) -> Reward:
    try:
        return Reward(
            row["value"],
            tuple(RewardComponent(part["name"], part["value"], read_kind(part["kind"])) for part in parts),
            tuple(TurnReward(turn["value"], turn["call_id"], turn["turn"]) for turn in turns),
            row["spec"],
        )
    except (ValueError, InvalidValue) as error:
        raise StoreDamaged(f"a reward of session {row['session_id']} is none that anybody wrote: {error}") from error


def read_kind(text: str | None) -> ComponentKind:
    """The kind of a component; raises `ValueError` for one that nobody wrote. None: from before kinds were kept."""
    return ComponentKind.REWARD if text is None else ComponentKind(text)

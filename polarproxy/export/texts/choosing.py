"""Which sessions of a group are written, and their dialogues, with the count of what is not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

import msgspec

from polarproxy.credit.rollouts import group_of
from polarproxy.export.texts.dialogues import Dialogue, Dialogues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from polarproxy.export.account import Account
    from polarproxy.export.format import Context, Reading, Taken


T = TypeVar("T")

LINES = "lines"
"""How many lines were written, among the counts of `Account.texts`."""


def groups(sessions: Iterable[Taken]) -> Iterator[list[Taken]]:
    """The sessions of which something is trained, by group."""
    for _, members in groupby(sessions, key=lambda taken: group_of(taken.session)):
        yield [taken for taken in members if taken.trajectory is not None]


def reward_of(taken: Taken) -> float | None:
    """None: nothing has set one."""
    return None if taken.session.reward is None else taken.session.reward.value


def best(group: Sequence[Taken], count: int | None, account: Account) -> list[Taken]:
    """The sessions of a group with the highest rewards, in their order. Of equal ones the first count. None: all."""
    if count is None:
        return list(group)
    scored = [(reward, place) for place, taken in enumerate(group) if (reward := reward_of(taken)) is not None]
    kept = {place for _, place in sorted(scored, key=lambda one: (-one[0], one[1]))[:count]}
    account.texts["sessions not among the best of their group"] += len(group) - len(kept)
    return [taken for place, taken in enumerate(group) if place in kept]


def cached(reading: Reading) -> Reading:
    """Asks for the spellings of a model once."""
    return replace(reading, spellings=cache(reading.spellings))


def dialogues_of(taken: Taken, context: Context, reading: Reading) -> Iterator[Dialogue]:
    """The dialogues of what is trained of a session; turns that are in none are counted."""
    trajectory = taken.trajectory
    if trajectory is None:
        return
    reader = Dialogues(taken.rebuilt.forest, reading)
    for branch in trajectory.branches:
        found = reader.of(branch)
        trained = sum(turn.trained for turn in branch.turns)
        if isinstance(found, Dialogue):
            missing = trained - found.trained
            if missing:
                context.account.texts["turns without a text"] += missing
            if found.trained:
                yield found
        else:
            context.account.texts[f"turns without a text: {found.value}"] += trained


def counted_lines(lines: Iterable[T], said: Callable[[T], object], context: Context) -> Iterator[T]:
    """Lines that are written, counted. Where each is wanted once, those are left out that say the same as one before."""
    told, seen = context.account.texts, set[bytes]()
    for line in lines:
        if context.texts.dedup:
            digest = blake2b(msgspec.json.encode(said(line)), digest_size=16).digest()
            if digest in seen:
                told["written already"] += 1
                continue
            seen.add(digest)
        told[LINES] += 1
        yield line

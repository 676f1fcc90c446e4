"""Which sessions go to which file: splits by task, shuffling, shards. The same sessions make the same plan."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from math import isclose, isfinite
from typing import TYPE_CHECKING

import xxhash

from polarproxy.credit.rollouts import group_of
from polarproxy.errors import BadExport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from polarproxy.model import Session

    Unit = tuple[Session, ...]
    """Sessions that are never parted: a group, or for a split all that share tasks and groups."""

_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Split:
    """A part of the tasks."""

    name: str
    share: float
    """Of 1."""


def read_splits(text: str) -> tuple[Split, ...]:
    """`train=0.9,val=0.1`; raises `BadExport`."""
    splits = []
    for pair in text.split(","):
        name, _, written = pair.strip().partition("=")
        try:
            share = float(written)
        except ValueError:
            share = 0.0
        if not _NAME.fullmatch(name) or not isfinite(share) or share <= 0:
            raise BadExport(f"--split: {pair.strip()!r} is not NAME=SHARE; write for example train=0.9,val=0.1")
        splits.append(Split(name, share))
    total = sum(split.share for split in splits)
    if not isclose(total, 1.0, abs_tol=2e-3):
        raise BadExport(f"--split: the shares must add up to 1, not {total:g}, so that no session is left out unsaid")
    if len({split.name for split in splits}) < len(splits):
        raise BadExport(f"--split: a name stands twice in {text}")
    return tuple(splits)


@dataclass(frozen=True, slots=True)
class Layout:
    """How an export is laid out in files."""

    splits: tuple[Split, ...] = ()
    shards: int = 1
    """At most so many files, of each split: a group is never cut."""
    shuffle: int | None = None
    """Groups, and sessions within them, in an order that this number gives. None: by name."""

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise BadExport(f"an export has at least one file; --shards cannot be {self.shards}")


@dataclass(frozen=True, slots=True)
class Part:
    """One file."""

    name: str
    split: str | None
    sessions: tuple[Session, ...]


def stem_and_ending(name: str, suffix: str) -> tuple[str, str]:
    """What stands before and after the numbers of shards in their names."""
    stem = name.removesuffix(suffix) if name.endswith(suffix) else name.rpartition(".")[0] or name
    return stem, name.removeprefix(stem)


def plan(sessions: Sequence[Session], sizes: Mapping[str, int], layout: Layout, name: str, suffix: str) -> list[Part]:
    """The files of an export to `name`, which ends with `suffix`, or does not. `sizes`: of sessions, in anything.

    Raises `BadExport` when there are fewer tasks than splits.
    """
    stem, ending = stem_and_ending(name, suffix)
    parts = []
    for split, own in _split(sessions, layout):
        groups = [tuple(group) for _, group in groupby(_ordered(own, layout.shuffle), group_of)]
        shards = _shards(groups, sizes, layout.shards)
        base = stem if split is None else f"{stem}.{split}"
        for index, shard in enumerate(shards):
            number = f"-{index:05}-of-{len(shards):05}" if layout.shards > 1 else ""
            parts.append(Part(f"{base}{number}{ending}", split, tuple(one for group in shard for one in group)))
    return parts


def _hash(*words: str) -> bytes:
    # surrogatepass: ids are any text, half characters among them.
    return xxhash.xxh3_128_digest("\0".join(words).encode("utf-8", "surrogatepass"))


def _ordered(sessions: Iterable[Session], seed: int | None) -> list[Session]:
    """By group and session; with a seed, by their hashes, so that a new session moves no other."""
    if seed is None:
        return sorted(sessions, key=lambda one: (one.group_id or "", group_of(one), one.session_id))
    word = str(seed)
    return sorted(
        sessions,
        key=lambda one: (_hash(word, group_of(one)), group_of(one), _hash(word, one.session_id), one.session_id),
    )


def _split(sessions: Sequence[Session], layout: Layout) -> Iterator[tuple[str | None, list[Session]]]:
    if not layout.splits:
        yield None, list(sessions)
        return
    units = _units(sessions)
    if len(units) < len(layout.splits):
        raise BadExport(
            f"--split needs a task for each of its {len(layout.splits)} parts, and there are {len(units)}: sessions that share"
            " a task or a group stay together"
        )
    total, bounds = 0.0, list[tuple[float, float]]()
    for split in layout.splits:
        bounds.append((total, total + split.share))
        total += split.share
    # The last one reaches 1 whatever the sum was rounded to.
    bounds[-1] = (bounds[-1][0], 1.0)
    members: list[list[tuple[float, Unit]]] = [[] for _ in bounds]
    for point, unit in units:
        members[next(place for place, (_, end) in enumerate(bounds) if point < end or end == 1.0)].append((point, unit))
    _fill_empty(members, bounds)
    for split, own in zip(layout.splits, members, strict=True):
        yield split.name, [session for _, unit in own for session in unit]


def _fill_empty(members: list[list[tuple[float, Unit]]], bounds: Sequence[tuple[float, float]]) -> None:
    """Gives a split that got nothing the task whose point lies nearest, of those that have more than one."""
    for place, (start, end) in enumerate(bounds):
        if members[place]:
            continue
        rich = [(own, one) for own in members if len(own) > 1 for one in own]
        giver, given = min(rich, key=lambda pair: (abs(pair[1][0] - (start + end) / 2), pair[1][0]))
        giver.remove(given)
        members[place].append(given)


def _units(sessions: Iterable[Session]) -> list[tuple[float, Unit]]:
    """Sessions that share a task or a group, together, each unit with its place from 0 to 1.

    The place is that of the unit's first name by order, so that a task stays in its split as others come.
    """
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader.setdefault(name, name) != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    ordered = sorted(sessions, key=lambda one: one.session_id)
    for session in ordered:
        group = find(f"group {group_of(session)}")
        if session.task_id is not None:
            leader[group] = find(f"task {session.task_id}")
    units: dict[str, list[Session]] = {}
    for session in ordered:
        units.setdefault(find(f"group {group_of(session)}"), []).append(session)
    placed = [(_point(unit), tuple(unit)) for unit in units.values()]
    return sorted(placed, key=lambda one: one[0])


def _point(unit: Sequence[Session]) -> float:
    name = min(session.task_id if session.task_id is not None else group_of(session) for session in unit)
    return int.from_bytes(_hash("split", name)[:7], "big") / 2**56


def _shards(groups: Sequence[Unit], sizes: Mapping[str, int], most: int) -> list[list[Unit]]:
    """Groups in order, cut into pieces of about the same size; none is empty, unless there is nothing at all."""
    count = max(1, min(most, len(groups)))
    weights = [sum(sizes.get(one.session_id, 0) for one in group) + 1 for group in groups]
    total, done = sum(weights), 0
    shards: list[list[Unit]] = [[]]
    for place, (group, weight) in enumerate(zip(groups, weights, strict=True)):
        left, missing = len(groups) - place, count - len(shards)
        full = done + weight / 2 > total * len(shards) / count
        if shards[-1] and missing and (full or left <= missing):
            shards.append([])
        shards[-1].append(group)
        done += weight
    return shards

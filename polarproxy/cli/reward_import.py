"""`polarproxy reward import`: rewards from a file of JSON lines, all of them or none."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.progress import track
from rich.text import Text

from polarproxy.cli.opening import Db, Json, open_repository
from polarproxy.cli.output import console, errors, print_json
from polarproxy.cli.recipes import known_recipes
from polarproxy.cli.reward_turns import check_calls, unmatched
from polarproxy.credit.given import GivenReward
from polarproxy.errors import UNREADABLE, BadReward
from polarproxy.model.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from polarproxy.model import Reward, Session

_SHOWN = 20
_LOOKED_AT = 4096
SAMPLE, SAMPLE_ID = "sample", "sample_id"
"""Metadata of a session by which a line may name it: the number of the rollout of its task; an outer name."""


class _Named(msgspec.Struct):
    session_id: str | None = None
    id: str | None = None


class _Line(GivenReward, forbid_unknown_fields=True):
    session_id: str | None = None
    task_id: str | None = None
    sample: int | str | None = None


@dataclass(frozen=True, slots=True)
class Names:
    """By which names sessions can be found."""

    ids: set[str] = field(default_factory=set)
    samples: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    sample_ids: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, sessions: Iterable[Session]) -> Names:
        """The names of these sessions."""
        names = cls()
        for session in sessions:
            names.ids.add(session.session_id)
            metadata = dict(session.metadata)
            if session.task_id is not None and SAMPLE in metadata:
                names.samples.setdefault((session.task_id, metadata[SAMPLE]), []).append(session.session_id)
            if SAMPLE_ID in metadata:
                names.sample_ids.setdefault(metadata[SAMPLE_ID], []).append(session.session_id)
        return names

    def find(self, line: _Line) -> str:
        """The session that a line means; raises `BadReward` when there is none, or more than one."""
        if line.session_id is not None:
            found, what = [line.session_id] if line.session_id in self.ids else [], f"session {line.session_id!r}"
        elif line.task_id is not None and line.sample is not None:
            key = (line.task_id, str(line.sample))
            found, what = self.samples.get(key, []), f"task {key[0]!r}, sample {key[1]}"
        elif line.id is not None:
            by_name = self.sample_ids.get(line.id, [])
            found, what = by_name or ([line.id] if line.id in self.ids else []), f"id {line.id!r}"
        else:
            raise BadReward("it names no session; give session_id, task_id and sample, or id")
        if len(found) == 1:
            return found[0]
        raise BadReward(
            f"{what}: there are {len(found)} such sessions" if found else f"{what}: there is no such session"
        )


def _whose(line: bytes) -> str:
    """Of whom a line speaks that cannot be read as a reward, as far as that can be told."""
    try:
        named = msgspec.json.decode(line, type=_Named)
    except UNREADABLE:
        return ""
    name = named.session_id or named.id
    return "" if name is None else f"session {name!r}: "


def _read(line: bytes, names: Names) -> tuple[str, Reward]:
    try:
        given = msgspec.json.decode(line, type=_Line)
    except UNREADABLE as error:
        raise BadReward(f"{_whose(line)}it is not a reward: {error}") from error
    session_id = names.find(given)
    try:
        return session_id, given.reward()
    except BadReward as error:
        raise BadReward(f"session {session_id}: {error}") from error


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Rewards by the number of their line; of a JSON array, as a reward handler answers one, by their place from 1."""
    try:
        with path.open("rb") as file:
            if file.read(_LOOKED_AT).lstrip().startswith(b"["):
                file.seek(0)
                yield from enumerate(_listed(path, file.read()), 1)
                return
            file.seek(0)
            yield from ((number, line) for number, line in enumerate(file, 1) if line.strip())
    except OSError as error:
        raise BadReward(f"{path} cannot be read: {error.strerror or error}") from error


def _listed(path: Path, text: bytes) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(text, type=list[msgspec.Raw])
    except UNREADABLE as error:
        raise BadReward(f"{path} begins like a JSON array and is none: {error}") from error


def import_rewards(
    file: Annotated[
        Path, typer.Argument(help="JSON lines, or one JSON array of such objects.", exists=True, dir_okay=False)
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the file.")] = False,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Append the rewards of a file: all of them, or none when a line is bad or names no session (exit code 1).

    A line is {"session_id": …} or {"task_id": …, "sample": …} (a session's metadata "sample") or {"id": …} (its metadata
    "sample_id", as in the output of a Nova Forge reward handler), with "aggregate_reward_score" (or "aggregate_score"),
    "metrics_list": [{"name", "value", "type": "Reward"|"Penalty"|"Metric"}], "turn_rewards": [{"turn" or "call_id", "value"}].

    Example: polarproxy reward import scores.jsonl
    """
    with open_repository(db) as repository:
        names = Names.of(entry.session for entry in repository.sessions())
        given: list[tuple[str, Reward]] = []
        wrong: list[tuple[int, str]] = []
        idle: list[tuple[int, str]] = []
        recipes = known_recipes()
        for number, line in track(list(_lines(file)), "reading", console=errors, disable=not errors.is_terminal):
            try:
                session_id, reward = _read(line, names)
                check_calls(repository, session_id, reward)
                given.append((session_id, reward))
                warning = unmatched(repository, session_id, reward, recipes)
                idle += [] if warning is None else [(number, warning)]
            except BadReward as error:
                wrong.append((number, str(error)))
        if not wrong and not dry_run:
            repository.add_rewards(given)
    _print(file, given, wrong, idle, dry_run=dry_run, as_json=as_json)
    if wrong:
        raise typer.Exit(1)


def _print(
    file: Path,
    given: list[tuple[str, Reward]],
    wrong: list[tuple[int, str]],
    idle: list[tuple[int, str]],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    done = 0 if wrong or dry_run else len(given)
    if as_json:
        counts = {"read": len(given), "appended": done, "sessions": len({name for name, _ in given})}
        warnings = [{"line": number, "warning": text} for number, text in idle]
        bad = [{"line": number, "error": text} for number, text in wrong]
        print_json(counts | {"wrong": bad, "warnings": warnings})
        return
    _print_lines(console, file, wrong)
    _print_lines(errors, file, idle, "yellow")
    if wrong:
        console.print(
            f"nothing was imported: {len(wrong)} of {counted(len(wrong) + len(given), 'line')} cannot be used"
        )
    else:
        what = "can be imported" if dry_run else "imported"
        console.print(
            f"{counted(len(given), 'reward')} of {counted(len({name for name, _ in given}), 'session')} {what}"
        )


def _print_lines(where: Console, file: Path, lines: list[tuple[int, str]], style: str = "") -> None:
    for number, text in lines[:_SHOWN]:
        where.print(Text(f"{file}, line {number}: {text}", style=style))
    if len(lines) > _SHOWN:
        where.print(f"… and {counted(len(lines) - _SHOWN, 'more such line')}", style=style)

"""`polarproxy verify --rescore`: the rows of an export, scored again by the engine."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rich.progress import Progress

from polarproxy.cli.config import load
from polarproxy.cli.output import console, errors, print_table
from polarproxy.cli.recipes import known_recipes
from polarproxy.errors import BadReply, BadSettings, EngineFailed
from polarproxy.export.collect import Collection
from polarproxy.export.options import NO_CREDIT, Options
from polarproxy.model.plurals import counted
from polarproxy.proxy.rescore import Bar, RowScore, control_differs, score_row
from polarproxy.proxy.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.batch.sample import Sample
    from polarproxy.engine.probe import EngineFacts
    from polarproxy.store.repository import Repository

TOLERANCE = 0.02
"""Between scoring and decoding: nothing on vLLM's CPU build, some hundredths with bfloat16 on a GPU."""
_AT_ONCE = 4
_SHOWN = 20


@dataclass(slots=True)
class Rescored:
    """What scoring found."""

    upstream: str
    bar: Bar
    merge: str
    rows: list[RowScore] = field(default_factory=list)
    control: bool | None = None
    """Whether a row with one token changed scores otherwise, as it must. None: there was no row to try it with."""

    @property
    def compared(self) -> int:
        """Trained tokens that were compared."""
        return sum(row.compared for row in self.rows)

    @property
    def sound(self) -> bool:
        """Whether something was compared, nothing differs, and a difference would have been seen."""
        return self.compared > 0 and self.control is not False and all(row.sound for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "upstream": self.upstream,
            "tolerance": self.bar.tolerance,
            "policy_version": self.bar.version,
            "merge": self.merge,
            "sound": self.sound,
            "control_differs": self.control,
            "compared": self.compared,
            "beyond_tolerance": sum(row.beyond for row in self.rows),
            "worst": max((row.worst for row in self.rows if row.worst is not None), default=None),
            "rows": [asdict(row) for row in self.rows],
        }


def rescore_all(
    repository: Repository, upstream: str | None, sessions: Sequence[str], bar: Bar, merge: str
) -> Rescored:
    """Scores the rows of these sessions; raises `BadSettings` when there is no such engine."""
    settings = load({"upstream": upstream}, None)
    if len(settings.upstreams) != 1:
        raise BadSettings("rows are scored by one engine; name it with --upstream")
    return asyncio.run(rescored(repository, Upstream(settings.upstreams[0], settings), sessions, bar, merge))


async def rescored(
    repository: Repository, upstream: Upstream, sessions: Sequence[str], bar: Bar, merge: str
) -> Rescored:
    """Scores the rows of these sessions, and closes the upstream. Raises `BadSettings` when the engine does not answer."""
    found, wanted = Rescored(upstream.name, bar, merge), set(sessions)
    options = Options(advantage=NO_CREDIT, merge=merge, strict=False)
    collection = Collection(repository, options, known_recipes())
    chosen = [session for session in collection.sessions if session.session_id in wanted]
    try:
        facts = await upstream.facts()
        if upstream.known is None:
            raise BadSettings(upstream.why_unknown())
        with Progress(console=errors, disable=not errors.is_terminal, transient=True) as progress:
            bar_id = progress.add_task("rescoring", total=len(chosen))
            for session in chosen:
                calls = {one.call.call_id: one.call for one in repository.calls(session.session_id)}
                rows = collection.session_rows(session)
                for start in range(0, len(rows), _AT_ONCE):
                    some = rows[start : start + _AT_ONCE]
                    scores = await asyncio.gather(*(score_row(upstream, facts, row, calls, bar) for row in some))
                    found.rows += scores
                    await _try_control(found, upstream, facts, some, scores)
                progress.advance(bar_id)
    finally:
        await upstream.close()
    return found


async def _try_control(
    found: Rescored, upstream: Upstream, facts: EngineFacts, rows: Sequence[Sample], scores: Sequence[RowScore]
) -> None:
    """With the first row that agrees as a whole."""
    if found.control is not None:
        return
    for row, score in zip(rows, scores, strict=True):
        if score.sound and score.compared == row.trained_tokens:
            try:
                found.control = await control_differs(upstream, facts, row, found.bar)
            except (BadReply, EngineFailed):
                continue
            return


def print_rescored(found: Rescored) -> None:
    """A line for each session, those that differ first, and what it comes to."""
    by_session: dict[str, list[RowScore]] = {}
    for row in found.rows:
        by_session.setdefault(row.session_id, []).append(row)
    lines = sorted((_line(name, rows) for name, rows in by_session.items()), key=lambda line: -line[3])
    columns = ("session", "rows", "tokens compared", "beyond tolerance", "worst difference", "not compared")
    print_table(f"scored again by {found.upstream}, merge rule {found.merge}", columns, lines[:_SHOWN])
    if len(lines) > _SHOWN:
        console.print(f"and {counted(len(lines) - _SHOWN, 'more session')}; --json lists all")
    for reason, count in sorted(_reasons(found.rows).items()):
        console.print(f"not compared: {counted(count, 'trained token')}, {reason}", markup=False)
    console.print(_verdict(found), style="green" if found.sound else "yellow", markup=False)


def _line(name: str, rows: Sequence[RowScore]) -> tuple[str, int, int, int, str | None, int]:
    worst = max((row.worst for row in rows if row.worst is not None), default=None)
    skipped = sum(_reasons(rows).values())
    beyond, compared = sum(row.beyond for row in rows), sum(row.compared for row in rows)
    return name, len(rows), compared, beyond, None if worst is None else f"{worst:.2g}", skipped


def _reasons(rows: Sequence[RowScore]) -> Counter[str]:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.not_compared)
        if row.error is not None:
            total[row.error] += 1
    return total


def _verdict(found: Rescored) -> str:
    beyond, bar = sum(row.beyond for row in found.rows), found.bar.tolerance
    if not found.compared:
        return "nothing could be compared"
    if found.control is False:
        return "with one token changed the engine scores the same: what agrees here proves nothing"
    if not beyond:
        teeth = "" if found.control is None else "; with one token changed it does not agree, as it must be"
        return f"all {found.compared} compared tokens agree within {bar:g}{teeth}"
    return (
        f"{beyond} of {found.compared} compared tokens differ by more than {bar:g}: they were sampled after other tokens or by"
        " other weights than is said, or by constrained decoding (tool_choice, response_format, logit_bias)"
    )

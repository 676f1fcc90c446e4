"""An export from its first session to its last file: whole or not at all, and going on where it was broken off."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from polarproxy import __version__
from polarproxy.batch.sample import FORMAT_VERSION
from polarproxy.export.atomic import check_target, was_killed, whole_file
from polarproxy.export.earlier import others, superseded
from polarproxy.export.format import Context, Reading
from polarproxy.export.plan import Layout, Part, plan
from polarproxy.export.report import encode_report
from polarproxy.export.texts.options import TextOptions
from polarproxy.export.unfinished import Done, Plan, Unfinished, done

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from polarproxy.export.account import Account
    from polarproxy.export.collect import Collection
    from polarproxy.export.crediting import Watch
    from polarproxy.export.format import Format, Taken
    from polarproxy.model import Session


_IN_ONE_GO = "a single file is written in one go; of several (--shards) those that are finished are kept"


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be written, and where."""

    out: Path
    kind: Format
    form: str | None = None
    layout: Layout = field(default_factory=Layout)
    reading: Reading = field(default_factory=Reading)
    texts: TextOptions = field(default_factory=TextOptions)

    @property
    def report(self) -> Path:
        """Where the report lies: beside the files, by the whole name, so that two formats do not share one."""
        return self.out.with_name(f"{self.out.name}.report.json")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was written."""

    account: Account
    files: tuple[Done, ...]
    kept: int = 0
    """How many of the files an earlier export, which was broken off, had finished."""
    anew: str | None = None
    """Why such an export was begun again. None: it was not."""
    deleted: tuple[str, ...] = ()
    """Files of the export before, in whose place these are."""
    beside: tuple[str, ...] = ()
    """Files that are named as if they were shards of this export."""


def run(collection: Collection, job: Job, watch: Watch) -> Outcome:
    """Writes all files and the report beside them.

    Files appear when all are whole. Several files are kept as they are finished, so that the same command goes on when it was
    broken off. Files of the export before to the same name that are none of these are deleted at the end: a trainer that takes
    all shards would take those, too. Raises `BadExport` when a file cannot be written.
    """
    parts = plan(collection.sessions, collection.sizes, job.layout, job.out.name, job.kind.suffix)
    for path in (*(job.out.with_name(part.name) for part in parts), job.report):
        check_target(path)
    if len(parts) == 1:
        (part,) = parts
        sessions = iter(watch(part.sessions, len(part.sessions)))
        path = job.out.with_name(part.name)
        anew = _IN_ONE_GO if was_killed(path) else None
        outcome = Outcome(collection.account, (_write(collection, job, part, path, sessions),), anew=anew)
    else:
        outcome = _run_several(collection, job, parts, watch)
    names = {part.name for part in parts}
    deleted = superseded(job.report, names)
    for path in deleted:
        path.unlink(missing_ok=True)
    write_report(job.report, outcome.account, job.layout, outcome.files)
    beside = others(job.out, job.kind.suffix, names)
    return replace(outcome, deleted=tuple(path.name for path in deleted), beside=tuple(beside))


def write_file(path: Path, kind: Format, sessions: Iterable[Taken], context: Context) -> None:
    """One file, there when it is whole. Raises `BadExport` when it cannot be written."""
    with whole_file(path) as temporary:
        kind.write(temporary, sessions, context)


def write_report(path: Path, account: Account, layout: Layout | None = None, files: Sequence[Done] = ()) -> None:
    """The report as a file of its own."""
    with whole_file(path) as temporary:
        temporary.write_bytes(encode_report(account, layout, files))


def _run_several(collection: Collection, job: Job, parts: list[Part], watch: Watch) -> Outcome:
    unfinished = Unfinished(job.out)
    with unfinished.mine():
        anew = unfinished.begin(_plan(collection, job))
        files = {part.name: unfinished.finished(part.name) for part in parts}
        missing = [part for part in parts if files[part.name] is None]
        sessions = iter(
            watch([one for part in missing for one in part.sessions], sum(len(p.sessions) for p in missing))
        )
        by_id = {session.session_id: session for session in collection.sessions}
        written = []
        for part in parts:
            known = files[part.name]
            if known is None:
                known = _write(collection, job, part, unfinished.folder / part.name, sessions)
                unfinished.add(known)
            else:
                known.count(collection.account, by_id, collection.rollouts)
            written.append(known)
        unfinished.settle([part.name for part in parts])
    return Outcome(collection.account, tuple(written), len(parts) - len(missing), anew)


def _write(collection: Collection, job: Job, part: Part, path: Path, sessions: Iterator[Session]) -> Done:
    """Writes one file of the next of these sessions, and counts it in the account of the whole."""
    account, total = collection.fresh(), collection.account
    taken = (collection.take(session, account) for session in islice(sessions, len(part.sessions)))
    write_file(path, job.kind, taken, Context(account, job.form, job.reading, job.texts))
    total.add(account)
    total.observed += account.observed
    return done(path, part.name, account)


def _plan(collection: Collection, job: Job) -> Plan:
    wanted = (collection.account.options, job.kind.name, job.form, job.layout, job.texts, FORMAT_VERSION)
    return Plan(_digest(wanted), _digest(collection.state()), __version__)


def _digest(value: Any) -> str:
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(value, enc_hook=_spelled, order="sorted"))


def _spelled(value: Any) -> str:
    """A function, by its name; anything else as it shows itself."""
    return f"{value.__module__}:{value.__qualname__}" if callable(value) else repr(value)

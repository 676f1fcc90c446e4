"""`polarproxy db export`, `db import` and `db migrate`: sessions into a file, out of it, or into another database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from polarproxy.cli.opening import Db, Json, database_url
from polarproxy.cli.output import console, errors, print_json, print_table
from polarproxy.cli.upkeep import size_text
from polarproxy.errors import BadArchive, BadSettings
from polarproxy.export.atomic import whole_file
from polarproxy.model.plurals import counted
from polarproxy.store.archiving import chosen_sessions, import_sessions, survey, write_sessions
from polarproxy.store.copying import Copied, Count, Outcome, compare_counts, copy_sessions, copy_shared, total_digest
from polarproxy.store.database import open_database, parse_url, sqlite_file
from polarproxy.store.migrate import upgrade
from polarproxy.store.revisions import require_current

_FAILED = (Outcome.CONFLICT, Outcome.DAMAGED)
_SHOWN = 20


def export_archive(
    out: Annotated[Path, typer.Argument(help="File to write, by custom *.polar.")],
    session: Annotated[list[str] | None, typer.Option(help="A session; may be given several times.")] = None,
    group: Annotated[str | None, typer.Option(help="The sessions of this group.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All sessions.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Write sessions into a portable archive: calls, tokens, logprobs, bodies, facts, rewards, stored responses.

    Example: polarproxy db export run.polar --group math-7
    """
    if bool(session) + (group is not None) + everything != 1:
        raise BadSettings("say which sessions: --session ID (several times), --group NAME, or --all")
    if out.exists() and not force:
        raise BadArchive(f"{out} is there already; --force replaces it")
    engine = open_database(database_url(db))
    try:
        require_current(engine)
        ids = chosen_sessions(engine, group_id=group, ids=session or ())
        with whole_file(out) as temporary:
            for _ in track(
                write_sessions(engine, ids, temporary), "exporting", len(ids), console=errors, disable=_quiet()
            ):
                pass
    finally:
        engine.dispose()
    size = out.stat().st_size
    if as_json:
        print_json({"file": str(out), "sessions": len(ids), "bytes": size})
    else:
        console.print(f"{out} holds {counted(len(ids), 'session')} ({size_text(size)})", markup=False)


def import_archive(
    file: Annotated[Path, typer.Argument(help="An archive made by `polarproxy db export`.")],
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Take the sessions of an archive into a database. What is there already with the same content stays as it is.

    The whole file is checked first. Exit code 1 when a session is there with another content; then nothing is imported.
    """
    engine = open_database(database_url(db))
    try:
        require_current(engine)
        found = survey(engine, file)
        found.require_no_conflict()
        taken = import_sessions(engine, file, found.new)
        for _ in track(taken, "importing", len(found.new), console=errors, disable=_quiet()):
            pass
    finally:
        engine.dispose()
    if as_json:
        print_json({"imported": sorted(found.new), "already_there": found.known})
    else:
        console.print(f"{counted(len(found.new), 'session')} imported, {found.known} there already")


def migrate(
    to: Annotated[str, typer.Option(help="URL of the other database: empty, or left by a run that was broken off.")],
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Copy everything to another database, SQLite or PostgreSQL, and compare what lies there. This one is only read.

    Exit code 1 when something is not the same in both. Stop the proxies first; run it again to go on after a break.

    Example: polarproxy db migrate --to postgresql://polar@db/polar
    """
    url = database_url(db)
    if _same(url, to):
        raise BadSettings("--to names the database that is to be copied")
    source = open_database(url)
    try:
        require_current(source)
        target = open_database(to, create=True)
        try:
            upgrade(target)
            ids = chosen_sessions(source)
            run = copy_sessions(source, target, ids)
            copied = list(track(run, "copying", len(ids), console=errors, disable=_quiet()))
            copy_shared(source, target)
            counts = compare_counts(source, target)
        finally:
            target.dispose()
    finally:
        source.dispose()
    _print_copied(copied, counts, as_json)
    if any(one.outcome in _FAILED for one in copied) or any(count.differs for count in counts):
        raise typer.Exit(1)


def _same(url: str, other: str) -> bool:
    files = sqlite_file(url), sqlite_file(other)
    if files[0] is not None and files[1] is not None:
        return files[0].resolve() == files[1].resolve()
    return parse_url(url) == parse_url(other)


def _quiet() -> bool:
    return not errors.is_terminal


def _print_copied(copied: Sequence[Copied], counts: Sequence[Count], as_json: bool) -> None:
    outcomes = Counter(one.outcome for one in copied)
    failed = [one for one in copied if one.outcome in _FAILED]
    digest = total_digest(copied).hex()
    if as_json:
        print_json(
            {
                "outcomes": {outcome.value: outcomes[outcome] for outcome in Outcome},
                "failed": [{"session_id": one.session_id, "outcome": one.outcome, "why": one.why} for one in failed],
                "rows": [asdict(count) for count in counts],
                "digest": digest,
            }
        )
        return
    rows = [(count.table, count.here, count.there, _difference(count)) for count in counts]
    print_table("rows", ("table", "here", "there", ""), rows)
    if failed:
        shown = [(one.session_id, one.outcome, one.why) for one in failed[:_SHOWN]]
        print_table(f"not the same in both: {counted(len(failed), 'session')}", ("session", "outcome", "why"), shown)
    summary = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) or "no sessions"
    console.print(f"{summary}; digest of what is the same in both: {digest}")


def _difference(count: Count) -> str | None:
    if count.other:
        return f"{count.other} are there with another content"
    return "differs" if count.differs else None

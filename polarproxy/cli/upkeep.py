"""`polarproxy db stats` and `db prune`: how much is stored, and removing what is old."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.progress import Progress

from polarproxy.cli.opening import Db, Json, database_url
from polarproxy.cli.output import console, errors, print_json, print_table
from polarproxy.errors import BadSettings
from polarproxy.model.plurals import counted
from polarproxy.store.database import open_database
from polarproxy.store.prune import Freed, Rule, free_bytes, preview, vacuum
from polarproxy.store.prune import prune as prune_sessions
from polarproxy.store.revisions import require_current
from polarproxy.store.stats import Stats, read_stats

_AGE = re.compile(r"(\d+)([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PREFIXES = ("B", "KiB", "MiB", "GiB", "TiB")


def stats(db: Db = None, as_json: Json = False) -> None:
    """Show what is stored: sessions, calls, tokens, and how few bytes they take."""
    engine = open_database(database_url(db))
    try:
        require_current(engine)
        found = read_stats(engine)
    finally:
        engine.dispose()
    if as_json:
        ratios = (found.positions, found.dedup_ratio, found.token_bytes_per_position, found.database_bytes_per_position)
        names = ("positions", "dedup_ratio", "token_bytes_per_position", "database_bytes_per_position")
        print_json(asdict(found) | dict(zip(names, ratios, strict=True)))
        return
    print_table("store", ("what", "value"), _stats_rows(found))
    if found.table_bytes is not None:
        tables = sorted(found.table_bytes.items(), key=lambda item: -item[1])
        print_table(
            "bytes by table, with indexes", ("table", "size"), [(name, size_text(size)) for name, size in tables]
        )


def _stats_rows(found: Stats) -> list[tuple[str, object]]:
    ratio, tokens, whole = found.dedup_ratio, found.token_bytes_per_position, found.database_bytes_per_position
    return [
        ("sessions (with a reward)", f"{found.sessions} ({found.rewarded_sessions})"),
        ("calls", found.calls),
        ("completions", found.completions),
        ("prompt tokens as sent", found.prompt_tokens),
        ("sampled tokens", found.sampled_tokens),
        ("tokens stored", found.stored_tokens),
        ("tokens sent per token stored", None if ratio is None else f"{ratio:.1f}"),
        ("ids", size_text(found.token_bytes)),
        ("ids, bytes per token sent", None if tokens is None else f"{tokens:.3f}"),
        ("logprobs", size_text(found.logprob_bytes)),
        ("bodies as sent", size_text(found.sent_body_bytes)),
        ("bodies stored", f"{size_text(found.body_bytes)} in {found.bodies}"),
        ("database", size_text(found.database_bytes)),
        ("database, bytes per token sent", None if whole is None else f"{whole:.2f}"),
    ]


def prune(
    older_than: Annotated[str, typer.Option(help="Age without a call or a reward: 90m, 12h, 30d, 8w.")],
    keep_rewarded: Annotated[
        bool, typer.Option("--keep-rewarded", help="Keep every session that has a reward.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    give_back: Annotated[
        bool, typer.Option("--vacuum", help="SQLite: give the space back to the disk; nobody can write meanwhile.")
    ] = False,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Remove old sessions, and what only they used. Prompts of other sessions that build on them are rewritten first.

    Example: polarproxy db prune --older-than 30d --keep-rewarded --dry-run
    """
    rule = Rule(datetime.now(UTC) - _age(older_than), keep_rewarded)
    engine = open_database(database_url(db))
    try:
        require_current(engine)
        expected = preview(engine, rule)
        if dry_run:
            _print_freed(expected, "would be freed", as_json)
            return
        if not yes:
            _ask(expected)
        freed = Freed()
        with Progress(console=errors, disable=not errors.is_terminal) as progress:
            task = progress.add_task("pruning", total=expected.sessions)
            for part in prune_sessions(engine, rule):
                freed += part
                progress.advance(task, part.sessions)
        if give_back:
            vacuum(engine)
        free = free_bytes(engine)
    finally:
        engine.dispose()
    _print_freed(freed, "freed", as_json)
    if free and not as_json:
        console.print(f"{size_text(free)} of the file wait for new calls; --vacuum gives them back to the disk")


def _age(text: str) -> timedelta:
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise BadSettings(f"--older-than must be a number and m, h, d or w, as in 30d; not {text!r}")
    try:
        age = timedelta(**{_UNITS[found[2]]: int(found[1])})
        datetime.now(UTC) - age
    except OverflowError as error:
        raise BadSettings(f"--older-than {text} is before all time") from error
    return age


def _ask(expected: Freed) -> None:
    if not errors.is_terminal:
        raise BadSettings("nothing was removed: say --yes, or --dry-run to see what would go")
    sessions, size = expected.sessions, size_text(expected.bytes)
    typer.confirm(
        f"Remove {counted(sessions, 'session')} with {counted(expected.calls, 'call')}, {size}?", abort=True, err=True
    )


def _print_freed(freed: Freed, title: str, as_json: bool) -> None:
    if as_json:
        print_json(asdict(freed) | {"bytes": freed.bytes})
        return
    rows: list[tuple[str, object]] = [
        ("sessions", freed.sessions),
        ("calls", freed.calls),
        ("sampled tokens", freed.sampled_tokens),
        ("rewards", freed.rewards),
        ("stored responses", freed.responses),
        ("ids and logprobs", size_text(freed.token_bytes)),
        ("responses", size_text(freed.response_bytes)),
        ("bodies", f"{size_text(freed.body_bytes)} in {freed.bodies}"),
        ("prompts of other sessions rewritten", freed.rebased),
    ]
    print_table(title, ("what", "value"), rows)


def size_text(size: float) -> str:
    """Bytes for people."""
    for prefix in _PREFIXES:
        if size < 1024 or prefix == _PREFIXES[-1]:
            return f"{size:.0f} {prefix}" if prefix == "B" else f"{size:.1f} {prefix}"
        size /= 1024
    raise AssertionError

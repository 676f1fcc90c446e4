"""`polarproxy db spool`: what a proxy put aside while its database was away."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress
from sqlalchemy import Engine

from polarproxy.cli.config import load
from polarproxy.cli.lock import only_proxy
from polarproxy.cli.opening import Db, Json
from polarproxy.cli.output import console, errors, print_json, print_table
from polarproxy.cli.upkeep import size_text
from polarproxy.errors import BadSettings, BadSpool
from polarproxy.model.plurals import counted
from polarproxy.store.arrivals import arrivals_of
from polarproxy.store.database import name_of, open_database
from polarproxy.store.draining import Drainer
from polarproxy.store.repository import Repository
from polarproxy.store.revisions import require_current
from polarproxy.store.spool import Spool
from polarproxy.store.spool_files import TORN, spool_folders
from polarproxy.store.spool_opening import open_spool
from polarproxy.store.spool_report import FileReport, report
from polarproxy.store.writer import Writer

app = typer.Typer(
    no_args_is_help=True,
    help="The spool: calls that were acknowledged while the database was away. `serve --spool DIR` drains its own by itself;"
    " these are for a spool whose proxy is gone.",
)
_Folder = Annotated[Path | None, typer.Argument(help="Folder of the spool; default: the `spool` setting.")]
_GIVE_UP_S = 30.0
_AGAIN_S = 0.5
_TIMEOUT_S = 30.0


def _folder(named: Path | None) -> Path:
    if named is not None:
        return named
    setting = load({}, None).spool
    if setting is None:
        raise BadSettings("name the folder of the spool; there is no `spool` setting")
    return Path(setting)


@app.command("list")
def list_files(folder: _Folder = None, as_json: Json = False) -> None:
    """Show what waits in a spool. A running proxy is not disturbed.

    Example: polarproxy db spool list /var/spool/polarproxy
    """
    found = list(report(_folder(folder)))
    if as_json:
        print_json([asdict(one) for one in found])
    elif not found:
        console.print("the spool is empty")
    else:
        print_table("spool", ("file", "size", "sessions", "calls", "facts", "arrived (UTC)", "for"), map(_row, found))


def _row(found: FileReport) -> tuple[object, ...]:
    times = [time for time in (found.first_arrival, found.last_arrival) if time is not None]
    arrived = " to ".join(f"{time:%Y-%m-%d %H:%M:%S}" for time in times) or None
    size = size_text(found.bytes)
    return found.name, size, found.sessions, found.calls, found.facts, arrived, found.database


@app.command()
def verify(folder: _Folder = None, as_json: Json = False) -> None:
    """Read every record of a spool and check it. Exit code 1 when something cannot be read.

    The torn end that a crash left was never acknowledged; it is cut off when a proxy starts, and kept as a .torn file.
    """
    place = _folder(folder)
    found = list(report(place))
    bad = [one for one in found if one.problem is not None or one.unreadable_bytes]
    torn = sorted(path.name for path in place.rglob(f"*{TORN}"))
    if as_json:
        print_json({"files": len(found), "bad": [asdict(one) for one in bad], "torn": torn})
    elif bad:
        rows = [(one.name, one.problem or f"{one.unreadable_bytes} bytes are no whole record") for one in bad]
        print_table(f"not as written: {counted(len(bad), 'file')}", ("file", "what"), rows)
    else:
        records = sum(one.sessions + one.calls + one.facts for one in found)
        console.print(f"{counted(records, 'record')} in {counted(len(found), 'file')} verified, nothing is damaged")
    if torn and not as_json:
        console.print(f"torn ends that were cut off earlier: {', '.join(torn)}", markup=False)
    if bad:
        raise typer.Exit(1)


@app.command()
def drain(
    folder: _Folder = None,
    db: Db = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also store records that were meant for another database (`db spool list`).")
    ] = False,
) -> None:
    """Store what is in a spool, whose proxy must not be running. What the database has already is not stored again.

    Records go only into the database they are for (exit code 2), unless --force says otherwise.
    Exit code 1 when records are left (the database went away, or refuses them: run it again to go on), or when something could
    not be read.
    Example: polarproxy db spool drain /var/spool/polarproxy --db postgresql://polar@db/polar
    """
    settings, place = load({"db": db}, None), _folder(folder)
    if not place.is_dir():
        raise BadSpool(f"there is no spool at {place}")
    engine = open_database(settings.db)
    try:
        require_current(engine)
        with only_proxy(settings):
            all_done = [_drained(one, engine, None if force else name_of(settings.db)) for one in spool_folders(place)]
    finally:
        engine.dispose()
    if not all(all_done):
        raise typer.Exit(1)


def _drained(place: Path, engine: Engine, database: str | None) -> bool:
    """Whether nothing is left; what became of each record is said. `database`: the one they must be for; None: any."""
    spool, writer = open_spool(place, database), Writer(engine)
    try:
        arrivals = arrivals_of(engine, Repository(engine), _TIMEOUT_S, spool)
        for waiting in spool.places():
            arrivals.restore(waiting)
        stored = _drain(spool, Drainer(spool, writer, engine, arrivals.settle))
    finally:
        writer.close()
        spool.close()
    console.print(f"{counted(stored, 'record')} of {place} stored", markup=False)
    for refusal in spool.refused:
        errors.print(f"refused: {refusal.why}", markup=False)
    if len(spool):
        errors.print(
            f"left: {counted(len(spool), 'record')} that the database does not take: {writer.trouble}", markup=False
        )
    if spool.torn:
        errors.print(f"{spool.torn} bytes at the end of {place} are no whole record; see its {TORN} file", markup=False)
    if spool.damaged:
        errors.print(f"{spool.damaged} bytes of {place} are damaged; their files are kept", markup=False)
    return not (len(spool) or spool.refused or spool.torn or spool.damaged)


def _drain(spool: Spool, drainer: Drainer) -> int:
    total = len(spool)
    deadline = time.monotonic() + _GIVE_UP_S
    with Progress(console=errors, transient=True) as progress:
        task = progress.add_task("draining", total=total)
        while len(spool) and time.monotonic() < deadline:
            if drainer.some():
                deadline = time.monotonic() + _GIVE_UP_S
            else:
                time.sleep(_AGAIN_S)
            progress.update(task, completed=total - len(spool))
    return total - len(spool) - len(spool.refused)

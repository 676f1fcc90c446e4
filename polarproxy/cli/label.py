"""`polarproxy calls label`: a person says what a call was for, takes it back, or sees what was said."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from getpass import getuser
from typing import TYPE_CHECKING, Annotated

import typer

from polarproxy.cli.opening import Db, Json, open_repository
from polarproxy.cli.output import print_json, print_table
from polarproxy.cli.recipes import rebuilt
from polarproxy.model import CallKind, Label

if TYPE_CHECKING:
    from polarproxy.store.repository import Repository
    from polarproxy.trajectory.kinds import Verdict


def label(
    call_id: str,
    kind: Annotated[CallKind | None, typer.Option(help="What the call was for; main and subagent are trained.")] = None,
    note: Annotated[str | None, typer.Option(help="Why, for whoever reads it later.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the label back; the evidence decides again.")] = False,
    by: Annotated[str | None, typer.Option(help="Who says so. Default: your user name.")] = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Say what a call was for, where the evidence is wrong; without options, show what it is taken for and why.

    Nothing is overwritten: every label stays with who gave it and when, and the last one counts, in every view and export.

    Example: polarproxy calls label c_01J... --kind title --note "it names the session"
    """
    if undo and kind is not None:
        raise typer.BadParameter("--undo takes a label back, --kind gives one; use one of them")
    if kind is None and not undo and note is not None:
        raise typer.BadParameter("a note belongs to a label; use --kind or --undo with it")
    with open_repository(db) as repository:
        if undo and repository.call(call_id).label is None:
            raise typer.BadParameter(f"call {call_id} has no label to take back")
        if undo or kind is not None:
            repository.add_label(call_id, Label(kind, by or getuser(), datetime.now(UTC), note))
        labels, verdict = repository.call(call_id).labels, _verdict(repository, call_id)
    if as_json:
        print_json({"call_id": call_id, "verdict": asdict(verdict), "labels": [asdict(given) for given in labels]})
        return
    print_table(f"call {call_id}", ("kind", "evidence", "in words"), [(verdict.kind, verdict.source, verdict.sentence)])
    if labels:
        rows = [(f"{given.at:%Y-%m-%d %H:%M:%S}", given.by, given.kind or "taken back", given.note) for given in labels]
        print_table("labels, the last one counts", ("when (UTC)", "by", "label", "note"), rows)


def _verdict(repository: Repository, call_id: str) -> Verdict:
    session_id = repository.call(call_id).call.session_id
    found = rebuilt(repository.session(session_id), repository.calls(session_id))
    return found.judged.verdicts[call_id]

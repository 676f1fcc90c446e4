"""`polarproxy sessions`: what was recorded, by rollout."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from polarproxy.cli.facts import counts_in_words, session_facts
from polarproxy.cli.opening import Db, Json, narrowed, open_repository
from polarproxy.cli.output import console, print_json, print_table
from polarproxy.cli.recipes import rebuilt
from polarproxy.model.plurals import counted

app = typer.Typer(no_args_is_help=True, help="Rollouts as recorded.")


@app.command("list")
def list_sessions(
    limit: Annotated[int, typer.Option(min=0, help="At most this many, newest first; 0 shows all.")] = 50,
    group: Annotated[str | None, typer.Option(help="Only sessions of this group.")] = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """List sessions with their calls, sampled tokens and rewards."""
    with open_repository(db) as repository, narrowed(as_json):
        repository.require_group(group)
        # One more than asked for tells whether there are more.
        found = repository.sessions(limit=limit + 1 if limit else None, group_id=group)
    listed = found[: limit or None]
    if as_json:
        print_json([asdict(entry) for entry in listed])
        return
    columns = ("session", "created (UTC)", "status", "group", "harness", "calls", "sampled", "reward")
    rows = [
        (
            entry.session.session_id,
            f"{entry.session.created_at:%Y-%m-%d %H:%M:%S}",
            entry.session.status,
            entry.session.group_id,
            entry.session.harness,
            entry.calls,
            entry.sampled_tokens,
            entry.session.reward and entry.session.reward.value,
        )
        for entry in listed
    ]
    print_table(f"{counted(len(listed), 'session')}", columns, rows, spare=("harness", "created (UTC)", "status"))
    if len(listed) < len(found):
        console.print("there are older ones; --limit 0 shows all")


@app.command("show")
def show_session(session_id: str, db: Db = None, as_json: Json = False) -> None:
    """Show one session: its facts, its calls, and how much of it is trained."""
    with open_repository(db) as repository:
        session = repository.session(session_id)
        calls = repository.call_summaries(session_id)
        whole = rebuilt(session, repository.calls(session_id))
    judged, trajectory = whole.judged, whole.trajectory
    coverage = {
        "branches": len(trajectory.branches),
        "captured_tokens": trajectory.captured_tokens,
        "trained_tokens": trajectory.trained_tokens,
        "coverage": trajectory.coverage,
        "left_out": trajectory.left_out_by_reason(),
        "kinds": judged.kinds(),
    }
    if as_json:
        listed = [asdict(call) | {"kind": asdict(judged.verdicts[call.call_id])} for call in calls]
        print_json({"session": asdict(session), "calls": listed, "trajectory": coverage})
        return
    spelled = coverage | {"coverage": None if trajectory.coverage is None else f"{trajectory.coverage:.1%}"}
    print_table(f"session {session_id}", ("fact", "value"), [*session_facts(session), *counts_in_words(spelled)])
    columns = ("#", "call", "kind", "status", "prompt", "sampled", "finish", "delivered")
    rows = [
        (
            call.ordinal,
            call.call_id,
            judged.verdicts[call.call_id].kind,
            call.status,
            call.prompt_tokens,
            call.completion_tokens,
            ", ".join(call.finish_reasons) or None,
            "yes" if call.delivered else "no",
        )
        for call in calls
    ]
    print_table(f"{counted(len(calls), 'call')}", columns, rows, spare=("finish",))
    console.print(f"`polarproxy trajectories show {session_id}` shows what is trained, and why")

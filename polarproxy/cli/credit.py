"""`polarproxy credit`: whether the rewards still teach something."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import track
from rich.text import Text

from polarproxy.cli.opening import Db, Json, open_repository
from polarproxy.cli.output import console, errors, print_json, print_table
from polarproxy.cli.plots import write_plots
from polarproxy.cli.recipes import known_recipes
from polarproxy.credit.collapse import Collapse, Observed, observe, observed
from polarproxy.credit.rollouts import of_trajectory, trained_turns
from polarproxy.model.plurals import counted
from polarproxy.trajectory.rebuilt import rebuild

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.model import Session
    from polarproxy.store.repository import Repository
    from polarproxy.trajectory.recipes import Recipe

app = typer.Typer(no_args_is_help=True, help="What the rewards teach, and signs that they do not.")


@app.command("report")
def report(
    group: Annotated[str | None, typer.Option(help="Only sessions of this group.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="The component that says whether the task was done; default: the first one.")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="Also draw PNG files into this folder (extra: plots).")] = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Report spread within groups, components that are dead, saturated or starving, trends, and signs of reward hacking.

    Exit code 1 when no group teaches anything.

    Example: polarproxy credit report --plots plots/
    """
    with open_repository(db) as repository:
        repository.require_group(group)
        sessions = [entry.session for entry in repository.sessions(group_id=group)]
        watched = track(sessions, "reading", console=errors, disable=not errors.is_terminal)
        recipes = known_recipes()
        seen = [_observed(repository, recipes, session) for session in watched]
    found = observe(seen, outcome=outcome)
    files = [] if plots is None else write_plots(plots, found, seen)
    if as_json:
        print_json(asdict(found) | {"flat_groups": found.flat_groups, "files": [str(file) for file in files]})
    else:
        _print(found)
        for file in files:
            console.print(Text(f"drawn: {file}"))
    if found.whole:
        raise typer.Exit(1)


def _observed(repository: Repository, recipes: Sequence[Recipe], session: Session) -> Observed:
    rebuilt = rebuild(session.session_id, repository.calls(session.session_id), recipes, session.harness)
    return observed(of_trajectory(session, rebuilt.trajectory), session.created_at, trained_turns(rebuilt.trajectory))


def _print(found: Collapse) -> None:
    groups = [
        (one.group_id, one.scored, one.unscored, _short(one.mean), _short(one.std), "none" if one.flat else None)
        for one in found.groups
    ]
    print_table(f"{counted(len(groups), 'group')}", ("group", "scored", "unscored", "mean", "std", "spread"), groups)
    components = [
        (
            one.name,
            one.sessions,
            _short(one.mean),
            _short(one.within_group_std),
            _short(one.share),
            ", ".join(one.flags) or None,
        )
        for one in found.components
    ]
    columns = ("component", "sessions", "mean", "std within groups", "share of variance", "flags")
    print_table(f"{counted(len(components), 'component')}", columns, components)
    trends = [
        (one.name, _short(one.first_half), _short(one.second_half), _short(one.correlation), one.verdict)
        for one in found.trends
    ]
    print_table("trends over sessions", ("what", "first half", "second half", "correlation", "it"), trends)
    for sign in found.signs:
        console.print(Text(f"! {sign}", style="yellow"))
    if not found.signs:
        console.print("no sign of collapse or of reward hacking")


def _short(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"

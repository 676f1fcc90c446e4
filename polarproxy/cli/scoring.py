"""Rewards of an export by a specification: `export --reward`, or the `[reward]` table of `polarproxy.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from polarproxy.cli.output import errors
from polarproxy.cli.reward_recompute import append_new, judge_all
from polarproxy.cli.reward_spec import spec_for_export
from polarproxy.errors import BadExport
from polarproxy.model import SessionStatus
from polarproxy.model.plurals import counted
from polarproxy.rollout.judging import Judges

if TYPE_CHECKING:
    from polarproxy.export.options import Options
    from polarproxy.store.repository import Repository

_AT_ONCE = 4
_SHOWN = 5


RewardFile = Annotated[
    Path | None,
    typer.Option(
        "--reward",
        help="Judge the sessions first by the [reward] table of this TOML file, and store what comes out differently. Default:"
        " by the one of polarproxy.toml, if it has one, those that are closed and have no reward.",
        rich_help_panel="Credit",
    ),
]


def score(repository: Repository, file: Path | None, options: Options) -> None:
    """Judges sessions before they are exported, and appends what comes out differently.

    By a file that was named: all that are exported. By `polarproxy.toml`: those that are closed and have no reward, since
    somebody may have said what the others are worth. Says what it did on standard error. Raises `BadExport` when a judge
    failed, and stores nothing then.
    """
    spec = spec_for_export(file)
    if spec is None:
        return
    repository.require_group(options.group_id)
    sessions = [entry.session for entry in repository.sessions(group_id=options.group_id)]
    sessions = sorted(filter(options.where.session, sessions), key=lambda one: one.session_id)
    unscored = [one for one in sessions if one.reward is None]
    closed = [one for one in unscored if one.status is not SessionStatus.OPEN]
    chosen = closed if file is None else sessions
    outcomes = judge_all(repository, Judges(spec), chosen, _AT_ONCE) if chosen else []
    failed = [one for one in outcomes if one.error is not None]
    if failed:
        told = "; ".join(f"session {one.session.session_id}: {one.error}" for one in failed[:_SHOWN])
        raise BadExport(
            f"{counted(len(failed), 'session')} could not be judged, so that nothing was stored or exported: {told}"
        )
    append_new(repository, outcomes)
    _tell(
        sum(one.state == "new" for one in outcomes),
        f"judged by spec {spec.digest}; what came out is stored",
    )
    if file is None:
        others = sum(one.reward is not None and one.reward.spec != spec.digest for one in sessions)
        _tell(
            others,
            "with a reward of another origin than [reward] in polarproxy.toml, which stays; --reward judges again",
        )
        _tell(len(unscored) - len(closed), "still open and not judged; close first, or use --reward")


def _tell(count: int, what: str) -> None:
    if count:
        errors.print(Text(f"{counted(count, 'session')} {what}"))

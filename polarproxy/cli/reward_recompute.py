"""`polarproxy reward recompute`: old sessions, judged again by a specification."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import track
from rich.text import Text

from polarproxy.cli.opening import Db, Json, open_repository
from polarproxy.cli.output import console, errors, print_json, print_table
from polarproxy.cli.reward_spec import SpecFile, load_spec
from polarproxy.cli.transcripts import Transcriber
from polarproxy.errors import BadReward, JudgeFailed
from polarproxy.model.plurals import counted
from polarproxy.rollout.judging import Judges
from polarproxy.rollout.runtimes.folder import sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.model import Reward, Session
    from polarproxy.store.repository import Repository


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the judges said of one session."""

    session: Session
    reward: Reward | None
    error: str | None = None
    """Why a judge failed. None: none did."""

    @property
    def state(self) -> str:
        """`new`, `unchanged`, `nothing to judge`, or `failed`."""
        if self.error is not None:
            return "failed"
        if self.reward is None:
            return "nothing to judge"
        return "unchanged" if self.reward == self.session.reward else "new"


def recompute(
    reward: SpecFile = None,
    session: Annotated[list[str] | None, typer.Option(help="Judge this session; repeatable.")] = None,
    group: Annotated[str | None, typer.Option(help="Judge the sessions of this group.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Judge all sessions.")] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Sessions that are judged at once.")] = 4,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and append nothing.")] = False,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Judge old sessions again, by new weights or other judges, and append the rewards that come out differently.

    Sessions with nothing to judge are left as they are. Exit code 1 when a judge failed on a session; those sessions are
    left as they are, too, and listed.

    Example: polarproxy reward recompute --reward spec.toml --all --dry-run
    """
    if not (session or group is not None or every):
        raise BadReward("say which sessions: --session, --group, or --all")
    spec = load_spec(reward)
    judges = Judges(spec)
    with open_repository(db) as repository:
        outcomes = judge_all(repository, judges, _chosen(repository, session or [], group), concurrency)
        if not dry_run:
            append_new(repository, outcomes)
    _print(outcomes, spec.digest, dry_run=dry_run, as_json=as_json)
    if any(one.error is not None for one in outcomes):
        raise typer.Exit(1)


def judge_all(repository: Repository, judges: Judges, sessions: Sequence[Session], concurrency: int) -> list[Outcome]:
    """What the judges say of these sessions, in their order; nothing is stored."""
    reader = Transcriber(repository)
    sweep()
    with ThreadPoolExecutor(concurrency) as pool:
        run = pool.map(lambda one: _judge(reader, judges, one), sessions)
        return list(track(run, "judging", len(sessions), console=errors, disable=not errors.is_terminal))


def append_new(repository: Repository, outcomes: Sequence[Outcome]) -> None:
    """Stores the rewards that are not those that count already: all of them, or none."""
    new = [(one.session.session_id, one.reward) for one in outcomes if one.state == "new"]
    repository.add_rewards([(name, reward) for name, reward in new if reward is not None])


def _chosen(repository: Repository, ids: Sequence[str], group: str | None) -> list[Session]:
    if ids:
        return [repository.session(session_id) for session_id in ids]
    repository.require_group(group)
    return sorted((entry.session for entry in repository.sessions(group_id=group)), key=lambda one: one.session_id)


def _judge(reader: Transcriber, judges: Judges, session: Session) -> Outcome:
    try:
        return Outcome(session, judges.judge(session, reader.read(session)))
    except JudgeFailed as error:
        return Outcome(session, None, str(error))


def _print(outcomes: Sequence[Outcome], spec: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"spec": spec, "dry_run": dry_run, "sessions": [_as_json(one) for one in outcomes]})
        return
    rows = [
        (
            one.session.session_id,
            one.state,
            one.session.reward and one.session.reward.value,
            one.reward and one.reward.value,
            None if one.reward is None else ", ".join(f"{p.name} {p.value:g}" for p in one.reward.components),
        )
        for one in outcomes
    ]
    print_table(f"{counted(len(rows), 'session')}, spec {spec}", ("session", "state", "was", "is", "components"), rows)
    for one in outcomes:
        if one.error is not None:
            console.print(Text(f"{one.session.session_id}: {one.error}"))
    new = sum(one.state == "new" for one in outcomes)
    console.print(f"{counted(new, 'reward')} {'would be appended' if dry_run else 'appended'}")


def _as_json(one: Outcome) -> dict[str, object]:
    was, found = one.session.reward, one.reward
    return {
        "session_id": one.session.session_id,
        "state": one.state,
        "was": None if was is None else was.value,
        "is": None if found is None else found.value,
        "components": {} if found is None else {part.name: part.value for part in found.components},
        "error": one.error,
    }

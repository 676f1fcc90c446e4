"""The credit of an export's sessions, settled before its first row is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from polarproxy.credit.estimators import SessionCredit, assign, estimator
from polarproxy.credit.groups import form_groups
from polarproxy.credit.rollouts import Rollout, of_session, of_trajectory, trained_turns, turn_key
from polarproxy.errors import Collapsed
from polarproxy.export.narrowing import chosen
from polarproxy.export.options import NO_CREDIT
from polarproxy.model import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.credit.groups import Group
    from polarproxy.credit.transcript import Transcript
    from polarproxy.export.options import Options
    from polarproxy.trajectory.branches import Trajectory

Watch: TypeAlias = Callable[[Iterable[Session], int], Iterable[Session]]
"""Passes sessions on, given how many there are, and shows how far they are."""


Transcribe: TypeAlias = "Callable[[Trajectory], Transcript]"
"""Reads what was said in the trained turns of a trajectory."""


def unwatched(sessions: Iterable[Session], _count: int) -> Iterable[Session]:
    """Shows nothing."""
    return sessions


class Crediting:
    """Which sessions are in the loss, and what their turns are credited with.

    All calls are read once before the first row where an estimator, sub-agents or the lag need to know of turns. Raises
    `Collapsed` when groups teach nothing and the export was to fail then.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        options: Options,
        policy_version: int,
        build: Callable[[Session], Trajectory],
        watch: Watch = unwatched,
        transcribe: Transcribe | None = None,
    ) -> None:
        self._options = options
        self._policy = policy_version
        self._reasons: dict[str, str] = {}
        if needs_turns(options):
            read = transcribe if options.advantage != NO_CREDIT and estimator(options.advantage).needs_code else None
            watched = watch(sessions, len(sessions))
            rollouts = [_rollout(session, build(session), read, options) for session in watched]
        else:
            rollouts = [of_session(session) for session in sessions]
        rollouts = self._fresh(rollouts)
        self.rollouts = {one.session_id: one for one in rollouts}
        """Of the sessions that are not too old."""
        self.groups = form_groups(rollouts)
        self._credit: dict[str, SessionCredit] | None = None
        if options.advantage != NO_CREDIT:
            self._credit, dropped = assign(rollouts, options.advantage, options.credit)
            self._reasons = dropped | self._reasons
        idle = self._idle()
        self.idle_groups = tuple(group.group_id for group in idle)
        """Groups with a reward that teach nothing: every advantage is 0. Without credit: their rewards do not differ."""
        self._settle(idle)

    def of(self, session_id: str) -> SessionCredit | None:
        """The credit of a session that is in the loss. None: no credit was to be computed."""
        return None if self._credit is None else self._credit[session_id]

    def why_not(self, session_id: str) -> str | None:
        """Why a session is not in the loss. None: it is."""
        if session_id in self._reasons:
            return self._reasons[session_id]
        return "no_reward" if self._credit is not None and session_id not in self._credit else None

    def _fresh(self, rollouts: list[Rollout]) -> list[Rollout]:
        """Those that are not too old; a stale one is as if it were not there."""
        if self._options.max_lag is None:
            return rollouts
        oldest = self._policy - self._options.max_lag
        stale = {one.session_id for one in rollouts if one.oldest_version is not None and one.oldest_version < oldest}
        self._reasons |= dict.fromkeys(stale, "stale")
        return [one for one in rollouts if one.session_id not in stale]

    def _idle(self) -> list[Group]:
        credit, scored = self._credit, [group for group in self.groups if group.rollouts]
        if credit is None:
            return [group for group in scored if group.flat]
        taught = {name for name, given in credit.items() if given.teaches}
        return [group for group in scored if taught.isdisjoint(group.session_ids)]

    def _settle(self, idle: Sequence[Group]) -> None:
        if idle and self._options.on_collapse == "fail":
            names = ", ".join(group.group_id for group in idle)
            raise Collapsed(
                f"the advantages of {len(idle)} of {len(self.groups)} groups are all 0, so they teach nothing: {names};"
                " `polarproxy credit report` says more, --on-collapse drop leaves them out"
            )
        if self._options.on_collapse == "drop":
            self._reasons = {name: "flat_group" for group in idle for name in group.session_ids} | self._reasons


def _rollout(session: Session, trajectory: Trajectory, read: Transcribe | None, options: Options) -> Rollout:
    """With the turns that the export is of; they are numbered among all trained ones, as whoever set turn rewards saw them."""
    rollout = of_trajectory(session, trajectory, None if read is None else read(trajectory))
    kept = {turn_key(turn) for turn in trained_turns(chosen(trajectory, options))}
    return replace(rollout, turns=tuple(turn for turn in rollout.turns if turn.key in kept))


def needs_turns(options: Options) -> bool:
    """Whether the turns of all sessions must be known before the first row."""
    by_turns = options.advantage != NO_CREDIT and estimator(options.advantage).needs_turns
    return by_turns or options.max_lag is not None or options.credit.subagents != "share"

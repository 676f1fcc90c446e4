"""From the store to training rows, one session at a time, with the account of everything left out."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from polarproxy.credit.diagnostics import summarise
from polarproxy.credit.versions import reward_version
from polarproxy.errors import BadExport
from polarproxy.export.account import Account, Tally
from polarproxy.export.crediting import Crediting, Transcribe, Watch, unwatched
from polarproxy.export.taking import Taking
from polarproxy.trajectory.merging import MERGES
from polarproxy.trajectory.rebuilt import rebuild

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polarproxy.batch.sample import Sample
    from polarproxy.credit.rollouts import Rollout
    from polarproxy.export.format import Taken
    from polarproxy.export.options import Options
    from polarproxy.model import CapturedCall, Session
    from polarproxy.store.repository import Repository
    from polarproxy.trajectory.branches import Trajectory
    from polarproxy.trajectory.rebuilt import Rebuilt
    from polarproxy.trajectory.recipes import Recipe


class Collection:
    """The rows of an export. `rows()` streams them; `account` is complete afterwards."""

    def __init__(
        self,
        repository: Repository,
        options: Options,
        recipes: Sequence[Recipe] = (),
        watch: Watch = unwatched,
        transcribe: Transcribe | None = None,
        sessions: Sequence[Session] | None = None,
    ) -> None:
        """`sessions`: those that are exported. None: all that the options ask for."""
        self._repository = repository
        self._recipes = recipes
        self._spellings: dict[str | None, dict[int, bytes]] = {}
        if sessions is None:
            repository.require_group(options.group_id)
            repository.require_model(options.model)
        summaries = repository.sessions(group_id=options.group_id) if sessions is None else []
        found = [entry.session for entry in summaries] if sessions is None else list(sessions)
        self.sizes = {entry.session.session_id: entry.calls for entry in summaries}
        """How many calls each session has; of sessions that were given, nobody has counted."""
        self.sessions = sorted(filter(options.where.session, found), key=_place)
        if found and not self.sessions:
            raise BadExport(f"--where leaves nothing: {options.where.nothing(found)}")
        policy = repository.latest_policy_version() if options.policy_version is None else options.policy_version
        self._options = options
        self._crediting = Crediting(self.sessions, options, policy, self._trajectory, watch, transcribe)
        self._empty = Account(
            options=options,
            rewards=summarise(self._crediting.groups),
            reward_version=reward_version(self.sessions),
            policy_version=policy,
            idle_groups=self._crediting.idle_groups,
        )
        self.account = self.fresh()

    def fresh(self) -> Account:
        """An account in which nothing is counted."""
        return replace(self._empty, **{one.name: getattr(Tally(), one.name) for one in fields(Tally)}, observed=[])

    def state(self) -> list[object]:
        """All that the store knows of the sessions, or what changes with it."""
        known = self._repository.fingerprints([session.session_id for session in self.sessions])
        return [self.account.policy_version, *((repr(one), known.get(one.session_id)) for one in self.sessions)]

    @property
    def rollouts(self) -> Mapping[str, Rollout]:
        """By session, those that are not too old."""
        return self._crediting.rollouts

    def rows(self) -> Iterator[Sample]:
        """Every row, by group, session and branch."""
        for session in self.sessions:
            yield from self.session_rows(session)

    def session_rows(self, session: Session) -> list[Sample]:
        """The rows of one session; what is left out of it goes to the account."""
        return list(self.take(session).samples)

    def take(self, session: Session, account: Account | None = None) -> Taken:
        """One session and what is trained of it; what is left out goes to the account, by default the collection's own."""
        calls = self._repository.calls(session.session_id)
        rebuilt = self._rebuilt(session, calls)
        taking = Taking(self._options, self._crediting, self.account if account is None else account)
        return taking.take(session, rebuilt, rebuilt.drifts(self._texts(calls)))

    def _trajectory(self, session: Session) -> Trajectory:
        return self._rebuilt(session, self._repository.calls(session.session_id)).trajectory

    def _rebuilt(self, session: Session, calls: list[CapturedCall]) -> Rebuilt:
        merge = dict(MERGES)[self._options.merge]
        return rebuild(session.session_id, calls, self._recipes, session.harness, merge)

    def _texts(self, calls: list[CapturedCall]) -> Mapping[int, bytes]:
        """The spellings of the tokens that the models of these calls ever sampled."""
        models = {captured.call.served_model for captured in calls} - {None}
        for model in models - self._spellings.keys():
            self._spellings[model] = self._repository.token_texts(model or "")
        return ChainMap(*(self._spellings[model] for model in models))


def _place(session: Session) -> tuple[str, str]:
    return (session.group_id or "", session.session_id)

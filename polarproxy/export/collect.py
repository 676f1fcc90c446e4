"""From the store to training rows, one session at a time, with the account of everything left out."""

from __future__ import annotations

from collections import ChainMap, Counter
from typing import TYPE_CHECKING

from polarproxy.batch.sample import MIXED_MODELS, Sample, build_samples
from polarproxy.credit.collapse import observed
from polarproxy.credit.diagnostics import summarise
from polarproxy.credit.rollouts import of_trajectory, trained_turns, turn_key
from polarproxy.credit.versions import reward_version
from polarproxy.errors import BadExport
from polarproxy.export.account import Account
from polarproxy.export.crediting import Crediting, Transcribe, Watch, unwatched
from polarproxy.export.format import Taken
from polarproxy.export.narrowing import keeping, models_of, of_branches, of_model
from polarproxy.model import CallKind
from polarproxy.trajectory.branches import trajectory_of
from polarproxy.trajectory.drift import by_class
from polarproxy.trajectory.eligibility import Reason
from polarproxy.trajectory.merging import MERGES
from polarproxy.trajectory.prompting import count_prompts
from polarproxy.trajectory.rebuilt import rebuild

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polarproxy.credit.estimators import SessionCredit
    from polarproxy.export.options import Options
    from polarproxy.model import CapturedCall, Session
    from polarproxy.store.repository import Repository
    from polarproxy.trajectory.branches import Trajectory
    from polarproxy.trajectory.forest import Forest
    from polarproxy.trajectory.integrity_session import SessionIntegrity
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
    ) -> None:
        self._repository = repository
        self._recipes = recipes
        self._spellings: dict[str | None, dict[int, bytes]] = {}
        summaries = repository.sessions(group_id=options.group_id)
        self.sessions = sorted((entry.session for entry in summaries), key=_place)
        if options.group_id is not None and not self.sessions:
            raise BadExport(
                f"no session has the group {options.group_id!r}; `polarproxy sessions list` shows the groups"
            )
        policy = repository.latest_policy_version() if options.policy_version is None else options.policy_version
        self._options = options
        self._crediting = Crediting(self.sessions, options, policy, self._trajectory, watch, transcribe)
        summary = summarise(self._crediting.groups)
        self.account = Account(options, summary, reward_version(self.sessions), policy)
        self.account.idle_groups = self._crediting.idle_groups

    def rows(self) -> Iterator[Sample]:
        """Every row, by group, session and branch."""
        for session in self.sessions:
            yield from self.session_rows(session)

    def session_rows(self, session: Session) -> list[Sample]:
        """The rows of one session; what is left out of it goes to the account."""
        return list(self.take(session).samples)

    def take(self, session: Session) -> Taken:
        """One session and what is trained of it; what is left out goes to the account."""
        calls = self._repository.calls(session.session_id)
        rebuilt = self._rebuilt(session, calls)
        integrity = rebuilt.integrity()
        trajectory = of_model(rebuilt.trajectory, self._options.model)
        self._count_session(rebuilt, trajectory, calls, integrity)
        self._observe(session, trajectory)
        kept = self._trained(session, trajectory, rebuilt.forest, integrity)
        if isinstance(kept, str):
            self.account.left_out_sessions[kept] += 1
            return Taken(session, rebuilt, None, (), kept)
        self._count_turn_rewards(session, rebuilt.trajectory)
        credit = self._crediting.of(session.session_id)
        kept = self._without_subagents(kept, credit)
        samples = build_samples(kept, session, credit, self._options.weighting)
        for sample in samples:
            self._count(sample)
        self.account.off_context_tokens += sum(branch.off_context_tokens for branch in kept.branches)
        return Taken(session, rebuilt, kept, tuple(samples))

    def _trained(
        self, session: Session, trajectory: Trajectory, forest: Forest, integrity: SessionIntegrity
    ) -> Trajectory | str:
        """What can be trained of a session, or why nothing can."""
        if not trajectory.branches:
            return "nothing_trainable"
        reason = self._crediting.why_not(session.session_id)
        if reason is not None:
            return reason
        if self._options.strict:
            trajectory = self._without_refused(trajectory, forest, integrity)
            if not trajectory.branches:
                return "refused"
        least = self._options.min_coverage
        if least is not None and (trajectory.coverage or 0.0) < least:
            return "low_coverage"
        return trajectory

    def _count_session(
        self, rebuilt: Rebuilt, trajectory: Trajectory, calls: list[CapturedCall], integrity: SessionIntegrity
    ) -> None:
        account, whole = self.account, rebuilt.trajectory
        account.sessions += 1
        account.calls += len(calls)
        prompts = count_prompts(calls)
        if prompts.calls:
            account.prompts[whole.session_id] = prompts
        account.kinds.update(rebuilt.judged.kinds())
        account.captured_tokens += trajectory.captured_tokens
        account.left_out_calls.update(trajectory.left_out_by_reason())
        account.drifts.update(by_class(rebuilt.drifts(self._texts(calls))))
        others = len(trained_turns(whole)) - len(trained_turns(trajectory))
        # Adding counters leaves zeros out: a report names only what happened.
        account.left_out_turns += Counter({"other_model": others})
        account.findings.update(finding.code.value for finding in integrity.findings)

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

    def _without_refused(self, trajectory: Trajectory, forest: Forest, integrity: SessionIntegrity) -> Trajectory:
        """Without the turns that contradict themselves, and without rows of several models.

        The rows are made again: what a refused turn stood beside is trained all the same, there or in another row.
        """
        account, before = self.account, len(trained_turns(trajectory))
        for branch in trajectory.branches:
            codes = integrity.refused(branch)
            account.refused_rows.update(code.value for code in codes)
            account.refused += bool(codes)
        if not integrity.sound:
            merge = dict(MERGES)[self._options.merge]
            again = trajectory_of(trajectory.session_id, forest, merge, integrity.wrong)
            trajectory = of_model(again, self._options.model)
        sound = len(trained_turns(trajectory))
        kept = of_branches(trajectory, (branch for branch in trajectory.branches if len(models_of(branch)) < 2))
        mixed = len(trajectory.branches) - len(kept.branches)
        # Adding counters leaves zeros out: a report names only what happened.
        account.left_out_calls += Counter({Reason.REFUSED.value: before - sound})
        account.left_out_turns += Counter({MIXED_MODELS: sound - len(trained_turns(kept))})
        account.refused_rows += Counter({MIXED_MODELS: mixed})
        account.refused += mixed
        return kept

    def _observe(self, session: Session, trajectory: Trajectory) -> None:
        rollout = self._crediting.rollouts.get(session.session_id)
        if rollout is not None:
            self.account.observed.append(observed(rollout, session.created_at, trained_turns(trajectory)))

    def _without_subagents(self, trajectory: Trajectory, credit: SessionCredit | None) -> Trajectory:
        """Without the turns that the credit does not train; where none was computed, as the options say of sub-agents."""
        if credit is not None:
            kept = keeping(trajectory, lambda turn: credit.of(turn_key(turn)) is not None)
        elif self._options.credit.subagents == "exclude":
            kept = keeping(trajectory, lambda turn: turn.node.captured.kind is not CallKind.SUBAGENT)
        else:
            return trajectory
        left_out = len(trained_turns(trajectory)) - len(trained_turns(kept))
        self.account.left_out_turns += Counter({"subagent": left_out})
        return kept

    def _count_turn_rewards(self, session: Session, trajectory: Trajectory) -> None:
        if session.reward is not None and session.reward.turns:
            unmatched = len(of_trajectory(session, trajectory).unmatched)
            self.account.warnings += Counter({"turn_reward_of_no_trained_turn": unmatched})

    def _count(self, sample: Sample) -> None:
        account = self.account
        account.rows += 1
        account.tokens += len(sample.token_ids)
        account.trained_tokens += sample.trained_tokens
        account.warnings.update(sample.warnings)
        account.unfaithful_rows += not sample.faithful
        account.models["several" if MIXED_MODELS in sample.warnings else sample.model or "unknown"] += 1
        account.lags[account.policy_version - int(sample.policy_versions[sample.loss_mask == 1].min())] += 1


def _place(session: Session) -> tuple[str, str]:
    return (session.group_id or "", session.session_id)

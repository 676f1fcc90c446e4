"""One session of an export: what of it is trained, as rows, with the account of what is not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.batch.cutting import cut
from polarproxy.batch.sample import MIXED_MODELS, Sample, build_samples
from polarproxy.credit.collapse import observed
from polarproxy.credit.rollouts import of_trajectory, trained_turns, turn_key
from polarproxy.export.format import Taken
from polarproxy.export.narrowing import chosen, keeping, models_of, of_model, of_one_model_each
from polarproxy.model import CallKind
from polarproxy.trajectory.branches import Trajectory, trajectory_of
from polarproxy.trajectory.drift import by_class
from polarproxy.trajectory.eligibility import Reason
from polarproxy.trajectory.merging import MERGES
from polarproxy.trajectory.prompting import count_prompts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.credit.estimators import SessionCredit
    from polarproxy.export.account import Account
    from polarproxy.export.crediting import Crediting
    from polarproxy.export.options import Options
    from polarproxy.model import Session
    from polarproxy.trajectory.drift import Drift
    from polarproxy.trajectory.integrity_session import SessionIntegrity
    from polarproxy.trajectory.rebuilt import Rebuilt


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Of a session nothing is trained."""

    reason: str
    tokens: int = 0
    """Sampled tokens that are lost for it, beside those that have a reason of their own."""


@dataclass(frozen=True, slots=True)
class Taking:
    """Makes rows of sessions by the options and the credit of an export, and counts in an account."""

    options: Options
    crediting: Crediting
    account: Account

    def take(self, session: Session, rebuilt: Rebuilt, drifts: Sequence[Drift]) -> Taken:
        """One session and what is trained of it."""
        integrity = rebuilt.integrity()
        trajectory = chosen(rebuilt.trajectory, self.options)
        self._count_session(rebuilt, trajectory, integrity)
        self.account.drifts.update(by_class(drifts))
        self._observe(session, trajectory)
        kept = self._trained(session, trajectory, rebuilt, integrity)
        if not isinstance(kept, Trajectory):
            self.account.left_out_sessions[kept.reason] += 1
            self._lose(kept.reason, kept.tokens)
            return Taken(session, rebuilt, None, (), kept.reason)
        self._count_turn_rewards(session, rebuilt.trajectory)
        credit = self.crediting.of(session.session_id)
        kept = self._without_subagents(kept, credit)
        samples = self._cut(build_samples(kept, session, credit, self.options.weighting))
        for sample in samples:
            self._count(sample)
        self.account.off_context_tokens += sum(branch.off_context_tokens for branch in kept.branches)
        return Taken(session, rebuilt, kept, samples)

    def _trained(
        self, session: Session, trajectory: Trajectory, rebuilt: Rebuilt, integrity: SessionIntegrity
    ) -> Trajectory | _Nothing:
        """What can be trained of a session, or why nothing can."""
        if not trajectory.branches:
            return _Nothing("nothing_trainable")
        reason = self.crediting.why_not(session.session_id)
        if reason is None and not self.options.where.reward(session):
            reason = "where"
        if reason is not None:
            return _Nothing(reason, trajectory.trained_tokens)
        if self.options.strict:
            trajectory = self._without_refused(trajectory, rebuilt, integrity)
            if not trajectory.branches:
                return _Nothing("refused")
        least = self.options.min_coverage
        if least is not None and (trajectory.coverage or 0.0) < least:
            return _Nothing("low_coverage", trajectory.trained_tokens)
        return trajectory

    def _cut(self, samples: list[Sample]) -> tuple[Sample, ...]:
        if self.options.max_tokens is None:
            return tuple(samples)
        left, account = cut(samples, self.options.max_tokens), self.account
        account.cut_rows += left.rows
        account.cut_tokens += left.tokens
        account.cut_trained_tokens += left.trained_tokens
        self._lose("cut", left.trained_tokens)
        account.untrained_rows += left.untrained_rows
        return left.samples

    def _count_session(self, rebuilt: Rebuilt, trajectory: Trajectory, integrity: SessionIntegrity) -> None:
        account, whole, calls = self.account, rebuilt.trajectory, rebuilt.judged.calls
        account.sessions += 1
        account.calls += len(calls)
        prompts = count_prompts(calls)
        if prompts.calls:
            account.prompts[whole.session_id] = prompts
        account.kinds.update(rebuilt.judged.kinds())
        account.captured_tokens += trajectory.captured_tokens
        account.left_out_calls.update(trajectory.left_out_by_reason())
        for entry in whole.left_out:
            self._lose(entry.reason.value, entry.tokens)
        ours = of_model(whole, self.options.model)
        self._without("other_model", whole, ours)
        self._without("where", ours, trajectory)
        account.findings.update(finding.code.value for finding in integrity.findings)

    def _without_refused(self, trajectory: Trajectory, rebuilt: Rebuilt, integrity: SessionIntegrity) -> Trajectory:
        """Without the turns that contradict themselves, and without those of a second model in one row.

        The rows are made again: what a refused turn stood beside is trained all the same, there or in another row.
        """
        account, before = self.account, trajectory
        for branch in trajectory.branches:
            codes = integrity.refused(branch)
            account.refused_rows.update(code.value for code in codes)
            account.refused += bool(codes)
        if not integrity.sound:
            merge = dict(MERGES)[self.options.merge]
            again = trajectory_of(trajectory.session_id, rebuilt.forest, merge, integrity.wrong)
            trajectory = chosen(again, self.options)
        refused = len(trained_turns(before)) - len(trained_turns(trajectory))
        # Adding counters leaves zeros out: a report names only what happened.
        account.left_out_calls += Counter({Reason.REFUSED.value: refused})
        self._lose(Reason.REFUSED.value, before.trained_tokens - trajectory.trained_tokens)
        mixed = sum(len(models_of(branch)) > 1 for branch in trajectory.branches)
        kept = of_one_model_each(trajectory)
        self._without(MIXED_MODELS, trajectory, kept)
        account.refused_rows += Counter({MIXED_MODELS: mixed})
        return kept

    def _observe(self, session: Session, trajectory: Trajectory) -> None:
        rollout = self.crediting.rollouts.get(session.session_id)
        if rollout is not None:
            self.account.observed.append(observed(rollout, session.created_at, trained_turns(trajectory)))

    def _without_subagents(self, trajectory: Trajectory, credit: SessionCredit | None) -> Trajectory:
        """Without the turns that the credit does not train; where none was computed, as the options say of sub-agents."""
        if credit is not None:
            kept = keeping(trajectory, lambda turn: credit.of(turn_key(turn)) is not None)
        elif self.options.credit.subagents == "exclude":
            kept = keeping(trajectory, lambda turn: turn.node.captured.kind is not CallKind.SUBAGENT)
        else:
            return trajectory
        self._without("subagent", trajectory, kept)
        return kept

    def _without(self, reason: str, before: Trajectory, after: Trajectory) -> None:
        """Counts the turns, and their tokens, that are trained in the one and not in the other."""
        left_out = len(trained_turns(before)) - len(trained_turns(after))
        self.account.left_out_turns += Counter({reason: left_out})
        self._lose(reason, before.trained_tokens - after.trained_tokens)

    def _lose(self, reason: str, tokens: int) -> None:
        self.account.left_out_tokens += Counter({reason: tokens})

    def _count_turn_rewards(self, session: Session, trajectory: Trajectory) -> None:
        if session.reward is not None and session.reward.turns:
            rollout = of_trajectory(session, trajectory)
            self.account.warnings += Counter({"turn_reward_of_no_trained_turn": len(rollout.unmatched)})
            self.account.warnings += Counter({"turn_reward_of_several_choices": len(rollout.ambiguous)})

    def _count(self, sample: Sample) -> None:
        account = self.account
        account.rows += 1
        account.tokens += len(sample.token_ids)
        account.trained_tokens += sample.trained_tokens
        account.warnings.update(sample.warnings)
        account.unfaithful_rows += not sample.faithful
        account.models["several" if MIXED_MODELS in sample.warnings else sample.model or "unknown"] += 1
        account.lags[account.policy_version - int(sample.policy_versions[sample.loss_mask == 1].min())] += 1

"""From the store to training rows, one session at a time, with the account of everything left out."""

from __future__ import annotations

from collections import ChainMap, Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from polarproxy.batch.sample import MIXED_MODELS, Sample, Weighting, build_samples
from polarproxy.credit.collapse import Collapse, Observed, observe, observed
from polarproxy.credit.diagnostics import RewardSummary, summarise
from polarproxy.credit.estimators import CreditOptions
from polarproxy.credit.rollouts import of_trajectory, trained_turns, turn_key
from polarproxy.credit.versions import RewardVersion, reward_version
from polarproxy.errors import BadExport
from polarproxy.export.crediting import ADVANTAGES, Crediting, Transcribe, Watch, unwatched
from polarproxy.export.narrowing import keeping, models_of, of_branches, of_model
from polarproxy.model import CallKind
from polarproxy.trajectory.branches import trajectory_of
from polarproxy.trajectory.drift import by_class
from polarproxy.trajectory.eligibility import Reason
from polarproxy.trajectory.merging import MERGES
from polarproxy.trajectory.prompting import PromptCount, count_prompts
from polarproxy.trajectory.rebuilt import rebuild

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polarproxy.credit.estimators import SessionCredit
    from polarproxy.model import CapturedCall, Session
    from polarproxy.store.repository import Repository
    from polarproxy.trajectory.branches import Trajectory
    from polarproxy.trajectory.forest import Forest
    from polarproxy.trajectory.integrity_session import SessionIntegrity
    from polarproxy.trajectory.rebuilt import Rebuilt
    from polarproxy.trajectory.recipes import Recipe

OnCollapse: TypeAlias = Literal["keep", "drop", "fail"]


@dataclass(frozen=True, slots=True)
class Options:
    """What to export."""

    advantage: str = "grpo"
    """An estimator's name, or `none`: rows without credit, also of sessions without a reward."""
    weighting: Weighting = "per_session"
    group_id: str | None = None
    """Only sessions of this group. None: all."""
    merge: str = MERGES[0][0]
    """The name of the rule that makes rows of calls."""
    strict: bool = True
    """Whether turns with an error are refused: left out, whatever else stands in their rows."""
    min_coverage: float | None = None
    """Sessions of which a smaller part of the sampled tokens can be trained are refused. None: none is."""
    credit: CreditOptions = field(default_factory=CreditOptions)
    on_collapse: OnCollapse = "keep"
    """What becomes of groups whose rewards do not differ: kept with advantage 0, left out, or no export at all."""
    policy_version: int | None = None
    """The weights that are to be trained. None: the latest that the store knows."""
    max_lag: int | None = None
    """Sessions sampled by weights more than so many versions before are out of the loss and of the baseline. None: none."""
    model: str | None = None
    """The model, as the engine calls it, whose tokens are trained; others' are context. None: those of all."""

    def __post_init__(self) -> None:
        if self.max_lag is not None and self.max_lag < 0:
            raise BadExport(f"a lag is counted from 0; --max-lag cannot be {self.max_lag}")
        if self.min_coverage is not None and not 0 <= self.min_coverage <= 1:
            raise BadExport(f"coverage lies between 0 and 1; {self.min_coverage} does not")
        if self.merge not in dict(MERGES):
            raise BadExport(f"there is no merge rule {self.merge!r}; choose one of {', '.join(dict(MERGES))}")
        if self.advantage not in ADVANTAGES:
            raise BadExport(f"there is no advantage {self.advantage!r}; choose one of {', '.join(ADVANTAGES)}")


@dataclass(slots=True)
class Account:
    """What an export holds, and what it does not; complete when all rows have been taken."""

    options: Options
    rewards: RewardSummary
    reward_version: RewardVersion
    policy_version: int = 0
    """The weights that are to be trained."""
    sessions: int = 0
    calls: int = 0
    rows: int = 0
    tokens: int = 0
    captured_tokens: int = 0
    trained_tokens: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Calls by what they were for."""
    left_out_calls: Counter[str] = field(default_factory=Counter)
    """Completions or whole calls, by reason."""
    left_out_sessions: Counter[str] = field(default_factory=Counter)
    left_out_turns: Counter[str] = field(default_factory=Counter)
    """Turns that could be trained and are not, by reason."""
    lags: Counter[int] = field(default_factory=Counter)
    """Rows, by how many versions before their oldest trained turn was sampled."""
    drifts: Counter[str] = field(default_factory=Counter)
    """Calls that repeat an earlier one in other tokens, by class."""
    unfaithful_rows: int = 0
    """Rows with trained tokens that were sampled in another context; only `stitch` makes such."""
    off_context_tokens: int = 0
    """How many such tokens."""
    refused_rows: Counter[str] = field(default_factory=Counter)
    """Rows of which a strict export refused turns, by what was wrong; a row may have several reasons."""
    refused: int = 0
    """How many rows would hold turns that were refused."""
    models: Counter[str] = field(default_factory=Counter)
    """Rows by the model that sampled what they train; `several` where more than one did."""
    findings: Counter[str] = field(default_factory=Counter)
    """What was found in the calls of all sessions, by code."""
    prompts: dict[str, PromptCount] = field(default_factory=dict)
    """What became of exact prompts, by session; sessions without any are not in it."""
    observed: list[Observed] = field(default_factory=list)
    """The sessions that are not too old."""
    warnings: Counter[str] = field(default_factory=Counter)
    """Rows with something a trainer should know, by what."""

    idle_groups: tuple[str, ...] = ()
    """Groups that teach nothing: every advantage is 0."""

    @property
    def collapse(self) -> Collapse:
        """What the rewards teach, and signs that they do not."""
        return observe(self.observed, idle=self.idle_groups)

    @property
    def coverage(self) -> float | None:
        """Trained / captured sampled tokens. None: nothing was sampled."""
        return self.trained_tokens / self.captured_tokens if self.captured_tokens else None

    @property
    def all_prompts(self) -> PromptCount:
        """What became of the exact prompts of all sessions."""
        total = PromptCount()
        for count in self.prompts.values():
            total.add(count)
        return total


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
        account = self.account
        calls = self._repository.calls(session.session_id)
        rebuilt = self._rebuilt(session, calls)
        whole, integrity = rebuilt.trajectory, rebuilt.integrity()
        trajectory = of_model(whole, account.options.model)
        account.sessions += 1
        account.calls += len(calls)
        prompts = count_prompts(calls)
        if prompts.calls:
            account.prompts[session.session_id] = prompts
        account.kinds.update(rebuilt.judged.kinds())
        account.captured_tokens += trajectory.captured_tokens
        account.left_out_calls.update(trajectory.left_out_by_reason())
        account.drifts.update(by_class(rebuilt.drifts(self._texts(calls))))
        others = len(trained_turns(whole)) - len(trained_turns(trajectory))
        # Adding counters leaves zeros out: a report names only what happened.
        account.left_out_turns += Counter({"other_model": others})
        account.findings.update(finding.code.value for finding in integrity.findings)
        self._observe(session, trajectory)
        reason = self._why_not(session, trajectory)
        if reason is not None:
            account.left_out_sessions[reason] += 1
            return []
        if account.options.strict:
            trajectory = self._without_refused(trajectory, rebuilt.forest, integrity)
            if not trajectory.branches:
                account.left_out_sessions["refused"] += 1
                return []
        least = account.options.min_coverage
        if least is not None and (trajectory.coverage or 0.0) < least:
            account.left_out_sessions["low_coverage"] += 1
            return []
        self._count_turn_rewards(session, whole)
        credit = self._crediting.of(session.session_id)
        trajectory = self._without_subagents(trajectory, credit)
        samples = build_samples(trajectory, session, credit, account.options.weighting)
        for sample in samples:
            self._count(sample)
        account.off_context_tokens += sum(branch.off_context_tokens for branch in trajectory.branches)
        return samples

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

    def _why_not(self, session: Session, trajectory: Trajectory) -> str | None:
        if not trajectory.branches:
            return "nothing_trainable"
        return self._crediting.why_not(session.session_id)

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

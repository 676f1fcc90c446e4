"""The integrity of a session: its calls, the proof of its branches, its weights, and what is left out of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.model import TOKEN_BYTES, CallKind
from polarproxy.model.plurals import counted
from polarproxy.trajectory.integrity import Code, Finding, Severity, check_calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from polarproxy.trajectory.branches import Branch, Trajectory
    from polarproxy.trajectory.kinds import Judged


@dataclass(frozen=True, slots=True)
class Versions:
    """Which weights sampled what is trained."""

    first: int
    last: int
    turns: int
    """Trained turns."""
    changed_in_mid_call: int
    """Those during which the weights changed."""

    def lag(self, version: int) -> int:
        """By how many versions the oldest trained turn is behind this one."""
        return version - self.first


@dataclass(frozen=True, slots=True)
class SessionIntegrity:
    """All that was found in a session."""

    session_id: str
    calls: int
    rows: int
    findings: tuple[Finding, ...]
    errors: tuple[Finding, ...]
    """Those of the findings that are errors."""
    captured_tokens: int
    trained_tokens: int
    coverage: float | None
    """Trained / captured sampled tokens. None: nothing was sampled."""
    left_out: dict[str, int]
    """Completions or whole calls, by reason."""
    kinds: dict[str, int]
    """Calls, by what they were for."""
    versions: Versions | None
    """None: nothing is trained."""

    def counts(self, severity: Severity) -> dict[str, int]:
        """How many findings of this severity, by code."""
        found = (finding.code.value for finding in self.findings if finding.severity is severity)
        return dict(sorted(Counter(found).items()))

    @property
    def sound(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    @property
    def wrong(self) -> frozenset[tuple[str, int | None]]:
        """What the errors are about: a call and a choice of it. None: the whole call."""
        return frozenset((finding.call_id, finding.choice) for finding in self.errors)

    def refused(self, branch: Branch) -> tuple[Code, ...]:
        """The errors in what a branch trains, each code once; empty for a row that a strict export leaves as it is."""
        trained: set[tuple[str, int | None]] = set()
        for turn in branch.turns:
            if turn.trained:
                call_id = turn.node.captured.call.call_id
                trained |= {(call_id, None), (call_id, turn.node.completion.index)}
        return tuple(sorted({finding.code for finding in self.errors if (finding.call_id, finding.choice) in trained}))


def check_session(judged: Judged, trajectory: Trajectory, besides: Iterable[Finding] = ()) -> SessionIntegrity:
    """Every check of a session's calls, and of the trajectory that was made of them, with what was found `besides`."""
    findings = [*check_calls(judged.calls), *_kinds(judged), *_branches(trajectory), *besides]
    return SessionIntegrity(
        session_id=trajectory.session_id,
        calls=len(judged.calls),
        rows=len(trajectory.branches),
        findings=tuple(findings),
        errors=tuple(finding for finding in findings if finding.severity is Severity.ERROR),
        captured_tokens=trajectory.captured_tokens,
        trained_tokens=trajectory.trained_tokens,
        coverage=trajectory.coverage,
        left_out=trajectory.left_out_by_reason(),
        kinds=judged.kinds(),
        versions=_versions(trajectory),
    )


def _kinds(judged: Judged) -> Iterator[Finding]:
    for call_id, verdict in judged.verdicts.items():
        if verdict.kind is CallKind.UNKNOWN:
            yield Finding(Code.KIND_UNKNOWN, call_id, verdict.sentence)


def _branches(trajectory: Trajectory) -> Iterator[Finding]:
    seen: set[tuple[str, int]] = set()
    for branch in trajectory.branches:
        yield from _prefixes(branch)
        for turn in branch.turns:
            key = (turn.node.captured.call.call_id, turn.node.completion.index)
            if turn.trained and key in seen:
                yield Finding(Code.TRAINED_TWICE, key[0], f"also trained in row {branch.index}", key[1])
            if turn.trained:
                seen.add(key)
        yield from _mixed(branch)


def _mixed(branch: Branch) -> Iterator[Finding]:
    """Whether no one policy sampled what a row trains."""
    trained = [turn.node.captured.call for turn in branch.turns if turn.trained]
    call_id = branch.turns[-1].node.captured.call.call_id
    versions = {call.policy_version_min for call in trained}
    if len(versions) > 1:
        said = f"row {branch.index} holds tokens of weights {min(versions)} to {max(versions)}"
        yield Finding(Code.MIXED_VERSIONS, call_id, said)
    models = {call.served_model for call in trained if call.served_model is not None}
    if len(models) > 1:
        yield Finding(Code.MIXED_MODELS, call_id, f"row {branch.index} holds tokens of {', '.join(sorted(models))}")


def _prefixes(branch: Branch) -> Iterator[Finding]:
    """Each trained turn stands in its row after exactly what the engine conditioned on, and is what it sampled."""
    for turn in branch.turns:
        if not turn.trained:
            continue
        call_id, choice = turn.node.captured.call.call_id, turn.node.completion.index
        whole = branch.token_ids.raw
        start, stop = TOKEN_BYTES * turn.start, TOKEN_BYTES * turn.stop
        if turn.off_context:
            said = f"row {branch.index} trains {counted(turn.stop - turn.start, 'token')} in another context than their own"
            yield Finding(Code.UNFAITHFUL, call_id, said, choice)
        elif whole[:start] != turn.node.prompt.raw:
            yield Finding(Code.PREFIX_BROKEN, call_id, f"row {branch.index} has another context before it", choice)
        if whole[start:stop] != turn.node.completion.token_ids.raw:
            yield Finding(Code.PREFIX_BROKEN, call_id, f"row {branch.index} holds other tokens in its place", choice)


def _versions(trajectory: Trajectory) -> Versions | None:
    trained = [turn.node.captured.call for branch in trajectory.branches for turn in branch.turns if turn.trained]
    if not trained:
        return None
    return Versions(
        first=min(call.policy_version_min for call in trained),
        last=max(call.policy_version_max for call in trained),
        turns=len(trained),
        changed_in_mid_call=sum(call.policy_version_min < call.policy_version_max for call in trained),
    )

"""What a session of a real coding agent rebuilds into, in few words that hold whichever of two parallel calls came first."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from polarproxy.cli.recipes import known_recipes
from polarproxy.model import CallStatus, CapturedCall
from polarproxy.trajectory.eligibility import TRAINED_KINDS
from polarproxy.trajectory.integrity import Severity
from polarproxy.trajectory.rebuilt import Rebuilt, rebuild
from polarproxy.trajectory.repeats import CUT


@dataclass(frozen=True)
class Story:
    kinds: Mapping[str, int]
    """Calls, by what they were for."""
    left_out: Mapping[str, int]
    """By reason."""
    spawned_in: tuple[int | None, ...] = ()
    """For each sub-agent, the ordinal of the call that made it. None: it hangs under the session."""


def tell_story(calls: Iterable[CapturedCall]) -> Story:
    """Checks what holds of every session: all finished work is trained, once, and nothing contradicts itself."""
    rebuilt = rebuild("rollout-1", calls, known_recipes())
    _check(rebuilt)
    ordinals = {captured.call.call_id: captured.call.ordinal for captured in rebuilt.judged.calls}
    subagents = [agent for agent in rebuilt.agents() if agent.is_subagent]
    return Story(
        rebuilt.judged.kinds(),
        rebuilt.trajectory.left_out_by_reason(),
        tuple(None if agent.spawned_by is None else ordinals[agent.spawned_by] for agent in subagents),
    )


def _check(rebuilt: Rebuilt) -> None:
    work = [captured.call for captured in rebuilt.judged.calls if captured.kind in TRAINED_KINDS]
    finished = [call.call_id for call in work if call.status is CallStatus.COMPLETED]
    turns = [turn for branch in rebuilt.trajectory.branches for turn in branch.turns if turn.trained]
    trained = Counter(turn.node.captured.call.call_id for turn in turns)
    assert set(trained.values()) == {1}
    assert set(finished) <= set(trained)
    # What broke off is trained where all of it stands in the history, and nowhere else.
    broken = {call.call_id for call in work if call.status in CUT}
    assert set(trained) - set(finished) <= broken
    integrity = rebuilt.integrity()
    assert integrity.counts(Severity.ERROR) == {}
    assert {"kind_unknown", "lineage_disagrees"}.isdisjoint(integrity.counts(Severity.WARNING))

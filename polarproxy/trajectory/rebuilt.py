"""All that is made of a session's calls, in one value: kinds, forest, rows, repeats, agents, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.trajectory.agents import Agent, check_agents, find_agents
from polarproxy.trajectory.branches import Trajectory, prefix_merging, trajectory_of
from polarproxy.trajectory.drift import Drift, find_drifts
from polarproxy.trajectory.forest import Forest, build_forest
from polarproxy.trajectory.integrity_session import SessionIntegrity, check_session
from polarproxy.trajectory.kinds import Judged, judge
from polarproxy.trajectory.repeats import Repeat, find_repeats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polarproxy.model import CapturedCall
    from polarproxy.trajectory.branches import Merge
    from polarproxy.trajectory.recipes import Recipe


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A session, rebuilt from its calls."""

    judged: Judged
    forest: Forest
    trajectory: Trajectory

    def repeats(self) -> list[Repeat]:
        """Calls that ask again what an earlier one asked."""
        return find_repeats(self.forest)

    def agents(self) -> tuple[Agent, ...]:
        """The agents of the session, by their first call."""
        return find_agents(self.judged, self.forest)

    def drifts(self, texts: Mapping[int, bytes]) -> tuple[Drift, ...]:
        """Calls that repeat an earlier one in other tokens. `texts`: the bytes of token ids, as far as they are known."""
        return find_drifts(self.forest, texts)

    def integrity(self) -> SessionIntegrity:
        """What is wrong or doubtful."""
        return check_session(self.judged, self.trajectory, check_agents(self.agents(), self.forest))


def rebuild(
    session_id: str,
    calls: Iterable[CapturedCall],
    recipes: Sequence[Recipe] = (),
    harness: str | None = None,
    merge: Merge = prefix_merging,
) -> Rebuilt:
    """A session from its calls; raises `InvalidValue` when they are not those of one session."""
    judged = judge(calls, recipes, harness)
    forest = build_forest(judged.calls)
    return Rebuilt(judged, forest, trajectory_of(session_id, forest, merge))

"""Turns that could be trained and are not to be: they stay in their rows as context."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polarproxy.export.options import Options
    from polarproxy.trajectory.branches import Branch, Trajectory, Turn


def keeping(trajectory: Trajectory, kept: Callable[[Turn], bool]) -> Trajectory:
    """The trajectory with only those turns trained that are kept; branches that then train nothing are gone."""
    branches = (
        replace(branch, turns=tuple(replace(turn, trained=False) if not kept(turn) else turn for turn in branch.turns))
        for branch in trajectory.branches
    )
    return of_branches(trajectory, (branch for branch in branches if branch.trained_tokens))


def of_branches(trajectory: Trajectory, branches: Iterable[Branch]) -> Trajectory:
    """The trajectory with only these branches."""
    left = tuple(branches)
    return replace(trajectory, branches=left, trained_tokens=sum(branch.trained_tokens for branch in left))


def of_model(trajectory: Trajectory, model: str | None) -> Trajectory:
    """The trajectory with only the turns trained that this model sampled. None: those of all models."""
    if model is None:
        return trajectory
    return keeping(trajectory, lambda turn: turn.node.captured.call.served_model == model)


def chosen(trajectory: Trajectory, options: Options) -> Trajectory:
    """The trajectory with only the turns trained that the export is of, by their model and by its terms."""
    trajectory = of_model(trajectory, options.model)
    return keeping(trajectory, options.where.turn) if options.where.of_turns else trajectory


def models_of(branch: Branch) -> set[str]:
    """The models that are known to have sampled what a branch trains."""
    return {
        turn.node.captured.call.served_model
        for turn in branch.turns
        if turn.trained and turn.node.captured.call.served_model is not None
    }

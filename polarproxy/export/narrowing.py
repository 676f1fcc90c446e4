"""Turns that could be trained and are not to be: they stay in their rows as context."""

from __future__ import annotations

from collections import Counter
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


def of_one_model_each(trajectory: Trajectory) -> Trajectory:
    """The trajectory with the turns of one model trained in each branch: of its models the one that sampled most of what
    the session trains. The others' turns are context there, and trained in a later branch of their own model that holds
    them. Turns whose model is not known stay."""
    sampled = _sampled_by_model(trajectory)
    waiting: set[int] = set()
    branches = []
    for branch in trajectory.branches:
        own = max(models_of(branch), key=lambda model: (sampled[model], model), default=None)
        turns = []
        for turn in branch.turns:
            model, node = turn.node.captured.call.served_model, id(turn.node)
            wanted = turn.trained or node in waiting
            trained = wanted and model in (own, None)
            waiting = waiting - {node} if trained else waiting | ({node} if turn.trained else set())
            turns.append(turn if trained == turn.trained else replace(turn, trained=trained))
        branches.append(replace(branch, turns=tuple(turns)))
    return of_branches(trajectory, branches)


def _sampled_by_model(trajectory: Trajectory) -> Counter[str]:
    """How many trained tokens are of each model that is known."""
    sampled: Counter[str] = Counter()
    for branch in trajectory.branches:
        for turn in branch.turns:
            model = turn.node.captured.call.served_model
            if turn.trained and model is not None:
                sampled[model] += len(turn.node.completion.token_ids)
    return sampled


def models_of(branch: Branch) -> set[str]:
    """The models that are known to have sampled what a branch trains."""
    return {
        turn.node.captured.call.served_model
        for turn in branch.turns
        if turn.trained and turn.node.captured.call.served_model is not None
    }

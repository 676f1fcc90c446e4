"""From what was asked for, and what a rollout left behind, to its reward."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from polarproxy.errors import InvalidValue, JudgeFailed, RuntimeFailed
from polarproxy.model import ComponentKind, Reward, RewardComponent, SessionStatus
from polarproxy.rollout.evaluators.asked import Function, Program, SessionCompleted, TestMap, Tests
from polarproxy.rollout.evaluators.evidence import Tampered
from polarproxy.rollout.evaluators.program import judge_by_program
from polarproxy.rollout.evaluators.testing import judge_test_map, judge_tests
from polarproxy.rollout.judging import as_judgement, find_function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.rollout.evaluators.asked import Asked
    from polarproxy.rollout.evaluators.evidence import Evidence


async def evaluate(asked: Sequence[Asked], evidence: Evidence) -> Reward | None:
    """The reward of a rollout. None: there is no evaluator, or one of them found nothing to judge.

    With several, it is the sum of their rewards by weight, and their components begin with their names. Raises `JudgeFailed`
    when one did not do its work.
    """
    rewards = [(one, await _judge(one, evidence)) for one in asked]
    found = [(one, reward) for one, reward in rewards if reward is not None]
    if not found or len(found) < len(rewards):
        return None
    try:
        if len(found) == 1:
            one, reward = found[0]
            return replace(reward, value=one.weight * reward.value).require_trainable()
        return _sum(found).require_trainable()
    except InvalidValue as error:
        raise JudgeFailed(str(error)) from error


def _sum(found: Sequence[tuple[Asked, Reward]]) -> Reward:
    parts = [
        part
        for one, reward in found
        for part in (
            RewardComponent(one.title, reward.value),
            *(RewardComponent(f"{one.title}/{own.name}", own.value, ComponentKind.METRIC) for own in reward.components),
        )
    ]
    turns = tuple(turn for _, reward in found for turn in reward.turns)
    return Reward(sum(one.weight * reward.value for one, reward in found), tuple(parts), turns)


async def _judge(asked: Asked, evidence: Evidence) -> Reward | None:
    try:
        match asked:
            case SessionCompleted():
                done = float(evidence.session.status is SessionStatus.COMPLETED)
                return Reward(done, (RewardComponent("completed", done),))
            case Tests():
                return await judge_tests(asked, evidence)
            case TestMap():
                return await judge_test_map(asked, evidence)
            case Program():
                return await judge_by_program(asked, evidence)
            case Function():
                return await _by_function(asked, evidence)
    except Tampered:
        return Reward(0.0, (RewardComponent("passed", 0.0), RewardComponent("tampered", 1.0, ComponentKind.METRIC)))
    except (RuntimeFailed, FileNotFoundError) as error:
        raise JudgeFailed(f"{asked.title}: {error}") from error


async def _by_function(asked: Function, evidence: Evidence) -> Reward | None:
    function = find_function(asked.function)

    def ask() -> Reward | None:
        judgement = as_judgement(function(evidence.session, evidence.read(evidence.session), **asked.options))
        if judgement.value is None:
            return None
        return Reward(judgement.value, tuple(RewardComponent(name, own) for name, own in judgement.parts.items()))

    try:
        return await asyncio.to_thread(ask)
    except JudgeFailed as error:
        raise JudgeFailed(f"{asked.title}: {error}") from error
    # Anything may come out of somebody else's function, and one rollout must not end the others.
    except (Exception, SystemExit) as error:
        raise JudgeFailed(f"{asked.title}: {asked.function} raised {type(error).__name__}: {error}") from error

"""A reward as people and reward handlers write it: Nova Forge's form, with rewards of single turns beside it."""

from __future__ import annotations

import msgspec

from polarproxy.errors import BadReward, InvalidValue
from polarproxy.model import ComponentKind, Reward, RewardComponent, TurnReward


class GivenMetric(msgspec.Struct, forbid_unknown_fields=True):
    """One entry of `metrics_list`."""

    name: str
    value: float
    type: ComponentKind = ComponentKind.METRIC


class GivenTurn(msgspec.Struct, forbid_unknown_fields=True):
    """One entry of `turn_rewards`."""

    value: float
    call_id: str | None = None
    turn: int | None = None


class GivenReward(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `POST /api/sessions/{id}/rewards`, and the reward in a line of `reward import`."""

    id: str | None = None
    """The handler's own name for what it judged."""
    aggregate_reward_score: float | None = None
    aggregate_score: float | None = None
    metrics_list: list[GivenMetric] = []
    turn_rewards: list[GivenTurn] = []

    def reward(self) -> Reward:
        """The reward that is meant; raises `BadReward` when there is no total, two, or a number that is none."""
        totals = {self.aggregate_reward_score, self.aggregate_score} - {None}
        if not totals:
            raise BadReward("the reward has neither aggregate_reward_score nor aggregate_score")
        if len(totals) > 1:
            raise BadReward(
                f"aggregate_reward_score is {self.aggregate_reward_score} and aggregate_score is {self.aggregate_score};"
                " give one of them"
            )
        try:
            return Reward(
                totals.pop() or 0.0,
                tuple(RewardComponent(part.name, part.value, part.type) for part in self.metrics_list),
                tuple(TurnReward(turn.value, turn.call_id, turn.turn) for turn in self.turn_rewards),
            ).require_trainable()
        except InvalidValue as error:
            raise BadReward(str(error)) from error

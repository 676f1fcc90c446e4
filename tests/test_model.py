"""The nouns refuse to be built wrong, and hold exactly the bytes they were given."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.errors import InvalidValue
from polarproxy.model import ComponentKind, Logprobs, Reward, RewardComponent, Session, TokenIds, TurnReward
from polarproxy.model.plurals import counted
from tests.trajectory.build import Said, call

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=8)


@given(IDS)
def test_token_ids_are_little_endian_int32(ids: list[int]) -> None:
    tokens = TokenIds.of(ids)
    assert tokens.raw == b"".join(token.to_bytes(4, "little") for token in ids)
    assert list(tokens) == ids
    assert len(tokens) == len(ids)
    assert tokens.array.dtype == np.int32
    assert not tokens.array.flags.writeable


@given(IDS, IDS, st.integers(0, 8), st.integers(0, 8))
def test_token_ids_behave_like_lists(left: list[int], right: list[int], start: int, stop: int) -> None:
    tokens = TokenIds.of(left)
    assert list(tokens + TokenIds.of(right)) == left + right
    assert list(tokens.cut(start, stop)) == left[start:stop]
    assert list(tokens.cut(start)) == left[start:]
    assert tokens.startswith(TokenIds.of(right)) == (left[: len(right)] == right)
    assert (tokens + TokenIds.of(right)).startswith(tokens)


@pytest.mark.parametrize("ids", [[-1], [2**31], [2**64], [None], ["x"]], ids=str)
def test_what_is_no_token_id_is_refused(ids: list[Any]) -> None:
    with pytest.raises(InvalidValue, match="token ids must"):
        TokenIds.of(ids)


def test_bytes_that_are_no_whole_tokens_are_refused() -> None:
    with pytest.raises(InvalidValue, match="5 bytes is not a multiple of 4"):
        TokenIds(b"12345")
    with pytest.raises(InvalidValue, match="7 bytes is not a multiple of 4"):
        Logprobs(b"1234567")


def test_a_missing_logprob_is_nan_and_never_zero() -> None:
    values = list(Logprobs.of([-0.5, None, -9999.0]))
    assert values[0] == -0.5
    assert np.isnan(values[1])
    assert values[2] == -9999.0


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_logprobs_keep_every_bit_of_a_float32(values: list[float]) -> None:
    logprobs = Logprobs.of(values)
    assert list(logprobs) == values
    assert len(logprobs) == len(values)


def test_a_call_has_one_completion_an_index() -> None:
    with pytest.raises(InvalidValue, match=r"call s-c0: two completions share an index \(\[0, 0\]\)"):
        call(0, [1], Said([2]), Said([3]))


def test_a_call_needs_a_place_in_its_session() -> None:
    with pytest.raises(InvalidValue, match="ordinal -1 is negative"):
        call(-1, [1], Said([2]))


def test_policy_versions_do_not_run_backwards() -> None:
    with pytest.raises(InvalidValue, match="policy version 3 at its start is later than 2"):
        call(0, [1], Said([2]), policy_versions=(3, 2))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_is_a_finite_number(value: float) -> None:
    with pytest.raises(InvalidValue, match="a reward is a finite number"):
        Reward(value)
    with pytest.raises(InvalidValue, match=r"style is .*; a reward is a finite number"):
        Reward(0.0, (RewardComponent("style", value),))


def test_no_reward_is_not_a_reward_of_zero() -> None:
    session = Session("s", datetime(2026, 1, 1, tzinfo=UTC))
    assert session.reward is None
    assert session.reward != Reward(0.0)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.floats(2.0**128 - 2.0**104, 2.0**128))
def test_what_can_be_trained_by_is_a_finite_float32(value: float) -> None:
    with np.errstate(over="ignore"):
        fits = bool(np.isfinite(np.float32(value)))
    for reward in (
        Reward(value),
        Reward(0.0, (RewardComponent("style", value),)),
        Reward(0.0, (RewardComponent("style", value, ComponentKind.PENALTY),)),
        Reward(0.0, (), (TurnReward(value, turn=0),)),
    ):
        if fits:
            assert reward.require_trainable() is reward
        else:
            with pytest.raises(InvalidValue, match="too large"):
                reward.require_trainable()
    watched = Reward(0.0, (RewardComponent("ns", value, ComponentKind.METRIC),))
    assert watched.require_trainable() is watched


@pytest.mark.parametrize(("number", "text"), [(0, "0 calls"), (1, "1 call"), (2, "2 calls")])
def test_one_of_a_thing_is_not_several(number: int, text: str) -> None:
    assert counted(number, "call") == text
    assert counted(number, "batch", "batches") == f"{number} {'batch' if number == 1 else 'batches'}"

"""What a trainer would misread is refused, by name."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from polarproxy.batch.sample import MIXED_SAMPLING, Sample
from polarproxy.errors import BadExport
from polarproxy.export.trainers.areal import to_areal
from polarproxy.export.trainers.nemo_gym import to_nemo_gym
from polarproxy.export.trainers.nemo_rl import to_nemo_rl
from polarproxy.export.trainers.openrlhf import to_openrlhf
from polarproxy.export.trainers.prime_rl import to_prime_rl
from polarproxy.export.trainers.skyrl import to_skyrl
from polarproxy.export.trainers.slime import to_slime
from polarproxy.export.trainers.tinker import to_tinker
from polarproxy.export.trainers.trl import Replay, to_trl
from polarproxy.export.trainers.verl import to_verl_rows
from tests.export.trainers.example import ROWS, TWO_TURNS
from tests.export.trainers.rows import sample


def test_prime_rl_needs_a_temperature_that_it_can_divide_by() -> None:
    unknown = replace(TWO_TURNS, temperature=None)
    assert next(to_prime_rl([unknown])).temperatures == [1.0] * 7
    for wrong, what in (
        (replace(unknown, warnings=(MIXED_SAMPLING,)), "several"),
        (replace(TWO_TURNS, temperature=0.0), "0"),
    ):
        with pytest.raises(BadExport, match=f"session a was sampled at .*{what}"):
            list(to_prime_rl([wrong]))


def test_trl_is_told_what_does_not_fit() -> None:
    replay = Replay(to_trl(ROWS))
    with pytest.raises(BadExport, match="'g' was asked for 2 times; set num_generations to 3"):
        replay(["g", "g"], None)
    with pytest.raises(BadExport, match="no rows of 'x'"):
        replay(["x"], None)
    with pytest.raises(BadExport, match="no rows to replay"):
        Replay([])


WITHOUT: list[tuple[Sample, str]] = [
    (sample([([1], "trained", [-1], 0, 0)]), "no prompt"),
    (sample([([1, 2], "context", [0, 0], 0, 0)]), "no token"),
    (sample([([1], "context", [0], 0, 0), ([2], "trained", [float("nan")], 0, 0)]), "not known"),
    (sample([([1], "context", [0], 0, 0), ([2], "trained", [float("-inf")], 0, 0)]), "not known"),
]


EVERY: tuple[Callable[[list[Sample]], Iterable[object]], ...] = (
    to_verl_rows,
    to_trl,
    to_slime,
    to_prime_rl,
    to_nemo_rl,
    to_nemo_gym,
    to_tinker,
    to_openrlhf,
    to_skyrl,
    to_areal,
)


@pytest.mark.parametrize(("row", "what"), WITHOUT)
def test_rows_that_no_trainer_can_use_are_named(row: Sample, what: str) -> None:
    for to in EVERY:
        with pytest.raises(BadExport, match=f"branch 0 of session s .*{what}"):
            list(to([row]))


def test_a_row_without_a_reward_is_refused_where_it_would_become_0() -> None:
    row = sample([([1], "context", [0], 0, 0), ([2], "trained", [-1], 0, 0)], reward=None, credit=False)
    for to, trainer in ((to_skyrl, "skyrl"), (to_areal, "areal")):
        with pytest.raises(BadExport, match=f"session s has no reward, and {trainer}"):
            list(to([row]))
    assert "reward" not in to_slime([row])[0]
    assert "rewards" not in to_openrlhf([row])[0]
    assert next(to_trl([row]))["reward"] is None

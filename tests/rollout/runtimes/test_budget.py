"""A budget's time passes while something runs and nothing holds it, and at no other time."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.rollout.runtimes import budget as module
from polarproxy.rollout.runtimes.budget import Budget


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.sampled_from(["run", "end", "hold", "release"]), st.integers(1, 9)), max_size=30))
def test_time_counts_while_something_runs_and_nothing_holds(steps: list[tuple[str, int]]) -> None:
    clock, expected = Clock(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        budget = Budget(1000)
        running, held = [budget.running() for _ in steps], [budget.held() for _ in steps]
        runs = holds = ended = released = 0
        for step, seconds in steps:
            if step == "run":
                running[runs].__enter__()
                runs += 1
            elif step == "hold":
                held[holds].__enter__()
                holds += 1
            elif step == "end" and ended < runs:
                running[ended].__exit__(None, None, None)
                ended += 1
            elif step == "release" and released < holds:
                held[released].__exit__(None, None, None)
                released += 1
            clock.now += seconds
            expected += seconds if runs > ended and holds == released else 0
        assert budget.used == expected
        assert budget.left == 1000 - expected


async def test_it_is_spent_only_when_its_time_has_passed() -> None:
    budget = Budget(0.05)
    spent = asyncio.ensure_future(budget.spent())
    await asyncio.sleep(0.1)
    assert not spent.done()
    with budget.held(), budget.running():
        await asyncio.sleep(0.1)
        assert not spent.done()
    assert budget.used == 0
    with budget.running():
        await asyncio.wait_for(spent, 10)
    assert budget.left == 0
    await asyncio.wait_for(budget.spent(), 10)


async def test_what_is_left_never_grows() -> None:
    budget = Budget(10)
    seen = [budget.left]
    with budget.running():
        for _ in range(5):
            await asyncio.sleep(0.001)
            seen.append(budget.left)
    assert all(later < earlier for earlier, later in pairwise(seen[1:]))

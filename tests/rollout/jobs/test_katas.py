"""The katas themselves: every right solution passes its tests, and every wrong one fails."""

import pytest

from tests.rollout.jobs.katas import KATAS, Kata


def run(one: Kata, right: bool) -> bool:
    names: dict[str, object] = {}
    exec(one.source(right), names)
    for given, wanted in one.cases:
        try:
            found = eval(f"{one.name}({given})", names)
        except (IndexError, ValueError, RecursionError):
            return False
        if found != eval(wanted):
            return False
    return True


def test_there_are_twenty() -> None:
    assert len({one.name for one in KATAS}) == 20
    assert {sum(one.expected(n) for n in range(4)) for one in KATAS} == {2, 3, 4}


@pytest.mark.parametrize("one", KATAS, ids=lambda one: one.name)
def test_right_and_wrong(one: Kata) -> None:
    assert run(one, right=True)
    assert not run(one, right=False)

"""Which result answers which call, against the plain way of searching a list, and for many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polarproxy.wire.gemini.calls import Calls

GIVEN = st.sampled_from(("", "", "a", "b", "call_0", "call_1"))
NAME = st.sampled_from(("run", "read"))
STEPS = st.lists(st.tuples(st.sampled_from(("call", "result", "turn")), GIVEN, NAME), max_size=20)


class Searching:
    """The same rules, spelled out over a list."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.open: list[tuple[str, str, bool]] = []
        self.calls = self.orphans = 0

    def call(self, given: str, name: str) -> str:
        own = given or f"call_{self.calls}"
        self.calls += 1
        self.known.add(own)
        self.open.append((own, name, not given))
        return own

    def result(self, given: str, name: str) -> tuple[str, bool]:
        if given in self.known:
            self.open = [each for each in self.open if each[0] != given]
            return given, True
        fitting = [each for each in self.open if each[1] == name and (each[2] or not given)]
        if fitting:
            self.open.remove(fitting[0])
            return fitting[0][0], True
        self.orphans += not given
        return given or f"orphan_{self.orphans - 1}", False


@given(STEPS)
def test_results_find_their_calls(steps: list[tuple[str, str, str]]) -> None:
    calls, plain = Calls(), Searching()
    for step, own, name in steps:
        match step:
            case "call":
                assert calls.call(own, name) == plain.call(own, name)
            case "result":
                assert calls.result(own, name) == plain.result(own, name)
            case _:
                calls.new_turn()
                plain.open = []


def test_many_calls_and_results() -> None:
    calls = Calls()
    ids = [calls.call(f"c{place}" if place % 2 else "", "run") for place in range(50_000)]
    answered = [calls.result(own if own.startswith("c") and own[1].isdigit() else "", "run") for own in ids]
    assert all(found for _, found in answered)
    assert calls.result("", "run") == ("orphan_0", False)

"""The worked examples of docs/reference/credit.md, each computed again."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from polarproxy.credit.estimators import ESTIMATORS, CreditOptions, assign
from polarproxy.credit.rollouts import Rollout, RolloutTurn
from polarproxy.model import RewardComponent
from tests.credit.build import rollout

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "credit.md"
TOLERANCE = 6e-5
"""The page gives four places."""
_CODE = re.compile(r"(.*)\{(.*)\}")


def examples() -> list[tuple[str, str, str, str]]:
    """Estimator, options, groups and advantages of each line of the table behind the marker."""
    _, _, rest = PAGE.read_text().partition("<!-- worked-examples -->\n")
    lines = [line for line in rest.partition("\n\n")[0].splitlines()[2:] if line.startswith("|")]
    cells = [[cell.strip().strip("`").replace("−", "-") for cell in line.strip("|").split("|")] for line in lines]
    return [(row[0], row[1], row[2], row[3]) for row in cells]


def session(text: str, name: str, group: str) -> Rollout:
    """A session as the page writes it."""
    text, cut = text.rstrip("!"), text.endswith("!")
    code = ""
    if found := _CODE.fullmatch(text):
        text, code = found[1], found[2]
    turn = RolloutTurn((name, 0), 10, 0, code=code)
    text, _, size = text.partition("@")
    if size:
        turn = replace(turn, tokens=int(size))
    if "=" in text:
        parts = (pair.split("=") for pair in text.split("&"))
        components = tuple(RewardComponent(key, float(value)) for key, value in parts)
        return Rollout(name, group, 1.0, components, (turn,))
    if "," in text:
        turns = [replace(turn, key=(name, place), reward=float(one)) for place, one in enumerate(text.split(","))]
        return rollout(name, 0.0, *turns, group_id=group)
    text, _, count = text.partition("x")
    turns = [replace(turn, key=(name, place)) for place in range(int(count or 1))]
    return rollout(name, None if text == "none" else float(text), *turns, group_id=group, cut=cut)


def options(text: str) -> CreditOptions:
    given: dict[str, Any] = {}
    for name, value in (pair.split("=") for pair in text.split()):
        kind = int if name.startswith("overlong_") else type(getattr(CreditOptions(), name))
        given[name] = kind(value)
    return CreditOptions(**given)


@pytest.mark.parametrize(("name", "told", "groups", "expected"), examples())
def test_a_line(name: str, told: str, groups: str, expected: str) -> None:
    rollouts = [
        session(text, f"s{place}-{number}", f"g{place}")
        for place, group in enumerate(groups.split(";"))
        for number, text in enumerate(group.split())
    ]
    found, _ = assign(rollouts, name, options(told))
    wanted = expected.replace(";", " ").split()
    assert len(wanted) == len(rollouts)
    for one, text in zip(rollouts, wanted, strict=True):
        if text == "–":
            assert one.session_id not in found
            continue
        own = [found[one.session_id].of(turn.key) for turn in one.turns]
        values = [float(value) for value in text.split(",")]
        assert own == pytest.approx(values * (len(own) // len(values)), abs=TOLERANCE)


def test_every_estimator_has_an_example() -> None:
    assert {name for name, *_ in examples()} == {known.name for known in ESTIMATORS}


@pytest.mark.parametrize("text", ["1x2", "0,1", "a=1&b=0", "0{ls}", "1@20", "0!", "none"])
def test_sessions_are_read_as_the_page_says(text: str) -> None:
    made = session(text, "s", "g")
    assert {
        "1x2": len(made.turns) == 2 and made.reward == 1,
        "0,1": [turn.reward for turn in made.turns] == [0, 1],
        "a=1&b=0": made.reward_components == {"a": 1, "b": 0},
        "0{ls}": made.turns[0].code == "ls" and made.reward == 0,
        "1@20": made.sampled_tokens == 20,
        "0!": made.cut and made.reward == 0,
        "none": made.reward is None,
    }[text]

"""How much there is to learn: spread within groups, and groups that teach nothing."""

from dataclasses import replace

import pytest

from polarproxy.credit.diagnostics import RewardSummary, summarise
from polarproxy.credit.groups import Group
from tests.credit.build import group


def test_a_summary() -> None:
    groups = [
        group(1.0, 1.0, group_id="easy"),
        replace(group(1.0, 0.0, group_id="fair"), unscored=("e",)),
        group(0.5, group_id="alone"),
    ]
    summary = summarise(groups)
    assert (summary.groups, summary.scored_sessions, summary.unscored_sessions) == (3, 5, 1)
    assert summary.flat_groups == ("easy", "alone")
    assert summary.mean == pytest.approx(0.7)
    assert summary.within_group_std == pytest.approx(0.5**0.5 / 2)


def test_of_nothing_nothing_is_known() -> None:
    assert summarise([]) == RewardSummary(0, 0, 0, (), None, None)
    assert summarise([Group("g", (), ("a",))]) == RewardSummary(1, 0, 1, ("g",), None, None)

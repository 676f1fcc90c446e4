"""`--where` in an export: what is out of the baseline, what is only out of the rows, and what becomes context."""

import pytest

from polarproxy.errors import BadExport
from polarproxy.export.collect import Collection
from polarproxy.export.options import Options
from polarproxy.export.where import read_where
from polarproxy.model import Reward, Session
from polarproxy.store.repository import Repository
from tests.export.exported import Fill
from tests.trajectory.build import WHEN, Said, call


def test_sessions_that_are_filtered_by_reward_stay_in_the_baseline(store: Repository) -> None:
    everyone = {row.session_id: row for row in Collection(store, Options()).rows()}
    collection = Collection(store, Options(where=read_where(["reward>0.5"])))
    winners = list(collection.rows())
    assert [row.session_id for row in winners] == ["s1", "s3", "s5", "s7"]
    for row in winners:
        assert row.advantages is not None
        assert row.advantages.tolist() == everyone[row.session_id].advantages.tolist()  # type: ignore[union-attr]
    assert collection.account.left_out_sessions == {"where": 4}


def test_sessions_that_are_filtered_by_name_are_in_no_baseline(store: Repository) -> None:
    collection = Collection(store, Options(where=read_where(["session!=s0"])))
    rows = {row.session_id: row for row in collection.rows()}
    assert (len(rows), collection.account.sessions) == (7, 7)
    assert rows["s1"].advantages is not None
    assert not rows["s1"].advantages.any()


def test_turns_that_are_filtered_are_context(store: Repository, fill: Fill) -> None:
    turns = [call(0, [1], Said([2]), policy_versions=(2, 2)), call(1, [1, 2, 3], Said([4, 5]), policy_versions=(3, 3))]
    fill(Session("new", WHEN, group_id="new"), turns, Reward(1.0))
    collection = Collection(store, Options(where=read_where(["version>=3", "group=new"])))
    (row,) = collection.rows()
    assert (row.token_ids.tolist(), row.loss_mask.tolist()) == ([1, 2, 3, 4, 5], [0, 0, 0, 1, 1])
    assert collection.account.left_out_turns == {"where": 1}


def test_a_filter_that_leaves_nothing_is_wrong_use(store: Repository) -> None:
    with pytest.raises(BadExport, match="no session has the task tt; did you mean t"):
        Collection(store, Options(where=read_where(["task=tt"])))

"""Which sessions go to which file: nothing twice, nothing lost, no group and no task in two parts."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.credit.rollouts import group_of
from polarproxy.errors import BadExport
from polarproxy.export.plan import Layout, Part, Split, plan, read_splits
from polarproxy.model import Session
from tests.trajectory.build import WHEN

HALVES = read_splits("train=0.5,val=0.5")


def session(name: str, group: str | None = None, task: str | None = None) -> Session:
    return Session(name, WHEN, group_id=group, task_id=task)


def names(parts: list[Part]) -> list[str]:
    return [part.name for part in parts]


def many(count: int, *, each: int = 3) -> list[Session]:
    return [session(f"s{place}-{one}", f"g{place}", f"t{place}") for place in range(count) for one in range(each)]


def test_one_file_has_the_name_that_was_wanted() -> None:
    (part,) = plan(many(2), {}, Layout(), "rows.parquet", ".parquet")
    assert (part.name, part.split, len(part.sessions)) == ("rows.parquet", None, 6)
    (part,) = plan([], {}, Layout(), "rows.parquet", ".parquet")
    assert part.sessions == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rows.parquet", ["rows.train-00000-of-00002.parquet", "rows.train-00001-of-00002.parquet", "rows.val"]),
        ("rows.v1.json", ["rows.v1.train-00000-of-00002.json", "rows.v1.train-00001-of-00002.json", "rows.v1.val"]),
        ("rows", ["rows.train-00000-of-00002", "rows.train-00001-of-00002", "rows.val"]),
    ],
)
def test_files_are_named_by_split_and_number(name: str, expected: list[str]) -> None:
    parts = plan(many(30), {}, Layout(read_splits("train=0.8,val=0.2"), 2), name, ".parquet")
    assert names(parts)[:2] == expected[:2]
    assert names(parts)[2].startswith(expected[2])


def test_shards_are_about_equally_heavy_and_never_more_than_groups() -> None:
    sessions = many(4, each=1)
    sizes = {"s0-0": 30, "s1-0": 9, "s2-0": 9, "s3-0": 9}
    parts = plan(sessions, sizes, Layout(shards=2), "a.jsonl", ".jsonl")
    assert [[one.session_id for one in part.sessions] for part in parts] == [["s0-0"], ["s1-0", "s2-0", "s3-0"]]
    assert len(plan(sessions, sizes, Layout(shards=9), "a.jsonl", ".jsonl")) == 4
    assert names(plan(sessions, sizes, Layout(shards=9), "a.jsonl", ".jsonl"))[0] == "a-00000-of-00004.jsonl"


def test_a_split_that_would_get_nothing_gets_the_nearest_task() -> None:
    for count in range(2, 12):
        parts = plan(many(count), {}, Layout(read_splits("train=0.99,val=0.01")), "a.jsonl", ".jsonl")
        assert [part.split for part in parts] == ["train", "val"]
        assert all(part.sessions for part in parts)


def test_fewer_tasks_than_parts_is_an_error_with_both_numbers() -> None:
    with pytest.raises(BadExport, match="each of its 2 parts, and there are 1"):
        plan(many(1), {}, Layout(HALVES), "a.jsonl", ".jsonl")


def test_shares_are_kept_and_a_task_stays_in_its_part() -> None:
    layout = Layout(read_splits("train=0.9,val=0.1"))

    def parts_of(count: int) -> dict[str, str]:
        parts = plan(many(count, each=1), {}, layout, "a.jsonl", ".jsonl")
        return {one.session_id: part.split or "" for part in parts for one in part.sessions}

    few, lots = parts_of(400), parts_of(800)
    assert 0.05 < Counter(lots.values())["val"] / 800 < 0.15
    assert few == {name: lots[name] for name in few}


def test_a_seed_is_an_order_and_a_new_session_moves_no_other() -> None:
    def order(sessions: list[Session], seed: int | None) -> list[str]:
        (part,) = plan(sessions, {}, Layout(shuffle=seed), "a.jsonl", ".jsonl")
        return [one.session_id for one in part.sessions]

    sessions = many(20)
    by_name = sorted(sessions, key=lambda one: (group_of(one), one.session_id))
    assert order(sessions[::-1], None) == [one.session_id for one in by_name]
    assert order(sessions, 1) == order(sessions[::-1], 1) != order(sessions, 2)
    assert order(sessions, 1) != order(sessions, None)
    grown = order([*sessions, session("new", "g3")], 1)
    assert [name for name in grown if name != "new"] == order(sessions, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train=0.9", "must add up to 1, not 0.9"),
        ("train=0.9,val=0.2", "must add up to 1, not 1.1"),
        ("train=1,train=0", "not NAME=SHARE"),
        ("a=0.5,a=0.5", "stands twice"),
        ("train=nan", "not NAME=SHARE"),
        ("train", "not NAME=SHARE"),
        ("", "not NAME=SHARE"),
        ("a/b=0.5,c=0.5", "not NAME=SHARE"),
        ("a=-1,b=2", "not NAME=SHARE"),
    ],
)
def test_splits_that_cannot_be_are_refused(text: str, said: str) -> None:
    with pytest.raises(BadExport, match=said):
        read_splits(text)


def test_splits_are_read() -> None:
    assert read_splits("train=0.9, val=0.1") == (Split("train", 0.9), Split("val", 0.1))
    assert len(read_splits("a=0.333333,b=0.333333,c=0.333333")) == 3


def test_no_shards_at_all_are_refused() -> None:
    with pytest.raises(BadExport, match="--shards cannot be 0"):
        Layout(shards=0)


SESSIONS = st.lists(
    st.tuples(st.sampled_from([None, "g", "h", "i", "\ud83d"]), st.sampled_from([None, "t", "u", "v"])), max_size=12
).map(lambda pairs: [session(f"s{place}", *pair) for place, pair in enumerate(pairs)])


@given(SESSIONS, st.integers(1, 5), st.sampled_from([None, 0, 7]), st.sampled_from([(), HALVES]))
def test_every_session_is_in_one_file_and_nothing_that_belongs_together_is_parted(
    sessions: list[Session], shards: int, seed: int | None, splits: tuple[Split, ...]
) -> None:
    layout = Layout(splits, shards, seed)
    try:
        parts = plan(sessions, {"s0": 5}, layout, "a.jsonl", ".jsonl")
    except BadExport:
        assert splits
        return
    assert sorted(one.session_id for part in parts for one in part.sessions) == sorted(
        one.session_id for one in sessions
    )
    assert len({part.name for part in parts}) == len(parts)
    assert all(part.sessions for part in parts) or not sessions
    where = {one.session_id: (part.name, part.split) for part in parts for one in part.sessions}
    for one in sessions:
        for other in sessions:
            if group_of(one) == group_of(other):
                assert where[one.session_id] == where[other.session_id]
            if one.task_id is not None and one.task_id == other.task_id:
                assert where[one.session_id][1] == where[other.session_id][1]
    for part in parts:
        groups = [group_of(one) for one in part.sessions]
        runs = [group for place, group in enumerate(groups) if place == 0 or groups[place - 1] != group]
        assert len(runs) == len({*runs})
    assert plan([replace(one) for one in sessions[::-1]], {"s0": 5}, layout, "a.jsonl", ".jsonl") == parts

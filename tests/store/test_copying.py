"""Everything goes from one database to another, of either kind; what is not the same there afterwards is said."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, func, insert, select, update

from polarproxy.model import Reward, RewardComponent, TurnReward
from polarproxy.store.archiving import chosen_sessions
from polarproxy.store.copying import COUNTED, Copied, Outcome, compare_counts, copy_sessions, copy_shared, total_digest
from polarproxy.store.database import open_database
from polarproxy.store.leases import Leases, NewBatch
from polarproxy.store.repository import Repository
from polarproxy.store.schema import batches, call_facts, calls, completions, metadata, rollouts, upstreams
from polarproxy.store.stats import read_stats
from polarproxy.store.task_rows import NewTask
from polarproxy.store.tasks import TaskStore
from polarproxy.store.writer import Writer
from tests.database import KINDS, ON_SQLITE, fresh
from tests.store.filled import SESSIONS, contents, fill
from tests.store.samples import NOW, a_call, new_call


@pytest.fixture
def source(engine: Engine) -> Engine:
    fill(engine)
    Repository(engine).set_policy_version(7)
    with engine.begin() as connection:
        connection.execute(insert(upstreams).values(name="http://engine", state="draining", changed_at=NOW))
    TaskStore(engine).submit([NewTask("t", "{}", rollouts=2)])
    Leases(engine).hand_out("trainer", NewBatch("b1", 1, b"rows", ["first"]), "l1", NOW, NOW)
    return engine


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "sqlite":
        opened = open_database(fresh(tmp_path / "target.db"))
        yield opened
        opened.dispose()
        return
    with request.getfixturevalue("postgres").temporary() as url:
        opened = open_database(url)
        yield opened
        opened.dispose()


ON_SQLITE_TARGET = pytest.mark.parametrize("target", ["sqlite"], indirect=True)


def copy(source: Engine, target: Engine) -> list[Copied]:
    copied = list(copy_sessions(source, target, chosen_sessions(source)))
    copy_shared(source, target)
    return copied


def outcomes(copied: list[Copied]) -> dict[str, Outcome]:
    return {one.session_id: one.outcome for one in copied}


NOT_COPIED = {
    "session_heads": "made anew from the calls",
    "proxies": "those that run do not run there",
    "task_events": "news for those who listen here",
}
NOT_COUNTED = NOT_COPIED | {
    "bodies": "those that no call names any more stay behind",
    "blobs": "as the bodies that hold them",
    "body_blobs": "as the bodies that hold them",
}
"""Tables that may have fewer rows in the other database, and why."""


def copied_tables(engine: Engine) -> dict[str, object]:
    return {name: rows for name, rows in contents(engine).items() if name not in NOT_COPIED}


def test_the_other_database_holds_the_same(source: Engine, target: Engine) -> None:
    copied = copy(source, target)
    assert outcomes(copied) == dict.fromkeys(SESSIONS, Outcome.COPIED)
    assert copied_tables(target) == copied_tables(source)
    assert not any(count.differs for count in compare_counts(source, target))
    assert list(Repository(target).verify()) == []
    assert Repository(target).latest_policy_version() == 7
    assert read_stats(target).stored_tokens == read_stats(source).stored_tokens


def test_a_run_is_resumed_where_it_broke_off(source: Engine, target: Engine) -> None:
    first = list(islice(copy_sessions(source, target, chosen_sessions(source)), 2))
    copied = copy(source, target)
    assert outcomes(copied[:2]) == {one.session_id: Outcome.THERE for one in first}
    assert {one.outcome for one in copied[2:]} == {Outcome.COPIED}
    assert [one.digest for one in copied[:2]] == [one.digest for one in first]
    assert copied_tables(target) == copied_tables(source)


def test_the_digest_is_that_of_the_content(source: Engine, target: Engine) -> None:
    digest = total_digest(copy(source, target))
    assert total_digest(copy(source, target)[::-1]) == digest
    assert total_digest(copy(target, source)) == digest
    for engine in (source, target):
        Repository(engine).add_reward("empty", Reward(1.0))
    with target.begin() as connection:
        connection.exec_driver_sql("UPDATE rewards SET recorded_at = (SELECT created_at FROM sessions LIMIT 1)")
    assert outcomes(copy(source, target))["empty"] is Outcome.CONFLICT
    assert total_digest(copy(source, target)) != digest


def test_a_proxy_goes_on_in_the_other_database(source: Engine, target: Engine) -> None:
    copy(source, target)
    writer = Writer(target)
    writer.submit(new_call(a_call("new", 4, session_id="first"))).result(30)
    writer.close()
    Repository(target).add_reward("first", Reward(2.0))
    assert Repository(target).session("first").reward == Reward(2.0)
    assert list(Repository(target).verify()) == []


@ON_SQLITE_TARGET
def test_another_content_there_is_left_as_it_is(source: Engine, target: Engine) -> None:
    copy(source, target)
    with target.begin() as connection:
        connection.execute(update(completions).values(stop_reason="other").where(completions.c.call_id == "second-1"))
    before = contents(target)
    copied = copy(source, target)
    assert outcomes(copied) == dict.fromkeys(SESSIONS, Outcome.THERE) | {"second": Outcome.CONFLICT}
    assert contents(target) == before


@ON_SQLITE_TARGET
def test_what_is_damaged_here_is_named_and_the_rest_is_copied(source: Engine, target: Engine) -> None:
    with source.begin() as connection:
        connection.execute(delete(completions).where(completions.c.call_id == "second-1"))
    copied = copy(source, target)
    assert outcomes(copied) == dict.fromkeys(SESSIONS, Outcome.COPIED) | {"second": Outcome.DAMAGED}
    (damaged,) = [one for one in copied if one.outcome is Outcome.DAMAGED]
    assert "second-1" in str(damaged.why)
    assert damaged.digest is None
    differing = {count.table for count in compare_counts(source, target) if count.differs}
    assert {"sessions", "calls", "completions"} <= differing
    assert list(Repository(target).verify()) == []


def test_a_zero_below_zero_is_a_zero(source: Engine, target: Engine) -> None:
    """SQLite keeps it as 0; what a reward or a temperature is does not hang on it."""
    parts = (RewardComponent("a", -0.0),)
    Repository(source).add_reward("first", Reward(-0.0, parts, (TurnReward(-0.0, turn=0),)))
    with source.begin() as connection:
        connection.execute(update(calls).values(temperature=-0.0).where(calls.c.call_id == "second-1"))
    assert outcomes(copy(source, target)) == dict.fromkeys(SESSIONS, Outcome.COPIED)
    assert outcomes(copy(source, target)) == dict.fromkeys(SESSIONS, Outcome.THERE)
    assert outcomes(copy(target, source)) == dict.fromkeys(SESSIONS, Outcome.THERE)


@ON_SQLITE_TARGET
def test_a_label_that_nobody_wrote_is_damage_too(source: Engine, target: Engine) -> None:
    with source.begin() as connection:
        connection.execute(update(call_facts).values(value="[").where(call_facts.c.name == "label"))
    assert outcomes(copy(source, target)) == dict.fromkeys(SESSIONS, Outcome.COPIED) | {"first": Outcome.DAMAGED}


@ON_SQLITE_TARGET
def test_names_that_are_taken_there_are_a_conflict(source: Engine, target: Engine) -> None:
    writer = Writer(target)
    writer.submit(new_call(a_call("first-1", 0, session_id="somebody else's"))).result(30)
    writer.close()
    copied = copy(source, target)
    assert outcomes(copied)["first"] is Outcome.CONFLICT
    assert "first" not in Repository(target).session_ids()
    assert Repository(target).call("first-1").call.session_id == "somebody else's"


@ON_SQLITE
@ON_SQLITE_TARGET
def test_rows_that_lack_or_are_too_many_are_seen(source: Engine, target: Engine) -> None:
    copy(source, target)
    with target.begin() as connection:
        connection.execute(insert(call_facts).values(call_id="odd-1", recorded_at=NOW, name="x", value="y"))
    assert [count.table for count in compare_counts(source, target) if count.differs] == ["call_facts"]
    fact = {"call_id": "odd-1", "recorded_at": NOW, "name": "x", "value": "y"}
    with source.begin() as connection:
        connection.execute(insert(call_facts), [fact, fact])
    assert [count.table for count in compare_counts(source, target) if count.differs] == ["call_facts"]


@ON_SQLITE
@ON_SQLITE_TARGET
def test_other_sessions_there_do_not_count(source: Engine, target: Engine) -> None:
    writer = Writer(target)
    writer.submit(new_call(a_call("other", 0, session_id="other"))).result(30)
    writer.close()
    copy(source, target)
    assert not any(count.differs for count in compare_counts(source, target))


@ON_SQLITE_TARGET
def test_what_belongs_to_no_session_and_changed_since_an_earlier_run_is_told(source: Engine, target: Engine) -> None:
    copy(source, target)
    before = contents(target)
    with source.begin() as connection:
        connection.execute(update(rollouts).values(state="running").where(rollouts.c.number == 1))
        connection.execute(update(batches).values(acked_at=NOW))
        connection.execute(update(upstreams).values(name="http://\x00\ud83d"))
    copy(source, target)
    counts = {count.table: count for count in compare_counts(source, target) if count.differs}
    assert {name: count.other for name, count in counts.items()} == {"rollouts": 1, "batches": 1, "upstreams": 0}
    assert (counts["upstreams"].here, counts["upstreams"].there) == (1, 2)
    assert contents(target)["rollouts"] == before["rollouts"]
    assert contents(target)["batches"] == before["batches"]


def test_a_session_that_has_gone_meanwhile(source: Engine, target: Engine) -> None:
    assert outcomes(list(copy_sessions(source, target, ["nobody"]))) == {"nobody": Outcome.GONE}


def test_no_table_is_forgotten(source: Engine) -> None:
    """One that is new must have rows in `source`, so that the tests of this file compare them, and be counted."""
    assert {str(table.name) for table in COUNTED}.isdisjoint(NOT_COUNTED)
    assert {*map(str, COUNTED), *NOT_COUNTED} == {*metadata.tables}
    with source.connect() as connection:
        counts = {
            name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in metadata.tables.items()
        }
    assert [name for name, count in counts.items() if not count and name not in NOT_COPIED] == []

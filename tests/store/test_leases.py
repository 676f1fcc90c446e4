"""Batches and their leases: each session once to each consumer, the same bytes until they are acknowledged, in any race."""

import threading
from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from polarproxy.errors import BatchTaken, NotFound
from polarproxy.model import Reward, SessionStatus
from polarproxy.store.leases import Consumer, Leases, NewBatch
from polarproxy.store.ready import Ready, Waiting
from polarproxy.store.repository import Repository
from tests.store.samples import NOW, a_session

SOON = NOW + timedelta(minutes=10)
LATER = NOW + timedelta(minutes=20)


def add(
    repository: Repository,
    name: str,
    group: str | None,
    status: SessionStatus = SessionStatus.COMPLETED,
    reward: float | None = 1.0,
    age: int = 0,
) -> None:
    repository.add_session(a_session(name, group_id=group, created_at=NOW - timedelta(days=age)))
    repository.set_status(name, status)
    if reward is not None:
        repository.add_reward(name, Reward(reward))


def batch(name: str, *sessions: str, rows: int = 1) -> NewBatch:
    return NewBatch(name, rows, name.encode(), sessions)


def test_a_group_is_ready_when_all_of_it_is_closed_and_judged(repository: Repository, engine: Engine) -> None:
    leases = Leases(engine)
    add(repository, "a1", "a", age=1)
    add(repository, "a2", "a", age=5)
    add(repository, "b1", "b", age=9)
    add(repository, "b2", "b", SessionStatus.OPEN, None)
    add(repository, "c1", "c")
    add(repository, "c2", "c", SessionStatus.TIMEOUT, None)
    add(repository, "d1", "d", age=4)
    add(repository, "d2", "d", SessionStatus.INFRA_ERROR, None)
    add(repository, "alone", None, age=7)
    assert leases.ready("t", 1, 10) == [Ready(None, "alone"), Ready("a", "a1"), Ready("d", "d1")]
    assert leases.ready("t", 2, 10) == [Ready("a", "a1"), Ready("d", "d1")]
    assert leases.ready("t", 1, 1) == [Ready(None, "alone")]
    assert leases.waiting("t", 2) == Waiting(ready=2, open=1, unrewarded=1, small=1)
    repository.set_status("b2", SessionStatus.COMPLETED)
    repository.add_reward("b2", Reward(0.0))
    repository.add_reward("c2", Reward(0.0))
    assert leases.waiting("t", 1) == Waiting(ready=5, open=0, unrewarded=0, small=0)


def test_names_of_groups_and_sessions_are_not_confused(repository: Repository, engine: Engine) -> None:
    add(repository, "x", None)
    add(repository, "y", "x")
    assert len(Leases(engine).ready("t", 1, 10)) == 2


def test_each_consumer_gets_each_session_once(repository: Repository, engine: Engine) -> None:
    leases = Leases(engine)
    add(repository, "a1", "a")
    add(repository, "a2", "a")
    leases.hand_out("one", batch("b1", "a1", "a2"), "l1", NOW, SOON)
    assert leases.ready("one", 1, 10) == []
    assert leases.ready("two", 1, 10) == [Ready("a", "a1")]
    assert leases.had("one", ["a1", "a2", "zz"]) == {"a1", "a2"}
    with pytest.raises(BatchTaken, match="somebody else took sessions of batch b2 as 'one'"):
        leases.hand_out("one", batch("b2", "a2"), "l2", NOW, SOON)
    assert leases.again("one", "l2", SOON) is None
    leases.hand_out("two", batch("b3", "a1", "a2"), "l1", NOW, SOON)
    add(repository, "a3", "a")
    assert leases.ready("one", 3, 10) == [Ready("a", "a1")]


def test_the_same_lease_is_the_same_batch(engine: Engine) -> None:
    leases = Leases(engine)
    given = leases.hand_out("t", batch("b1", "a"), "l1", NOW, SOON)
    assert (given.body, given.rows, given.batch_id) == (b"b1", 1, "b1")
    again = leases.again("t", "l1", LATER)
    assert again is not None
    assert (again.body, again.expires_at) == (b"b1", LATER)
    assert leases.reclaim("t", "l2", SOON, LATER) is None
    assert leases.again("t", "other", LATER) is None
    assert leases.again("u", "l1", LATER) is None


def test_what_ran_out_is_handed_out_again(engine: Engine) -> None:
    leases = Leases(engine)
    leases.hand_out("t", batch("b1", "a"), "l1", NOW, SOON)
    leases.hand_out("t", batch("b2", "b"), "l2", NOW + timedelta(seconds=1), SOON)
    assert leases.reclaim("u", "l3", SOON, LATER) is None
    first = leases.reclaim("t", "l3", SOON, LATER)
    assert first is not None
    assert (first.batch_id, first.body, first.lease_id) == ("b1", b"b1", "l3")
    with pytest.raises(BatchTaken, match="ran out, and its batch b1 was handed out again as 'l3'"):
        leases.again("t", "l1", LATER)
    with pytest.raises(BatchTaken, match="somebody else has the lease 'l3'"):
        leases.reclaim("t", "l3", SOON, LATER)
    second = leases.reclaim("t", "l4", SOON, LATER)
    assert second is not None
    assert second.batch_id == "b2"


def test_acknowledging(engine: Engine) -> None:
    leases = Leases(engine)
    leases.hand_out("t", batch("b1", "a", rows=3), "l1", NOW, SOON)
    assert leases.consumers() == [Consumer("t", 1, 0, 0)]
    assert leases.acknowledge("t", "l1", NOW)
    assert not leases.acknowledge("t", "l1", LATER)
    assert leases.consumers() == [Consumer("t", 0, 1, 3)]
    assert leases.reclaim("t", "l2", LATER, LATER) is None
    with pytest.raises(BatchTaken, match="acknowledged already"):
        leases.again("t", "l1", LATER)
    for name, lease_id in (("t", "l9"), ("u", "l1")):
        with pytest.raises(NotFound):
            leases.acknowledge(name, lease_id, NOW)


def test_a_late_acknowledgement_counts(engine: Engine) -> None:
    leases = Leases(engine)
    leases.hand_out("t", batch("b1", "a"), "l1", NOW, SOON)
    leases.reclaim("t", "l2", SOON, LATER)
    assert leases.acknowledge("t", "l1", SOON)
    assert not leases.acknowledge("t", "l2", SOON)


def test_giving_back(engine: Engine) -> None:
    leases = Leases(engine)
    leases.hand_out("t", batch("b1", "a"), "l1", NOW, LATER)
    assert leases.release("t", "l1", SOON)
    again = leases.reclaim("t", "l2", SOON, LATER)
    assert again is not None
    assert again.batch_id == "b1"
    assert not leases.release("t", "l1", SOON)
    leases.acknowledge("t", "l2", SOON)
    assert not leases.release("t", "l2", SOON)
    with pytest.raises(NotFound):
        leases.release("t", "nobody", SOON)


def test_a_batch_without_rows_is_done(engine: Engine) -> None:
    leases = Leases(engine)
    leases.hand_out("t", batch("b1", "a", rows=0), "l1", NOW, SOON)
    assert leases.had("t", ["a"]) == {"a"}
    assert leases.reclaim("t", "l2", LATER, LATER) is None
    assert leases.consumers() == [Consumer("t", 0, 1, 0)]


def _at_once(*jobs: Sequence[object]) -> list[object]:
    """Calls each function with its arguments in a thread of its own, all at the same moment."""
    barrier, found = threading.Barrier(len(jobs)), []

    def work(function: object, *arguments: object) -> None:
        barrier.wait(20)
        try:
            found.append(function(*arguments))  # type: ignore[operator]
        except BatchTaken as error:
            found.append(error)

    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == len(jobs)
    return found


def test_of_many_who_want_the_same_one_gets_it(engine: Engine) -> None:
    leases = Leases(engine)
    found = _at_once(
        *((leases.hand_out, "t", batch(f"b{n}", "a", "b"), f"l{n}", NOW, SOON) for n in range(6)),
    )
    assert sum(not isinstance(one, BatchTaken) for one in found) == 1
    again = _at_once(*((leases.reclaim, "t", f"m{n}", SOON, LATER) for n in range(6)))
    assert sum(one is not None and not isinstance(one, BatchTaken) for one in again) == 1

"""Tasks: submitted once, taken in order, ended once; a runner that dies costs one attempt."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine

from polarproxy.errors import InvalidValue, NotFound, StoreConflict
from polarproxy.model import SessionStatus
from polarproxy.store.task_rows import CallbackState, NewTask, Outcome, Rollout, RolloutState, TaskState
from polarproxy.store.tasks import TaskStore

GOOD = Outcome(SessionStatus.COMPLETED, usable=True, reward=1.0, detail='{"turns": 3}')
BAD = Outcome(SessionStatus.AGENT_ERROR, usable=False, reward=None, detail="{}")


@pytest.fixture
def store(engine: Engine) -> TaskStore:
    return TaskStore(engine)


def states(store: TaskStore, task_id: str) -> list[str]:
    return [one.state.value for one in store.rollouts(task_id)]


def names(store: TaskStore) -> list[str]:
    return [event.name for event in store.events(0)]


def places(taken: list[Rollout]) -> list[tuple[str, int]]:
    return [(one.task_id, one.number) for one in taken]


def test_a_task_runs_and_is_done(store: TaskStore) -> None:
    store.submit([NewTask("t", "{}", rollouts=2)])
    first, second = store.take("", 5)
    assert [first.attempts, second.attempts] == [1, 1]
    assert first.session_id != second.session_id
    assert store.take("", 5) == []
    store.finish("t", 0, GOOD)
    assert store.task("t").state is TaskState.OPEN
    store.finish("t", 1, BAD)
    assert store.task("t").state is TaskState.DONE
    assert [one.outcome for one in store.rollouts("t")] == [GOOD, BAD]
    assert names(store) == [
        "task_submitted",
        "rollout_started",
        "rollout_started",
        "rollout_completed",
        "rollout_agent_error",
        "task_done",
    ]
    assert [event.event_id for event in store.events(2, limit=2)] == [3, 4]


def test_what_ended_stays_as_it_ended(store: TaskStore) -> None:
    store.submit([NewTask("t", "{}", rollouts=1)])
    store.take("", 1)
    store.finish("t", 0, GOOD)
    store.finish("t", 0, BAD)
    store.run_again("t", 0)
    store.give_back("t", 0)
    assert [one.outcome for one in store.rollouts("t")] == [GOOD]
    assert names(store).count("rollout_completed") == 1
    assert names(store).count("task_done") == 1


def test_the_urgent_ones_come_first_and_jobs_do_not_mix(store: TaskStore) -> None:
    store.submit([NewTask("a", "{}", rollouts=1), NewTask("b", "{}", rollouts=1, priority=5)])
    store.submit([NewTask("c", "{}", rollouts=1, job="other", priority=9)])
    assert places(store.take("", 2)) == [("b", 0), ("a", 0)]
    assert places(store.take("other", 2)) == [("c", 0)]


def test_submitting_again_is_the_same_task(store: TaskStore) -> None:
    one = NewTask("a", '{"x": 1}', rollouts=3, key="k")
    first = store.submit([one])
    assert store.submit([NewTask("b", '{"x": 1}', rollouts=3, key="k")]) == first
    assert len(store.tasks()) == 1
    assert len(store.rollouts("a")) == 3
    store.submit([NewTask("c", '{"x": 1}', rollouts=1, key="k", job="other")])
    with pytest.raises(StoreConflict, match="'k'"):
        store.submit([NewTask("d", '{"x": 2}', rollouts=3, key="k")])
    with pytest.raises(StoreConflict, match="'a'"):
        store.submit([NewTask("a", "{}", rollouts=3)])


def test_a_submit_of_many_is_whole_or_not_at_all(store: TaskStore) -> None:
    store.submit([NewTask("a", "{}", rollouts=1)])
    with pytest.raises(StoreConflict):
        store.submit([NewTask("b", "{}", rollouts=1), NewTask("a", "{}", rollouts=1)])
    assert [task.task_id for task in store.tasks()] == ["a"]


def test_many_submits_of_one_key_at_once(store: TaskStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: store.submit([NewTask(f"t{n}", "{}", 2, key="k")])[0].task_id, range(16)))
    assert len(set(found)) == 1
    assert len(store.tasks()) == 1


def test_enough_usable_ones_end_the_task(store: TaskStore) -> None:
    store.submit([NewTask("t", "{}", rollouts=5, enough=2)])
    store.take("", 4)
    store.finish("t", 0, GOOD)
    store.finish("t", 1, BAD)
    assert states(store, "t") == ["done", "done", "running", "running", "waiting"]
    assert store.running("") == {("t", 2), ("t", 3)}
    store.finish("t", 2, GOOD)
    assert states(store, "t") == ["done", "done", "done", "skipped", "skipped"]
    assert store.running("") == set()
    store.finish("t", 3, GOOD)
    assert states(store, "t")[3] == "skipped"
    assert store.task("t").state is TaskState.DONE
    assert names(store).count("rollout_skipped") == 1


def test_cancelling(store: TaskStore) -> None:
    store.submit([NewTask("t", "{}", rollouts=3, callback=True)])
    (running,) = store.take("", 1)
    assert store.running("") == {("t", running.number)}
    assert store.running("other") == set()
    store.cancel("t")
    store.cancel("t")
    assert states(store, "t") == ["skipped", "skipped", "skipped"]
    assert store.running("") == set()
    store.give_back("t", 0)
    assert states(store, "t")[0] == "skipped"
    assert store.task("t").state is TaskState.CANCELLED
    assert names(store).count("task_cancelled") == 1
    assert [task.task_id for task in store.to_call_back("")] == ["t"]
    with pytest.raises(NotFound, match="'nobody'"):
        store.cancel("nobody")


def test_a_runner_that_dies_costs_one_attempt(store: TaskStore) -> None:
    store.submit([NewTask("t", "{}", rollouts=2)])
    (first,) = store.take("", 1)
    store.finish("t", 0, GOOD)
    (lost,) = store.take("", 1)
    assert store.interrupted("") == [lost]
    assert store.interrupted("other") == []
    store.run_again("t", 1)
    (again,) = store.take("", 5)
    assert (again.number, again.attempts) == (1, 2)
    assert again.session_id not in (lost.session_id, first.session_id)
    store.run_again("t", 1)
    given_up = store.rollouts("t")[1].outcome
    assert given_up is not None
    assert (given_up.status, given_up.usable, given_up.reward) == (SessionStatus.INFRA_ERROR, False, None)
    assert store.task("t").state is TaskState.DONE


def test_what_was_taken_and_not_run_is_no_attempt(store: TaskStore) -> None:
    store.submit([NewTask("t", "{}", rollouts=1)])
    for _ in range(3):
        (taken,) = store.take("", 1)
        assert taken.attempts == 1
        store.give_back("t", 0)
    assert states(store, "t") == ["waiting"]


def test_telling_the_end(store: TaskStore) -> None:
    store.submit([NewTask("t", "{}", rollouts=1, callback=True), NewTask("u", "{}", rollouts=1)])
    assert store.to_call_back("") == []
    for one in store.take("", 2):
        store.finish(one.task_id, one.number, GOOD)
    assert [task.task_id for task in store.to_call_back("")] == ["t"]
    store.called_back("t", CallbackState.DELIVERED)
    assert store.to_call_back("") == []
    assert store.task("t").callback is CallbackState.DELIVERED


def test_any_text(store: TaskStore) -> None:
    said = "\x00 \ud83d ü 😀"
    store.submit([NewTask("t", said, rollouts=1, job="j\x00", key=said)])
    assert store.tasks(job="j\x00")[0].request == said
    assert len(store.of_job("j\x00")) == 1
    assert store.of_job("j\x00")[0].state is RolloutState.WAITING


def test_tasks_that_cannot_be() -> None:
    for rollouts, enough in ((0, None), (2, 3), (2, 0), (2**31, None)):
        with pytest.raises(InvalidValue):
            NewTask("t", "{}", rollouts, enough=enough)
    with pytest.raises(InvalidValue):
        NewTask("t", "{}", rollouts=1, priority=2**31)
    with pytest.raises(InvalidValue):
        Outcome(SessionStatus.OPEN, usable=False, reward=None, detail="")

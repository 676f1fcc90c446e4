"""What can happen to a task and its rollouts, each as part of a transaction; what happened is said in `task_events`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, insert, select, update

from polarproxy.errors import NotFound, StoreConflict
from polarproxy.model import SessionStatus
from polarproxy.store.ids import new_id
from polarproxy.store.inserts import insert_once
from polarproxy.store.schema import rollouts, task_events, tasks
from polarproxy.store.task_rows import (
    MOST_ATTEMPTS,
    OVER,
    CallbackState,
    Outcome,
    RolloutState,
    TaskState,
    read_rollout,
    read_task,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from polarproxy.store.task_rows import NewTask, Rollout, Task

_LOST = '{"error": "the runner died while this rollout was under way, twice"}'


def submit(connection: Connection, new: NewTask) -> Task:
    """A new task with its rollouts, or the one that has its key. Raises `StoreConflict`."""
    row = {
        "task_id": new.task_id,
        "created_at": datetime.now(UTC),
        "job": new.job,
        "submit_key": new.key,
        "request": new.request,
        "priority": new.priority,
        "enough": new.enough,
        "state": TaskState.OPEN.value,
        "callback": CallbackState.PENDING.value if new.callback else None,
    }
    made = insert_once(tasks, connection.dialect).values(row).returning(tasks.c.task_id)
    if connection.execute(made).first() is not None:
        waiting = {"task_id": new.task_id, "state": RolloutState.WAITING.value, "attempts": 0}
        connection.execute(insert(rollouts), [{**waiting, "number": number} for number in range(new.rollouts)])
        say(connection, new.task_id, "task_submitted")
        return one_task(connection, new.task_id)
    # Without a key it is the id that is taken; NULL equals nothing, and would be asked for as IS NULL.
    by_key = tasks.c.task_id.in_(()) if new.key is None else tasks.c.submit_key == new.key
    there = connection.execute(select(tasks).where(tasks.c.job == new.job, by_key)).mappings().first()
    if there is None or there["request"] != new.request:
        what = f"id {new.task_id!r}" if there is None else f"key {new.key!r}"
        raise StoreConflict(f"the {what} belongs to a task that was submitted with another request")
    return read_task(there)


def begin(connection: Connection, task_id: str, number: int) -> Rollout:
    """A rollout that waits runs from now on, as a new session."""
    values = {
        "state": RolloutState.RUNNING.value,
        "attempts": rollouts.c.attempts + 1,
        "session_id": new_id("s"),
        "started_at": datetime.now(UTC),
    }
    changed = connection.execute(
        update(rollouts).where(is_rollout(task_id, number)).values(values).returning(*rollouts.c)
    )
    begun = read_rollout(changed.mappings().one())
    say(connection, task_id, "rollout_started", number, begun.session_id)
    return begun


def run_again(connection: Connection, task_id: str, number: int) -> None:
    """A rollout of a runner that died waits again, unless that happened too often."""
    lost = Outcome(SessionStatus.INFRA_ERROR, usable=False, reward=None, detail=_LOST)
    again = update(rollouts).where(
        is_rollout(task_id, number),
        rollouts.c.state == RolloutState.RUNNING.value,
        rollouts.c.attempts < MOST_ATTEMPTS,
    )
    if connection.execute(again.values(state=RolloutState.WAITING.value)).rowcount:
        say(connection, task_id, "rollout_lost", number)
    elif end(connection, task_id, number, RolloutState.DONE, lost):
        say(connection, task_id, f"rollout_{lost.status}", number, lost.detail)


def end(connection: Connection, task_id: str, number: int, state: RolloutState, outcome: Outcome | None) -> bool:
    """Whether it ran until now."""
    values: dict[str, Any] = {"state": state.value, "finished_at": datetime.now(UTC)}
    if outcome is not None:
        values |= {
            "status": outcome.status.value,
            "usable": outcome.usable,
            "reward": outcome.reward,
            "outcome": outcome.detail,
        }
    running = rollouts.c.state == RolloutState.RUNNING.value
    return bool(
        connection.execute(update(rollouts).where(is_rollout(task_id, number), running).values(values)).rowcount
    )


def skip_if_enough(connection: Connection, task_id: str) -> None:
    """Leaves out what waits or runs when enough is usable."""
    task = one_task(connection, task_id)
    if task.enough is None:
        return
    usable = select(func.count()).where(rollouts.c.task_id == task_id, rollouts.c.usable.is_(True))
    if connection.execute(usable).scalar_one() >= task.enough:
        skip_rest(connection, task_id)


def skip_rest(connection: Connection, task_id: str) -> None:
    """What waits or runs is not wanted any more."""
    rest = (rollouts.c.task_id == task_id) & rollouts.c.state.not_in(OVER)
    values = {"state": RolloutState.SKIPPED.value, "finished_at": datetime.now(UTC)}
    skipped = update(rollouts).where(rest).values(values).returning(rollouts.c.number, rollouts.c.attempts)
    for number, attempts in connection.execute(skipped).all():
        if attempts:
            say(connection, task_id, "rollout_skipped", number)


def close(connection: Connection, task_id: str) -> None:
    """The task is done when nothing of it is left to do."""
    left = select(rollouts.c.number).where(rollouts.c.task_id == task_id, rollouts.c.state.not_in(OVER)).limit(1)
    if connection.execute(left).first() is not None:
        return
    still_open = (tasks.c.task_id == task_id) & (tasks.c.state == TaskState.OPEN.value)
    values: dict[str, Any] = {"state": TaskState.DONE.value, "finished_at": datetime.now(UTC)}
    if connection.execute(update(tasks).where(still_open).values(values)).rowcount:
        say(connection, task_id, "task_done")


def say(connection: Connection, task_id: str, name: str, number: int | None = None, detail: str | None = None) -> None:
    """Notes what happened. `number` None: to the whole task."""
    row = {"recorded_at": datetime.now(UTC), "task_id": task_id, "number": number, "name": name, "detail": detail}
    connection.execute(insert(task_events).values(row))


def is_rollout(task_id: str, number: int) -> ColumnElement[bool]:
    """The condition that names one rollout."""
    return (rollouts.c.task_id == task_id) & (rollouts.c.number == number)


def one_task(connection: Connection, task_id: str) -> Task:
    """Raises `NotFound`."""
    row = connection.execute(select(tasks).where(tasks.c.task_id == task_id)).mappings().first()
    if row is None:
        raise NotFound(f"there is no task {task_id!r}; GET /api/tasks lists those there are")
    return read_task(row)


def rollouts_of(connection: Connection, task_id: str) -> list[Rollout]:
    """The rollouts of a task by number."""
    query = select(rollouts).where(rollouts.c.task_id == task_id).order_by(rollouts.c.number)
    return [read_rollout(row) for row in connection.execute(query).mappings()]

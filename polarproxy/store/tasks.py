"""Tasks in their tables: submitting, taking, ending. Every change is one transaction that also says what happened.

One runner at a time works on a job; others may submit, cancel and look.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, update

from polarproxy.store import task_changes as changes
from polarproxy.store.database import for_writing
from polarproxy.store.schema import rollouts, task_events, tasks
from polarproxy.store.task_rows import (
    CallbackState,
    Event,
    Outcome,
    RolloutState,
    TaskState,
    read_rollout,
    read_task,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Engine

    from polarproxy.store.task_rows import NewTask, Rollout, Task


class TaskStore:
    """The tasks of a database. Safe to use from several threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writing = for_writing(engine)

    def submit(self, new: Sequence[NewTask]) -> list[Task]:
        """Stores tasks, or finds those that were submitted before with the same key; all of them, or none.

        Raises `StoreConflict` for a key or an id that another request has.
        """
        with self._writing.begin() as connection:
            return [changes.submit(connection, one) for one in new]

    def take(self, job: str, most: int) -> list[Rollout]:
        """Begins waiting rollouts, the most urgent first; each gets a new session id, under which it is to be recorded."""
        with self._writing.begin() as connection:
            query = (
                select(rollouts)
                .join_from(rollouts, tasks)
                .where(tasks.c.job == job, rollouts.c.state == RolloutState.WAITING.value)
                .order_by(tasks.c.priority.desc(), tasks.c.created_at, tasks.c.task_id, rollouts.c.number)
                .limit(most)
            )
            keys = [(row["task_id"], row["number"]) for row in connection.execute(query).mappings()]
            return [changes.begin(connection, *key) for key in keys]

    def finish(self, task_id: str, number: int, outcome: Outcome) -> None:
        """Ends a rollout that runs; one that is not wanted any more, or has ended, stays as it is."""
        with self._writing.begin() as connection:
            if changes.end(connection, task_id, number, RolloutState.DONE, outcome):
                changes.say(connection, task_id, f"rollout_{outcome.status}", number, outcome.detail)
                changes.skip_if_enough(connection, task_id)
            changes.close(connection, task_id)

    def give_back(self, task_id: str, number: int) -> None:
        """A rollout that was taken and not run, because its runner stops in order, waits again; it is no attempt."""
        with self._writing.begin() as connection:
            back = {"state": RolloutState.WAITING.value, "attempts": rollouts.c.attempts - 1}
            running = rollouts.c.state == RolloutState.RUNNING.value
            connection.execute(update(rollouts).where(changes.is_rollout(task_id, number), running).values(back))

    def interrupted(self, job: str) -> list[Rollout]:
        """When a runner starts: what the one before it left running."""
        running = rollouts.c.state == RolloutState.RUNNING.value
        with self._engine.begin() as connection:
            query = select(rollouts).join_from(rollouts, tasks).where(tasks.c.job == job, running)
            return [read_rollout(row) for row in connection.execute(query).mappings()]

    def run_again(self, task_id: str, number: int) -> None:
        """A rollout whose runner died waits again; after its second attempt it is given up instead."""
        with self._writing.begin() as connection:
            changes.run_again(connection, task_id, number)
            changes.close(connection, task_id)

    def cancel(self, task_id: str) -> None:
        """Nothing of this task is wanted any more, also what runs. Raises `NotFound`."""
        with self._writing.begin() as connection:
            if changes.one_task(connection, task_id).state is TaskState.OPEN:
                changes.skip_rest(connection, task_id)
                values: dict[str, Any] = {"state": TaskState.CANCELLED.value, "finished_at": datetime.now(UTC)}
                connection.execute(update(tasks).where(tasks.c.task_id == task_id).values(values))
                changes.say(connection, task_id, "task_cancelled")

    def running(self, job: str) -> set[tuple[str, int]]:
        """Task and number of the rollouts that are to be under way: those that are not in it any more are not wanted."""
        running = rollouts.c.state == RolloutState.RUNNING.value
        with self._engine.begin() as connection:
            query = select(rollouts.c.task_id, rollouts.c.number).join_from(rollouts, tasks)
            return {(row[0], row[1]) for row in connection.execute(query.where(tasks.c.job == job, running))}

    def called_back(self, task_id: str, state: CallbackState) -> None:
        """What became of telling the end of a task."""
        with self._writing.begin() as connection:
            connection.execute(update(tasks).where(tasks.c.task_id == task_id).values(callback=state.value))
            changes.say(connection, task_id, f"callback_{state}")

    def to_call_back(self, job: str) -> list[Task]:
        """The tasks that are over and whose end was not told yet."""
        pending = tasks.c.callback == CallbackState.PENDING.value
        return self._tasks(tasks.c.job == job, pending, tasks.c.state != TaskState.OPEN.value)

    def task(self, task_id: str) -> Task:
        """One task; raises `NotFound`."""
        with self._engine.begin() as connection:
            return changes.one_task(connection, task_id)

    def tasks(self, *, job: str | None = None, state: TaskState | None = None, limit: int = 1000) -> list[Task]:
        """Tasks, the newest first. None: of any job, in any state."""
        wanted = [] if job is None else [tasks.c.job == job]
        wanted += [] if state is None else [tasks.c.state == state.value]
        return self._tasks(*wanted, limit=limit)

    def rollouts(self, task_id: str) -> list[Rollout]:
        """The rollouts of a task by number; raises `NotFound`."""
        with self._engine.begin() as connection:
            changes.one_task(connection, task_id)
            return changes.rollouts_of(connection, task_id)

    def of_job(self, job: str) -> list[Rollout]:
        """The rollouts of all tasks of a job, by task and number."""
        with self._engine.begin() as connection:
            query = select(rollouts).join_from(rollouts, tasks).where(tasks.c.job == job)
            ordered = query.order_by(rollouts.c.task_id, rollouts.c.number)
            return [read_rollout(row) for row in connection.execute(ordered).mappings()]

    def events(self, after: int, limit: int = 500) -> list[Event]:
        """What happened since the event of this number."""
        with self._engine.begin() as connection:
            query = select(task_events).where(task_events.c.event_id > after).order_by(task_events.c.event_id)
            return [Event(**row) for row in connection.execute(query.limit(limit)).mappings()]

    def last_event(self) -> int:
        """Number of the latest event; 0 when there is none."""
        with self._engine.begin() as connection:
            return connection.execute(select(func.max(task_events.c.event_id))).scalar_one() or 0

    def _tasks(self, *conditions: ColumnElement[bool], limit: int = 1000) -> list[Task]:
        with self._engine.begin() as connection:
            query = select(tasks).where(*conditions).order_by(tasks.c.created_at.desc(), tasks.c.task_id.desc())
            return [read_task(row) for row in connection.execute(query.limit(limit)).mappings()]

"""Tasks and their rollouts as the store knows them: what is to be run, what runs, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from polarproxy.errors import InvalidValue
from polarproxy.model import SessionStatus

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import RowMapping

MOST_ATTEMPTS = 2
"""A rollout that was under way when its runner died is run once more, and not again."""
SERVICE = ""
"""The job of tasks that were submitted one by one."""
_LARGEST = 2**31 - 1


class TaskState(StrEnum):
    """What is left to do of a task."""

    OPEN = "open"
    DONE = "done"
    """Every rollout is done or was left out."""
    CANCELLED = "cancelled"


class RolloutState(StrEnum):
    """Where a rollout is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    """Left out, or broken off: the task had enough, or was cancelled."""


class CallbackState(StrEnum):
    """What became of telling a task's end to who asked for it."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


OVER = (RolloutState.DONE, RolloutState.SKIPPED)
"""The states in which nothing of a rollout is left to do."""


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task as it is submitted."""

    task_id: str
    request: str
    """What is to be run, as JSON; the store does not read it."""
    rollouts: int
    job: str = SERVICE
    key: str | None = None
    """Given again with the same request, it is the same task; unique within the job. None: every submit is a new task."""
    priority: int = 0
    """The larger comes first."""
    enough: int | None = None
    """How many usable rollouts end the task. None: all are run."""
    callback: bool = False
    """Whether its end is to be told to somebody."""

    def __post_init__(self) -> None:
        if self.rollouts < 1 or (self.enough is not None and not 1 <= self.enough <= self.rollouts):
            raise InvalidValue(f"task {self.task_id}: {self.enough} usable rollouts cannot be had of {self.rollouts}")
        if abs(self.priority) > _LARGEST or self.rollouts > _LARGEST:
            raise InvalidValue(f"task {self.task_id}: no priority and no number of rollouts lies beyond {_LARGEST}")


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it is stored."""

    task_id: str
    created_at: datetime
    job: str
    key: str | None
    request: str
    priority: int
    enough: int | None
    state: TaskState
    finished_at: datetime | None
    """None: it is open."""
    callback: CallbackState | None
    """None: nobody asked to be told."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a rollout ended."""

    status: SessionStatus
    usable: bool
    """Whether it counts among those that were wanted."""
    reward: float | None
    """None: nothing set one, which is not the same as 0."""
    detail: str
    """More, as JSON; the store does not read it."""

    def __post_init__(self) -> None:
        if self.status is SessionStatus.OPEN:
            raise InvalidValue("a rollout that has ended is not open")


@dataclass(frozen=True, slots=True)
class Rollout:
    """One run of a harness on a task: wanted, under way, or over."""

    task_id: str
    number: int
    """Place in the task, from 0."""
    state: RolloutState
    attempts: int
    """How often it was begun."""
    session_id: str | None
    """Of the latest attempt. None: it was never begun."""
    started_at: datetime | None
    finished_at: datetime | None
    outcome: Outcome | None
    """None: it has not ended, or was skipped before it began."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a task or to one of its rollouts."""

    event_id: int
    recorded_at: datetime
    task_id: str
    number: int | None
    """Of the rollout. None: it happened to the whole task."""
    name: str
    detail: str | None
    """As text. None: the name says all."""


def read_task(row: RowMapping) -> Task:
    """A row of `tasks`."""
    return Task(
        task_id=row["task_id"],
        created_at=row["created_at"],
        job=row["job"],
        key=row["submit_key"],
        request=row["request"],
        priority=row["priority"],
        enough=row["enough"],
        state=TaskState(row["state"]),
        finished_at=row["finished_at"],
        callback=None if row["callback"] is None else CallbackState(row["callback"]),
    )


def read_rollout(row: RowMapping) -> Rollout:
    """A row of `rollouts`."""
    outcome = None
    if row["status"] is not None:
        outcome = Outcome(SessionStatus(row["status"]), bool(row["usable"]), row["reward"], row["outcome"] or "{}")
    return Rollout(
        task_id=row["task_id"],
        number=row["number"],
        state=RolloutState(row["state"]),
        attempts=row["attempts"],
        session_id=row["session_id"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        outcome=outcome,
    )

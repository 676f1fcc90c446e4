"""Tasks and rollouts as they are told to clients."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.rollout.service.verdict import Detail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.store.task_rows import Event, Rollout, Task


def show_task(task: Task, rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """A task, its request and what became of its rollouts so far."""
    return {
        "task_id": task.task_id,
        "state": task.state,
        "created_at": task.created_at,
        "finished_at": task.finished_at,
        "job": task.job or None,
        "priority": task.priority,
        "callback": task.callback,
        "rollouts": Counter(str(one.state) for one in rollouts),
        "statuses": Counter(str(one.outcome.status) for one in rollouts if one.outcome is not None),
        "usable": sum(one.outcome is not None and one.outcome.usable for one in rollouts),
        "request": msgspec.Raw(task.request.encode("utf-8", "replace")),
    }


def show_rollout(one: Rollout) -> dict[str, Any]:
    """A rollout, and how it ended."""
    shown: dict[str, Any] = {
        "number": one.number,
        "state": one.state,
        "attempts": one.attempts,
        "session_id": one.session_id,
        "started_at": one.started_at,
        "finished_at": one.finished_at,
        "status": None,
        "usable": None,
        "reward": None,
    }
    if one.outcome is not None:
        detail = msgspec.json.decode(one.outcome.detail.encode("utf-8", "replace"), type=Detail)
        shown |= {"status": one.outcome.status, "usable": one.outcome.usable, "reward": one.outcome.reward}
        shown["detail"] = detail
    return shown


def show_event(event: Event) -> bytes:
    """As one server-sent event."""
    data = {
        "task_id": event.task_id,
        "number": event.number,
        "at": event.recorded_at,
        "detail": None if event.detail is None else event.detail.encode("utf-8", "replace").decode(),
    }
    return f"id: {event.event_id}\nevent: {event.name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"

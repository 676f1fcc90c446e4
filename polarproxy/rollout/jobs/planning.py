"""From a job and its tasks to what is submitted: every task with every harness and every model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import BadRequest, BadSettings
from polarproxy.rollout.evaluators.asked import Program, TestMap, Tests
from polarproxy.rollout.service.request import RuntimeAsked, TaskRequest, check_request
from polarproxy.store.ids import new_id
from polarproxy.store.task_rows import NewTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from polarproxy.rollout.evaluators.asked import Asked
    from polarproxy.rollout.jobs.dataset import GivenTask
    from polarproxy.rollout.jobs.job import Job


def plan(job: Job, tasks: Sequence[GivenTask], check: Callable[[TaskRequest], None]) -> list[NewTask]:
    """In the order of the tasks; the same job plans the same. Raises `BadSettings` for a task that could not be run."""
    planned = []
    for task in tasks:
        for key, request in _requests(job, task):
            try:
                check_request(request)
                check(request)
            except BadRequest as error:
                raise BadSettings(f"task {task.id!r}: {error}") from error
            planned.append(
                NewTask(
                    task_id=new_id("t"),
                    request=msgspec.json.encode(request, order="deterministic").decode(),
                    rollouts=request.num_samples,
                    job=job.name,
                    key=key,
                    enough=request.enough,
                )
            )
    return planned


def _requests(job: Job, task: GivenTask) -> Iterator[tuple[str, TaskRequest]]:
    run = job.run
    for harness in run.harnesses:
        for model in run.models or (None,):
            # Only those that were given the same task in the same way share a baseline.
            names = [task.id, *([harness] if len(run.harnesses) > 1 else []), *([model] if model is not None else [])]
            group = "/".join([job.name, *names])
            yield (
                "/".join([task.id, harness, model or ""]),
                TaskRequest(
                    instruction=task.instruction,
                    harness=harness,
                    runtime=_runtime(job, task),
                    evaluator=_evaluators(job, task),
                    reward=job.reward,
                    num_samples=run.samples,
                    enough=run.enough,
                    timeout_s=run.timeout_s,
                    judge_unfinished=run.judge_unfinished,
                    keep=job.keep,
                    model=model,
                    sampling=job.sampling,
                    group=group,
                    task=task.id,
                    metadata=run.metadata | task.metadata | {"job": job.name},
                ),
            )


def _runtime(job: Job, task: GivenTask) -> RuntimeAsked:
    place = job.run.runtime if isinstance(job.run.runtime, RuntimeAsked) else RuntimeAsked(kind=job.run.runtime)
    if task.files:
        return msgspec.structs.replace(place, files=place.files | task.files)
    return place if task.folder is None else msgspec.structs.replace(place, folder=task.folder)


def _evaluators(job: Job, task: GivenTask) -> tuple[Asked, ...]:
    given = job.evaluator if task.evaluator is None else task.evaluator
    asked = given if isinstance(given, tuple) else (given,)
    return tuple(
        msgspec.structs.replace(one, files=one.files | task.tests)
        if task.tests and isinstance(one, Tests | TestMap | Program)
        else one
        for one in asked
    )

"""One run of a harness against a proxy of its own in this process, and what was recorded of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from polarproxy.cli.recipes import rebuilt
from polarproxy.cli.runner import running_proxy
from polarproxy.errors import ProxyRefused, RuntimeFailed
from polarproxy.model import SessionStatus, TokenSource
from polarproxy.rollout.running import Access, Outcome, run_harness
from polarproxy.rollout.runtimes.budget import Budget
from polarproxy.rollout.runtimes.folder import OwnFolder
from polarproxy.rollout.runtimes.opening import Runtimes
from polarproxy.rollout.runtimes.protocol import Spec
from polarproxy.rollout.scripted.engine import ScriptedEngine, played
from polarproxy.settings import Settings
from polarproxy.trajectory.integrity import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.model import CapturedCall, Session
    from polarproxy.model.harness import Check
    from polarproxy.proxy.parts import Parts
    from polarproxy.rollout.installing import Installed
    from polarproxy.rollout.runtimes.protocol import Limits, Source

_CONTEXT = 1_000_000
"""The scripted engine counts bytes, so that every prompt is four times as long as elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a harness is to do, and where."""

    instruction: str
    runtime: str
    seconds: float
    limits: Limits
    source: Source | None = None
    """None: an empty working copy."""
    model: str = ""
    """Empty: whatever the engine serves."""
    context: int = 131_072
    asked: str = ""
    """A file of the working copy that is wanted afterwards. Empty: none."""


@dataclass(frozen=True, slots=True)
class Done:
    """A run, and its record."""

    outcome: Outcome
    session: Session
    calls: list[CapturedCall]
    patch: bytes
    """What the harness changed. Empty: nothing."""
    file: bytes | None
    """The file that was asked for. None: it is not there, or none was."""


async def run_task(installed: Installed, task: Task, settings: Settings) -> Done:
    """A session, the harness on the task, and the record; the proxy serves this one session, to its key alone."""
    async with running_proxy(settings) as (base, parts), _control(base, parts) as control:
        wanted = {"harness": installed.recipe.name, "model": task.model, "metadata": {"runtime": task.runtime}}
        session = await _post(control, "/api/sessions", wanted)
        session_id = session["session_id"]
        access = Access(
            session_id=session_id,
            api_key=session["api_key"],
            model=task.model or await _served(parts),
            context=task.context,
        )
        spec = Spec(source=task.source, limits=task.limits, programs=installed.programs, proxy=base)
        status = SessionStatus.INFRA_ERROR
        try:
            async with Runtimes().running(task.runtime, spec) as runtime:
                outcome = await run_harness(installed, runtime, access, task.instruction, Budget(task.seconds))
                status = outcome.status
                patch = await runtime.diff()
                try:
                    file = await runtime.get(task.asked) if task.asked else None
                except (FileNotFoundError, RuntimeFailed):
                    file = None
        except asyncio.CancelledError:
            status = SessionStatus.ABORTED
            raise
        finally:
            await _post(control, f"/api/sessions/{session_id}/close", {"status": status})
        return Done(outcome, parts.repository.session(session_id), parts.repository.calls(session_id), patch, file)


async def _served(parts: Parts) -> str:
    """The first model that the engine serves; any name will do when it does not say."""
    return (await parts.fleet.facts()).model or "model"


def _control(base: str, parts: Parts) -> aiohttp.ClientSession:
    key = parts.settings.admin_key or parts.signer.admin_key
    return aiohttp.ClientSession(base, headers={"Authorization": f"Bearer {key}"})


async def _post(control: aiohttp.ClientSession, path: str, body: Mapping[str, object]) -> dict[str, str]:
    async with control.post(path, json=body, allow_redirects=False) as answer:
        told: dict[str, str] = await answer.json()
        if answer.status >= 300:
            raise ProxyRefused(f"{path}: {told}")
        return told


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check of a harness found."""

    done: Done
    kinds: dict[str, int]
    """Recorded calls by what they were for."""
    trained: int
    """Tokens that would be trained on."""
    branches: int
    left_out: dict[str, int]
    """Calls that would not be, by reason."""
    problems: tuple[str, ...]
    """Empty: all is well."""


async def check(installed: Installed, runtime: str, seconds: float, limits: Limits) -> Checked:
    """The recipe's own small task, with the scripted engine as the model. Raises as `run_task` does."""
    asked = installed.recipe.check
    assert asked is not None
    with OwnFolder("check") as own:
        async with ScriptedEngine(played(asked.turns), context=_CONTEXT) as engine:
            settings = Settings(
                upstream=engine.url, port=0, db=f"sqlite:///{own.path / 'polar.db'}", auth="required", engine="vllm"
            )
            task = Task(
                instruction=asked.instruction,
                runtime=runtime,
                seconds=seconds,
                limits=limits,
                context=_CONTEXT,
                asked=asked.file,
            )
            done = await run_task(installed, task, settings)
    return _checked(done, asked)


def _checked(done: Done, asked: Check) -> Checked:
    whole = rebuilt(done.session, done.calls)
    trained = sum(branch.trained_tokens for branch in whole.trajectory.branches)
    problems = [] if not done.outcome.problem else [done.outcome.problem]
    if asked.answer not in done.outcome.ended.stdout:
        problems.append(f"it did not print {asked.answer!r}")
    if asked.file and (done.file is None or b"hello" not in done.file):
        problems.append(f"it left no {asked.file} with hello in it")
    if len(done.calls) < len(asked.turns):
        problems.append(f"{len(done.calls)} calls were recorded, of {len(asked.turns)} at least")
    if any(captured.call.token_source is not TokenSource.ENGINE for captured in done.calls):
        problems.append("calls were recorded without token ids")
    if not trained:
        problems.append("nothing of it could be trained on")
    problems += [f"{count} × {name}" for name, count in whole.integrity().counts(Severity.ERROR).items()]
    return Checked(
        done,
        whole.judged.kinds(),
        trained,
        len(whole.trajectory.branches),
        whole.trajectory.left_out_by_reason(),
        tuple(problems),
    )

"""One task for one harness: its home is written, its command runs in a runtime, and its end is read."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.errors import BadSettings
from polarproxy.model import SessionStatus
from polarproxy.rollout.filling import Values
from polarproxy.rollout.runtimes.hosted import SYSTEM_PATH
from polarproxy.rollout.runtimes.protocol import StoppedBy

if TYPE_CHECKING:
    from polarproxy.model.harness import Start
    from polarproxy.rollout.installing import Installed
    from polarproxy.rollout.runtimes.budget import Budget
    from polarproxy.rollout.runtimes.protocol import Ended, Runtime

_TERM = "xterm-256color"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How the harness reaches its model. The proxy's address is the runtime's to know."""

    session_id: str
    api_key: str
    model: str
    context: int = 131_072
    """Tokens of the engine's context."""
    output: int = 8_192
    """Most tokens of one answer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the harness did its task, as far as the harness can tell."""

    ended: Ended
    status: SessionStatus
    """`completed`, `timeout` or `agent_error`."""
    problem: str
    """Why it is an error, in one line. Empty: it is none."""
    answer: str
    """Its last words, by its recipe. Empty: it had none."""


async def run_harness(
    harness: Installed, runtime: Runtime, access: Access, instruction: str, budget: Budget, *, resume: bool = False
) -> Outcome:
    """Gives the instruction to the harness and waits for its end, which may be the budget's.

    `resume`: in the latest conversation of this runtime. Raises `BadSettings` when its recipe does not say how,
    `RuntimeFailed` when the runtime did not do its part.
    """
    start = _start(harness, resume)
    values = _values(harness, runtime, access, instruction)
    for path, text in start.files.items():
        await runtime.put(f"{runtime.home}/{path}", values.fill(text).encode())
    env = {name: values.fill(text) for name, text in start.environment.items()}
    env = {"PATH": os.pathsep.join((*harness.path, SYSTEM_PATH)), "TERM": _TERM} | env
    command = [values.fill(part) for part in (start.resume if resume else start.command)]
    ended = await runtime.exec(command, env=env, budget=budget, stdin=values.fill(start.stdin).encode())
    return read_end(harness, ended)


def _start(harness: Installed, resume: bool) -> Start:
    name, start = harness.recipe.name, harness.recipe.start
    if start is None:
        raise BadSettings(f"the recipe of {name} only tells its calls apart; it has no [start] to run it with")
    if resume and not start.resume:
        raise BadSettings(f"the recipe of {name} does not say how a conversation is resumed")
    return start


def _values(harness: Installed, runtime: Runtime, access: Access, instruction: str) -> Values:
    return Values(
        instruction=instruction,
        base_url=runtime.proxy or "",
        api_key=access.api_key,
        model=access.model,
        session_id=access.session_id,
        context=access.context,
        compact_at=access.context * 4 // 5,
        output=access.output,
        python=sys.executable,
        folder=str(harness.folder),
        home=runtime.home,
        work=runtime.work,
    )


def read_end(harness: Installed, ended: Ended) -> Outcome:
    """What the end of a command says, by the recipe."""
    end = harness.recipe.end
    shown = next((text for text in end.failures if text in ended.stdout or text in ended.stderr), None)
    if ended.stopped_by is StoppedBy.TIME:
        status, problem = SessionStatus.TIMEOUT, f"it was still running after {ended.seconds:.0f} s"
    elif ended.stopped_by is not None:
        status, problem = SessionStatus.AGENT_ERROR, f"it passed its limit of {ended.stopped_by}"
    elif ended.exit_code not in end.exit_codes:
        last = (ended.stderr.strip() or ended.stdout.strip()).rpartition("\n")[2][:300]
        status, problem = SessionStatus.AGENT_ERROR, f"exit code {ended.exit_code}: {last}"
    elif shown is not None:
        status, problem = SessionStatus.AGENT_ERROR, f"its output has {shown!r}"
    else:
        status, problem = SessionStatus.COMPLETED, ""
    return Outcome(ended, status, problem, _answer(end.answer, ended.stdout))


def _answer(where: str, stdout: str) -> str:
    text = stdout.strip()
    return {"stdout": text, "last_line": text.rpartition("\n")[2], "none": ""}[where]

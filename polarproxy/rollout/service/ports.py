"""What the service is made of: the places of its stages, and what it must be given from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from polarproxy.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polarproxy.credit.transcript import Transcript
    from polarproxy.model import Session, SessionStatus
    from polarproxy.rollout.runtimes.budget import Budget
    from polarproxy.rollout.runtimes.protocol import Ended, Runtime
    from polarproxy.rollout.service.request import TaskRequest
    from polarproxy.rollout.service.verdict import Verdict
    from polarproxy.store.summaries import CallSummary


@dataclass(frozen=True, slots=True)
class Pools:
    """How many rollouts may be in each stage at once."""

    init: int = 4
    ready: int = 8
    """Runtimes that are made, or ready and wait for a place to run."""
    run: int = 8
    post: int = 4

    def __post_init__(self) -> None:
        for name in ("init", "ready", "run", "post"):
            if getattr(self, name) < 1:
                raise InvalidValue(f"the pool {name} has {getattr(self, name)} places; it needs at least one")


@dataclass(frozen=True, slots=True)
class Order:
    """One rollout that is to be run now."""

    task_id: str
    number: int
    session_id: str
    request: TaskRequest


class HarnessEnd(Protocol):
    """How a harness did its task, as far as the harness can tell."""

    @property
    def ended(self) -> Ended: ...
    @property
    def status(self) -> SessionStatus:
        """`completed`, `timeout` or `agent_error`."""
        ...

    @property
    def problem(self) -> str:
        """Why it is an error, in one line. Empty: it is none."""
        ...


class Workshop(Protocol):
    """Where runtimes and harnesses come from."""

    async def runtime(self, request: TaskRequest) -> Runtime:
        """A new one with the task's working copy; raises `RuntimeFailed`."""
        ...

    async def work(self, order: Order, runtime: Runtime, api_key: str, budget: Budget) -> HarnessEnd:
        """Gives the task to its harness; raises `RuntimeFailed`."""
        ...


class Records(Protocol):
    """What the proxy recorded."""

    async def session(self, session_id: str) -> Session:
        """Raises `NotFound`."""
        ...

    async def calls(self, session_id: str) -> Sequence[CallSummary]:
        """Of a session, in order."""
        ...

    def transcript(self, session: Session) -> Transcript:
        """What was said in it; reads the store."""
        ...


class Executor(Protocol):
    """Who runs rollouts: the stages in this process, or those of a cluster."""

    @property
    def places(self) -> int:
        """How many rollouts to have under way."""
        ...

    async def run(self, order: Order) -> Verdict:
        """One rollout; cancelled, it leaves nothing behind."""
        ...

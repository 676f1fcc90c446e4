"""What the processes of one database tell each other: how busy they are, and which upstreams were changed while they run.

On SQLite there is one process, and what was changed ends with it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from polarproxy.errors import StoreUnavailable
from polarproxy.store.database import reason
from polarproxy.store.ids import new_id
from polarproxy.store.roster import ALL, Roster, UpstreamState

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from polarproxy.proxy.exact.prompts import ExactPrompts
    from polarproxy.proxy.fleet import Fleet
    from polarproxy.proxy.gate import Gate
    from polarproxy.proxy.parts import Stats
    from polarproxy.store.keeper import Keeper
    from polarproxy.store.roster import Seen

_PERIOD_S = 1.0


class Load(msgspec.Struct, frozen=True):
    """What one process has to do with one upstream."""

    in_flight: int = 0
    calls: int = 0
    sessions: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(self.in_flight + other.in_flight, self.calls + other.calls, self.sessions + other.sessions)


class Report(msgspec.Struct, frozen=True):
    """What one process tells of itself."""

    host: str
    pid: int
    worker: int | None
    """Its number among the processes of one port. None: it is the only one."""
    counts: dict[str, int]
    """Since it started; `waiting` is of now."""
    exact_prompts: dict[str, int]
    """What became of exact prompts, and how often."""
    upstreams: dict[str, Load]
    """By name."""


class Muster:
    """This process among those that share the database."""

    def __init__(
        self,
        engine: Engine,
        fleet: Fleet,
        writer: Keeper,
        stats: Stats,
        exact: ExactPrompts,
        gate: Gate,
        worker: int | None,
    ) -> None:
        self._gate = gate
        self._roster = Roster(engine, new_id("p")) if engine.dialect.name == "postgresql" else None
        self._fleet, self._writer, self._stats, self._exact, self._worker = fleet, writer, stats, exact, worker
        self._changes: dict[str, UpstreamState] = {}
        self._turn = asyncio.Lock()
        """What was read before a change must not be taken for what came after it."""
        self._telling: asyncio.Task[None] | None = None
        self.others: tuple[Report, ...] = ()
        """What the other processes told last; none while the database cannot be asked."""

    async def start(self) -> None:
        """Joins the others, with the upstreams that they have."""
        if self._roster is None:
            return
        await self._take(await asyncio.to_thread(self._roster.join, self._told()))
        self._telling = asyncio.create_task(self._tell())

    async def close(self) -> None:
        """Leaves the others."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait((self._telling,))
        if self._roster is not None:
            # Without it, it counts as alive for some seconds more.
            with suppress(SQLAlchemyError):
                await asyncio.to_thread(self._roster.leave)

    def own(self) -> Report:
        """What this process tells."""
        store = {"waiting": self._writer.waiting, "not_stored": self._writer.failed}
        counts = asdict(self._stats) | store | {"reused_tokens": self._exact.reused_tokens}
        outcomes = {str(outcome): count for outcome, count in self._exact.outcomes.items()}
        sessions = self._fleet.sessions()
        loads = {one.name: Load(one.in_flight, one.calls, sessions[one.name]) for one in self._fleet.members}
        return Report(socket.gethostname(), os.getpid(), self._worker, counts, outcomes, loads)

    def load(self, name: str) -> Load:
        """Of an upstream, at all processes."""
        loads = [report.upstreams.get(name, Load()) for report in (self.own(), *self.others)]
        return sum(loads, Load())

    async def change(self, name: str, state: UpstreamState) -> None:
        """Decides on an upstream: here at once, elsewhere within a second or two. Raises `StoreUnavailable`."""
        async with self._turn:
            if self._roster is not None:
                try:
                    await asyncio.to_thread(self._roster.change, name, state)
                except SQLAlchemyError as error:
                    raise StoreUnavailable(f"the change could not be told to the others: {reason(error)}") from error
            self._changes[name] = state
            await self._apply()

    async def pause(self, *, paused: bool) -> None:
        """Pauses or resumes generation, everywhere before this returns. Raises `StoreUnavailable`."""
        await self.change(ALL, UpstreamState.PAUSED if paused else UpstreamState.ACTIVE)
        if self.others:
            await asyncio.sleep(2 * _PERIOD_S)

    async def _apply(self) -> None:
        if self._changes.get(ALL) is UpstreamState.PAUSED:
            self._gate.close()
        else:
            self._gate.open()
        await self._fleet.change({name: state for name, state in self._changes.items() if name != ALL})

    async def _tell(self) -> None:
        assert self._roster is not None
        while True:
            await asyncio.sleep(_PERIOD_S)
            async with self._turn:
                try:
                    await self._take(await asyncio.to_thread(self._roster.tell, self._told(), self._changes))
                except SQLAlchemyError:
                    # The writer says what is wrong with the database; the upstreams stay as they are known.
                    self.others = ()
                except Exception as error:  # noqa: BLE001  (a process that ends telling counts as gone, and hears of nothing)
                    self.others = ()
                    report = {"message": "the other processes could not be told", "exception": error}
                    asyncio.get_running_loop().call_exception_handler(report)

    async def _take(self, seen: Seen) -> None:
        self._changes = dict(seen.changes)
        self.others = tuple(report for text in seen.others if (report := _read(text)) is not None)
        await self._apply()

    def _told(self) -> str:
        return msgspec.json.encode(self.own()).decode()


def _read(text: str) -> Report | None:
    """None: it is of another version, and says things that this one does not know."""
    try:
        return msgspec.json.decode(text, type=Report)
    except msgspec.DecodeError:
        return None

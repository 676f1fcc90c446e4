"""What every crash test stands on: an engine, a proxy that can be killed, a database, and clients that never stop asking."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

from tests import database, postgres
from tests.bench.process import Child, free_port, start, wait_ready
from tests.crash.client import Gate, Harness, Ledger
from tests.crash.engine import Engine, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

SECONDS = 60.0
"""Longest wait for anything at all."""
_ANSWER = aiohttp.ClientTimeout(total=SECONDS)
_FEW = 8


@dataclass(frozen=True)
class Database:
    """Where the proxy records."""

    url: str
    file: Path | None
    """Of a SQLite database; None: it is none."""
    server: postgres.Server | None
    """Of a PostgreSQL database; None: it is none."""


@contextmanager
def a_database(kind: str, folder: Path) -> Iterator[Database]:
    """An empty database until the block ends; a file in this folder, or a server of its own."""
    if kind == "sqlite":
        file = folder / "polar.db"
        yield Database(database.fresh(file), file, None)
        return
    with postgres.running() as server:
        yield Database(server.fresh(), None, server)


@dataclass
class Stage:
    """What a round has to do with."""

    database: Database
    base: str
    engine: Engine
    ledger: Ledger
    gate: Gate
    rng: random.Random
    http: aiohttp.ClientSession
    _command: Sequence[str]
    _log: Path
    _child: Child | None = None
    _players: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """Of the proxy."""
        assert self._child is not None
        return self._child.process.pid

    @property
    def running(self) -> bool:
        """Whether there is a proxy that nobody killed."""
        return self._child is not None

    async def start_proxy(self) -> None:
        """Returns when it serves. Raises RuntimeError when it does not come up."""
        self._child, _ = start(self._command, None, self._log)
        await asyncio.to_thread(wait_ready, self._child, f"{self.base}/readyz")
        self.gate.open.set()

    def kill_proxy(self) -> None:
        """SIGKILL."""
        self.gate.open.clear()
        assert self._child is not None
        self._child.kill()
        self._child = None

    def stop_proxy(self) -> None:
        """As an operator would."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    async def play(self, shortest: float, longest: float) -> None:
        """Lets the clients go on for some time in between."""
        await asyncio.sleep(self.rng.uniform(shortest, longest))

    async def recovered(self) -> None:
        """Returns when some more replies were seen, and a spool is not needed any more. Raises `TimeoutError`."""
        wanted = len(self.ledger.seen) + _FEW
        async with asyncio.timeout(SECONDS):
            while len(self.ledger.seen) < wanted:
                self._look_for_faults()
                await asyncio.sleep(0.005)
            while (await self._spool()).get("database_away"):  # noqa: ASYNC110  (nothing signals it)
                await asyncio.sleep(0.02)

    async def drained(self) -> None:
        """Returns when next to nothing waits in a spool. Raises `TimeoutError`."""
        async with asyncio.timeout(SECONDS):
            while (await self._spool()).get("records", 0) > _FEW * _FEW:  # noqa: ASYNC110  (nothing signals it)
                await asyncio.sleep(0.02)

    def _look_for_faults(self) -> None:
        for player in self._players:
            if player.done():
                player.result()
        if self._child is not None and self._child.process.poll() is not None:
            raise RuntimeError(f"the proxy ended by itself: {self._log.read_text()[-2000:]}")

    async def _spool(self) -> dict[str, Any]:
        """What the proxy says of its spool; empty when it has none."""
        async with self.http.get(f"{self.base}/api/stats") as reply:
            found: dict[str, Any] = (await reply.json()).get("spool", {})
            return found

    async def finish(self) -> None:
        """Lets every client end its turn, and the proxy store all that it holds."""
        self.gate.over = True
        self.gate.open.set()
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*self._players)
        deadline = time.monotonic() + SECONDS
        while (spool := await self._spool()).get("records"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the spool is not drained: {spool}")
            await asyncio.sleep(0.05)
        if spool.get("refused"):
            raise RuntimeError(f"the database refused records of the spool: {spool}")
        await asyncio.to_thread(self.stop_proxy)


@asynccontextmanager
async def a_stage(
    found: Database, work: Path, arguments: Sequence[str], *, seed: int, clients: int
) -> AsyncIterator[Stage]:
    """Everything but a running proxy; `arguments` are for `polarproxy serve`."""
    rng, port = random.Random(seed), free_port()
    base = f"http://127.0.0.1:{port}"
    connector = aiohttp.TCPConnector(limit=0)
    async with serving(seed) as engine, aiohttp.ClientSession(timeout=_ANSWER, connector=connector) as http:
        command = [sys.executable, "-m", "polarproxy", "serve", "--upstream", f"http://127.0.0.1:{engine.port}"]
        command += ["--host", "127.0.0.1", "--port", str(port), "--db", found.url, "--engine", "vllm", *arguments]
        command += ["--key-file", str(work / "key")]
        stage = Stage(found, base, engine, Ledger(), Gate(), rng, http, command, work / "polarproxy.log")
        harnesses = [Harness(base, stage.ledger, random.Random(rng.random())) for _ in range(clients)]
        stage._players = [asyncio.create_task(harness.play(http, stage.gate)) for harness in harnesses]
        try:
            yield stage
        finally:
            for player in stage._players:
                player.cancel()
            await asyncio.gather(*stage._players, return_exceptions=True)
            if stage.running:
                stage.kill_proxy()

"""One command as a process of this machine: its output kept within bounds, and its end, whichever comes first."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from polarproxy.rollout.runtimes import shim
from polarproxy.rollout.runtimes.orphans import kill_orphans
from polarproxy.rollout.runtimes.protocol import Ended, StoppedBy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from polarproxy.rollout.runtimes.budget import Budget

    Watch = Callable[[int], Awaitable[StoppedBy | None]]
    """Looks at all that runs below a process; None: within its limits."""

KEPT = 1 << 20
"""Bytes of each output that are kept of its beginning, and as many of its end."""
_WATCHED_S = 0.5
_GONE_S = shim.GONE_S + 3.0
_READ_S = 3.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `shim.py` is told."""

    memory_mb: int | None = None
    file_mb: int | None = None
    processes: int | None = None
    """Limits. None: there is none."""
    user: int | None = None
    """The user to become. None: stay who it is."""
    relay: tuple[int, str] | None = None
    """A loopback port, and the Unix socket behind it."""
    folder: str | None = None
    """Where the command runs. None: where the shim does."""
    parent: int | None = None
    """The process whose end is its own. None: whoever has started it, as soon as it looks."""
    by_signal: bool = False
    """Whether it ends by the signal that ended the command, in place of 128 and its number."""


def shimmed(settings: Settings, command: Sequence[str], place: str = shim.__file__) -> list[str]:
    """The command line that runs a command below the shim, which lies at `place`."""
    python = str(Path(sys.executable).resolve())
    return [python, "-I", "-S", place, msgspec.json.encode(settings).decode(), *command]


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to start. All that it started must be gone when it ends, and it must end when it is sent SIGTERM."""

    command: Sequence[str]
    env: Mapping[str, str]
    folder: Path
    stdin: bytes
    output_mb: int
    ends_with_child: bool = False
    """Whether its only child is to be killed instead, after which it ends."""
    home: Path | None = None
    """The folder that is the home of all that it starts, and of nothing else. None: they have homes of their own."""


class _Output(asyncio.Protocol):
    """The beginning and the end of what is written into a pipe."""

    def __init__(self) -> None:
        self.size = 0
        self.closed = asyncio.get_running_loop().create_future()
        self._head, self._tail = bytearray(), bytearray()

    def data_received(self, data: bytes) -> None:
        self.size += len(data)
        free = KEPT - len(self._head)
        self._head += data[:free]
        self._tail += data[free:]
        if len(self._tail) > 2 * KEPT:
            del self._tail[:-KEPT]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def text(self) -> str:
        tail = self._tail[-KEPT:]
        between = self.size - len(self._head) - len(tail)
        note = f"\n[{between:,} bytes are left out here]\n" if between else ""
        return self._head.decode(errors="replace") + note + tail.decode(errors="replace")


async def run(launch: Launch, budget: Budget, watch: Watch) -> Ended:
    """Runs it until it ends, the budget is spent, or `watch` finds a limit passed. Raises OSError if it cannot be started."""
    started = time.monotonic()
    with budget.running():
        async with _Process(launch) as process:
            stopped_by = await _first(process, budget, watch)
    return Ended(
        exit_code=128 + signal.SIGKILL if stopped_by is not None else process.exit_code,
        stdout=process.stdout.text(),
        stderr=process.stderr.text(),
        stopped_by=stopped_by,
        seconds=time.monotonic() - started,
    )


class _Process:
    """Starts the process on entry; on exit it and all that it started are gone, and its output is read."""

    stdout: _Output
    stderr: _Output

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.exit_code = 0
        self._pipes: list[asyncio.ReadTransport] = []

    async def __aenter__(self) -> _Process:
        with tempfile.TemporaryFile() as stdin, contextlib.ExitStack() as ours:
            stdin.write(self.launch.stdin)
            stdin.seek(0)
            self.stdout, out = await self._pipe(ours)
            self.stderr, err = await self._pipe(ours)
            try:
                self.process = await asyncio.create_subprocess_exec(
                    *self.launch.command,
                    stdin=stdin,
                    stdout=out,
                    stderr=err,
                    cwd=self.launch.folder,
                    env=dict(self.launch.env),
                    start_new_session=True,
                )
            except BaseException:
                self._close()
                raise
        return self

    async def _pipe(self, ours: contextlib.ExitStack) -> tuple[_Output, BinaryIO]:
        # Not asyncio's own pipes: with those, the wait for the process is also one for all who hold the other end.
        read, write = os.pipe()
        other: BinaryIO = ours.enter_context(os.fdopen(write, "wb", 0))
        transport, output = await asyncio.get_running_loop().connect_read_pipe(_Output, os.fdopen(read, "rb", 0))
        self._pipes.append(transport)
        return output, other

    async def __aexit__(self, *_: object) -> None:
        try:
            await asyncio.shield(asyncio.ensure_future(self._end()))
        finally:
            self._close()

    async def _end(self) -> None:
        self._end_it()
        try:
            async with asyncio.timeout(_GONE_S):
                code = await self.process.wait()
                if code == -signal.SIGKILL and self.launch.home is not None:
                    # Not even its keeper was left to end what it started.
                    await asyncio.to_thread(kill_orphans, self.launch.home)
                await asyncio.wait([self.stdout.closed, self.stderr.closed], timeout=_READ_S)
        except TimeoutError:
            for pid in await asyncio.to_thread(shim.descendants, self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._signal(os.killpg, signal.SIGKILL)
            code = await self.process.wait()
        self.exit_code = code if code >= 0 else 128 - code

    def _end_it(self) -> None:
        pid = self.process.pid
        child = _only_child(pid) if self.launch.ends_with_child and self.process.returncode is None else None
        if child is None:
            self._signal(os.kill, signal.SIGTERM)
            # A program may have stopped its keeper.
            self._signal(os.kill, signal.SIGCONT)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def _signal(self, send: Callable[[int, int], None], number: int) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                send(self.process.pid, number)

    def _close(self) -> None:
        for pipe in self._pipes:
            pipe.close()


def _only_child(pid: int) -> int | None:
    """None: it has none, or the kernel does not tell."""
    try:
        children = Path("/proc", str(pid), "task", str(pid), "children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


async def _first(process: _Process, budget: Budget, watch: Watch) -> StoppedBy | None:
    ended = asyncio.ensure_future(process.process.wait())
    spent = asyncio.ensure_future(budget.spent())
    passed = asyncio.ensure_future(_passed(process, watch))
    waiting = (ended, spent, passed)
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return None
        return passed.result() if passed.done() else StoppedBy.TIME
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _passed(process: _Process, watch: Watch) -> StoppedBy:
    most = process.launch.output_mb << 20
    while True:
        await asyncio.sleep(_WATCHED_S)
        if process.stdout.size + process.stderr.size > most:
            return StoppedBy.OUTPUT
        if (reason := await watch(process.process.pid)) is not None:
            return reason

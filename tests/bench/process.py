"""Child processes pinned to a core, and what they cost."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0


@dataclass(frozen=True)
class Cores:
    """`target` is the core the measured proxy has to itself; `load` carries client and engine."""

    target: int
    load: int

    @classmethod
    def pick(cls) -> Cores:
        """The first two cores this process may use; the same one twice where there is only one."""
        allowed = sorted(os.sched_getaffinity(0))
        return cls(allowed[0], allowed[1 % len(allowed)])

    @contextmanager
    def load_only(self) -> Iterator[None]:
        """Keeps this process on the load's core meanwhile."""
        with _pinned(self.load):
            yield


@contextmanager
def _pinned(core: int | None) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before if core is None else {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass
class Child:
    """One started process. `log` holds its standard error (and output, unless that is read for a port)."""

    process: subprocess.Popen[str]
    log: Path
    _seen: dict[int, int] = field(default_factory=dict)

    def cpu_ns(self) -> int:
        """CPU time of the process tree so far, in ns, by the scheduler's own account of every thread.

        `/proc/PID/stat` counts in steps of 10 ms, as long as a hundred requests. Threads that ended since they were
        last seen count with what they had used then.
        """
        for pid in (self.process.pid, *(child.pid for child in self._tree())):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(FileNotFoundError):
                    self._seen[int(task.name)] = int((task / "schedstat").read_text().split()[0])
        return sum(self._seen.values())

    def rss(self) -> int:
        """Resident bytes of the process tree now."""
        me = psutil.Process(self.process.pid)
        return sum(process.memory_info().rss for process in (me, *self._tree()))

    def stop(self) -> None:
        """Ends it as an operator would; after ten seconds, by SIGKILL."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._forget()

    def kill(self) -> None:
        """Ends it by SIGKILL, at once."""
        self.process.kill()
        self._forget()

    def _forget(self) -> None:
        self.process.wait(_STOP_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()

    def _tree(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@dataclass(frozen=True)
class Bystanders:
    """How much of the two cores went to processes that are not part of the benchmark: on a shared machine, the noise."""

    cores: Cores
    ours: Sequence[Child]

    def cpu_ns(self) -> int:
        """CPU time spent by others on these cores since boot, give or take a constant and some 10 ms."""
        names = {f"cpu{self.cores.target}", f"cpu{self.cores.load}"}
        lines = (line.split() for line in Path("/proc/stat").read_text().splitlines())
        # user nice system, then irq softirq steal: neither idle nor waiting for a disk.
        ticks = sum(int(f) for name, *fields in lines if name in names for f in (*fields[:3], *fields[5:8]))
        ours = time.process_time_ns() + sum(child.cpu_ns() for child in self.ours)
        return ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK")) - ours


def start(command: Sequence[str], core: int | None, log: Path, *, read_port: bool = False) -> tuple[Child, int]:
    """Starts `command` on one core (None: on any); with `read_port` waits for the port that it prints, else that is 0.

    Raises RuntimeError with the log's end when the process ends before it has printed a port.
    """
    with log.open("a") as errors, _pinned(core):  # inherited by the child and by every thread that it starts
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if read_port else errors,
            stderr=errors,
            text=True,
        )
    child = Child(process, log)
    if not read_port:
        return child, 0
    assert process.stdout
    line = process.stdout.readline()
    if not line.strip().isdigit():
        child.stop()
        raise RuntimeError(f"{command[0]} gave no port: {log.read_text()[-2000:]}")
    return child, int(line)


def free_port() -> int:
    """A loopback port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_ready(child: Child, url: str) -> None:
    """Returns when `url` answers with a status below 400. Raises RuntimeError when the process ended or 60 s passed."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and child.process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    child.stop()
    raise RuntimeError(f"{url} did not become ready: {child.log.read_text()[-2000:]}")

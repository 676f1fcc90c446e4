"""Several proxy processes on one port, started again when they die and ended together.

Each worker accepts from a listening socket of its own; the kernel spreads connections over them (SO_REUSEPORT). The parent
keeps all of these sockets open, so connections that wait at a worker that died are served by the one that takes its place.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BACKLOG = 1024
_SETTLED_S = 10.0
"""A worker that lived for so long did not die of how it starts."""
_LONGEST_PAUSE_S = 15.0
_STOP_S = 60.0
"""How long workers have to end: open replies may take half a minute, and then what is queued is stored."""
_WRONG_USE = 2
_ENDED = (0, -signal.SIGTERM, -signal.SIGINT)
"""How a worker ends that was told to; by the signal itself before it had anything to look after."""
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Worker:
    """What a process needs to know to be one of several."""

    number: int
    """From 1."""
    speaks: bool
    """Whether it is the one of them that tells what answers upstream: the first one, when it starts for the first time."""
    listener: socket.socket
    parent: int
    """A descriptor that becomes readable when the parent is gone, however it went."""


@dataclass(slots=True)
class _Slot:
    number: int
    listener: socket.socket
    pid: int | None = None
    """None: it is to be started at `due`."""
    started: float = 0.0
    due: float = 0.0
    early_deaths: int = 0
    """In a row."""
    runs: int = 0


def listen(host: str, port: int) -> socket.socket:
    """The one listening socket of a port; raises `BadSettings`."""
    try:
        return socket.create_server((host, port), family=_family(host), backlog=BACKLOG)
    except OSError as error:
        raise BadSettings(f"cannot listen on {host}:{port}: {error.strerror}") from error


def listen_together(host: str, port: int, count: int) -> list[socket.socket]:
    """So many listening sockets of one port; raises `BadSettings` when another program has it."""
    # Sockets that share a port also share it with a stranger's that are willing to; this one is not.
    with listen(host, port) as alone:
        taken: int = alone.getsockname()[1]
    family = _family(host)
    return [socket.create_server((host, taken), family=family, backlog=BACKLOG, reuse_port=True) for _ in range(count)]


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def supervise(listeners: Sequence[socket.socket], say: Callable[[str], None]) -> Worker | int:
    """Returns in every worker, as what it is, and in the end in the parent, with its exit code.

    The code is 0 when a signal ended it and every worker ended in order; that of a worker that cannot be started
    because of how it is set up; else 1.
    """
    return _Supervisor(listeners, say).run()


class _Supervisor:
    def __init__(self, listeners: Sequence[socket.socket], say: Callable[[str], None]) -> None:
        self._slots = [_Slot(number, listener) for number, listener in enumerate(listeners, 1)]
        self._say = say
        self._alive = os.pipe()
        self._signalled = os.pipe()
        os.set_blocking(self._signalled[1], False)
        self._deadline: float | None = None
        """When workers that have not ended are killed. None: nobody is to end."""
        self._code = 0

    def run(self) -> Worker | int:
        # What exists now is shared by all of them, as long as no collection touches it.
        gc.collect()
        gc.freeze()
        signal.set_wakeup_fd(self._signalled[1], warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda _number, _frame: None)
        while True:
            for slot in self._slots:
                worker = self._start_if_due(slot)
                if worker is not None:
                    return worker
            self._wait()
            for slot in self._slots:
                self._reap(slot)
            if self._deadline is not None and all(slot.pid is None for slot in self._slots):
                return self._code

    def _start_if_due(self, slot: _Slot) -> Worker | None:
        """Starts a worker where there is none; not None in that worker."""
        now = time.monotonic()
        if slot.pid is not None or self._deadline is not None or now < slot.due:
            return None
        slot.started, slot.runs = now, slot.runs + 1
        slot.pid = os.fork()
        return None if slot.pid else self._become(slot)

    def _become(self, own: _Slot) -> Worker:
        """In the child: leaves everything that is the parent's."""
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        for descriptor in (self._alive[1], *self._signalled):
            os.close(descriptor)
        for slot in self._slots:
            if slot is not own:
                slot.listener.close()
        return Worker(own.number, own.number == own.runs == 1, own.listener, self._alive[0])

    def _wait(self) -> None:
        """Until a signal comes, or the next thing is due."""
        due = [slot.due for slot in self._slots if slot.pid is None and self._deadline is None]
        if self._deadline is not None:
            due.append(self._deadline)
        timeout = max(0.0, min(due) - time.monotonic()) if due else None
        readable, _, _ = select.select([self._signalled[0]], [], [], timeout)
        came = os.read(self._signalled[0], 4096) if readable else b""
        if {signal.SIGTERM, signal.SIGINT}.intersection(came):
            self._end_all("stopping: open replies may finish, then everything queued is stored")
        elif self._deadline is not None and time.monotonic() >= self._deadline:
            self._kill_all()

    def _end_all(self, why: str) -> None:
        if self._deadline is not None:
            return
        self._say(why)
        self._deadline = time.monotonic() + _STOP_S
        for slot in self._slots:
            # Nobody would accept what comes now.
            slot.listener.close()
            if slot.pid is not None:
                os.kill(slot.pid, signal.SIGTERM)

    def _kill_all(self) -> None:
        for slot in self._slots:
            if slot.pid is not None:
                self._say(f"worker {slot.number} (process {slot.pid}) has not ended in {_STOP_S:g} s and is killed")
                os.kill(slot.pid, signal.SIGKILL)
        self._deadline = time.monotonic() + _STOP_S

    def _reap(self, slot: _Slot) -> None:
        if slot.pid is None:
            return
        pid, status = os.waitpid(slot.pid, os.WNOHANG)
        if pid == 0:
            return
        slot.pid = None
        code = os.waitstatus_to_exitcode(status)
        if self._deadline is not None:
            self._code = self._code or int(code not in _ENDED)
        elif code == _WRONG_USE and slot.runs == 1:
            # Later on it is the world that changed, not the settings: the database is away, and will come back.
            self._code = code
            self._end_all(f"worker {slot.number} cannot work like this; all are stopped")
        else:
            self._again(slot, pid, code)

    def _again(self, slot: _Slot, pid: int, code: int) -> None:
        """Soon, but not at once for one that dies over and over."""
        now = time.monotonic()
        slot.early_deaths = slot.early_deaths + 1 if now - slot.started < _SETTLED_S else 0
        pause = min(2.0 ** (slot.early_deaths - 1), _LONGEST_PAUSE_S) if slot.early_deaths else 0.0
        slot.due = now + pause
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        when = f"in {pause:g} s" if pause else "at once"
        self._say(f"worker {slot.number} (process {pid}) {how}; another one starts {when}")

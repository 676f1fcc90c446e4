"""Items on their way to the writer's thread, and those who wait until they are committed.

A request waits on a future of its event loop; whoever has no loop gets a future of `concurrent.futures`; what nobody waits
for costs neither.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from polarproxy.errors import StoreUnavailable
from polarproxy.model.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
Done: TypeAlias = "Future[None] | asyncio.Future[None] | None"
"""Who waits. None: nobody."""

MAX_GROUP = 256
PATIENCE_S = 0.05
"""How long items that nobody waits for may wait for one to be committed with. A flush of their own would cost as much."""
_GATHER_S = 0.002
_GATHER_MOST_S = 0.012
_LULL_S = 0.05
"""When nothing has come for so long, there is no reason to expect more."""
_GROUPS_REMEMBERED = 4


class Inbox(Generic[T]):
    """A queue with an upper bound and an end. `put` may be called from any thread, `next_group` from one.

    A commit costs much the same whatever it holds, so under load a group is left to grow: until it is as large as the
    largest of the latest ones, for more are not to be expected, or for some milliseconds. What comes alone waits for nobody.
    """

    def __init__(self, size: int, can_wait: Callable[[T], bool]) -> None:
        """`can_wait` tells the items that need not be committed at once."""
        self.size = size
        self._can_wait = can_wait
        # Counted here: a queue that blocks when it is full costs more each time.
        self._queue: queue.SimpleQueue[tuple[T, Done] | None] = queue.SimpleQueue()
        self._ending = threading.Lock()
        self._closed = False
        self._sizes: deque[int] = deque([1], _GROUPS_REMEMBERED)
        """How many items that cannot wait the latest groups held."""
        self._wanted = 0
        """Items in the queue that are worth waking up for. 0: nobody sleeps."""
        self._enough = threading.Event()
        self._idle_since: float | None = None
        """When whoever takes the groups began to wait for the next one. None: it has one."""

    def put(self, item: T, done: Done) -> None:
        """Raises `StoreUnavailable` when it is full or closed."""
        with self._ending:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            if self.full:
                raise StoreUnavailable(self.refusal)
            self._queue.put((item, done))
            if 0 < self._wanted <= self._queue.qsize():
                self._enough.set()

    @property
    def waiting(self) -> int:
        """Items that were not taken yet."""
        return self._queue.qsize()

    @property
    def full(self) -> bool:
        """Whether another item would be refused."""
        return self._queue.qsize() >= self.size

    @property
    def refusal(self) -> str:
        """What a new call is told when it is full."""
        return f"too much waits to be stored: {counted(self.size, 'call')}"

    def close(self) -> bool:
        """Takes nothing more. What it holds is still given out. Whether it was open."""
        with self._ending:
            was_open, self._closed = not self._closed, True
            if was_open:
                self._queue.put(None)
                self._enough.set()
        return was_open

    def next_group(self, idle_s: float | None = None) -> tuple[list[tuple[T, Done]], bool]:
        """Waits for items, at most so many seconds for the first (None: as long as it takes); whether none will follow."""
        if self._idle_since is None:
            self._idle_since = time.monotonic()
        try:
            entry = self._queue.get(timeout=idle_s)
        except queue.Empty:
            return [], False
        idle, self._idle_since = time.monotonic() - self._idle_since, None
        if entry is not None and idle < _LULL_S:
            self._let_grow(max(self._sizes))
        group, ended = self._take(entry)
        self._sizes.append(sum(not self._can_wait(item) for item, _ in group))
        return group, ended

    def _let_grow(self, expected: int) -> None:
        """Returns when a group of so many items can be had, one of which was taken already, or has been waited for."""
        self._enough.clear()
        self._wanted = expected - 1
        if self._queue.qsize() < self._wanted and not self._closed:
            self._enough.wait(min(_GATHER_MOST_S, _GATHER_S * self._wanted))
        self._wanted = 0

    def _take(self, entry: tuple[T, Done] | None) -> tuple[list[tuple[T, Done]], bool]:
        """This item and what else is there. When nobody waits for any of it, something is waited for."""
        group: list[tuple[T, Done]] = []
        urgent, deadline = False, 0.0
        while entry is not None:
            item, done = entry
            if isinstance(done, Future):
                # From here on it can no longer be cancelled; the item is written in any case.
                done.set_running_or_notify_cancel()
            urgent = urgent or not self._can_wait(item)
            group.append(entry)
            if len(group) == MAX_GROUP:
                return group, False
            try:
                if urgent:
                    entry = self._queue.get_nowait()
                else:
                    deadline = deadline or time.monotonic() + PATIENCE_S
                    entry = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return group, False
        return group, True


async def wait_for(committed: asyncio.Future[None], timeout: float) -> None:  # noqa: ASYNC109  (the caller's, by name)
    """Returns when it ends well; raises `StoreUnavailable` when it has not ended in so many seconds, and what it raises."""
    loop = committed.get_loop()
    # A loop that was held up may have been told of the commit already, and run its timers first (uvloop does).
    timer = loop.call_later(timeout, loop.call_soon, _give_up, committed, timeout)
    try:
        await committed
    finally:
        timer.cancel()


def _give_up(committed: asyncio.Future[None], timeout: float) -> None:
    if not committed.done():
        committed.set_exception(StoreUnavailable(f"the store did not commit within {timeout:g} s"))


def settle(waiting: Iterable[Done], error: Exception | None = None) -> None:
    """Tells those who wait, each event loop once. A loop that is gone has nobody waiting."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for done in waiting:
        if done is None:
            continue
        if isinstance(done, asyncio.Future):
            by_loop.setdefault(done.get_loop(), []).append(done)
        elif not done.cancelled():
            _end(done, error)
    for loop, futures in by_loop.items():
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_end_all, futures, error)


def _end_all(futures: list[asyncio.Future[None]], error: Exception | None) -> None:
    for future in futures:
        if not future.done():
            _end(future, error)


def _end(future: Future[None] | asyncio.Future[None], error: Exception | None) -> None:
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)

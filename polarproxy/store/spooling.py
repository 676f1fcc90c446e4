"""The writer with a spool behind it: what the database does not take, or not in time, is acknowledged when it is in the spool.

In good days an item goes to the writer and nowhere else. When the writer fails or is too slow, the item goes into the spool,
and what comes after it too, until the database takes what is in there. Whether the writer stored it in the end makes no
difference: the same item again is nothing.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from polarproxy.errors import StoreUnavailable, Unstorable
from polarproxy.store.draining import Drainer, placed
from polarproxy.store.inbox import Done, Inbox, settle, wait_for
from polarproxy.store.items import Fact, Item, NewCall
from polarproxy.store.spool_records import encode, subject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from polarproxy.store.arrivals import Arrivals
    from polarproxy.store.keeper import Keeper
    from polarproxy.store.spool import Spool
    from polarproxy.store.spool_records import Subject

log = logging.getLogger(__name__)

_PATIENCE_S = 2.0
_AGAIN_S = 0.25
"""How long after a failed attempt the database is tried again."""
_DISK_S = 10.0
"""How long the disk of the spool may take at least: there is nobody else who could take a call."""
_BELIEVED_S = 10.0
"""How long a spool that could not be written counts as such when nothing has been put into it since."""
_LAST_S = 10.0
"""How long a stopping proxy waits for the database to take what is in the spool."""


def patience(timeout: float) -> float:
    """How many seconds the database has before the spool takes over, where a client waits for so long at most."""
    return min(_PATIENCE_S, timeout / 3)


class SpoolingWriter:
    """Takes what a `Writer` takes. Every method may be called from any thread, `write` in an event loop."""

    def __init__(
        self, writer: Keeper, spool: Spool, arrivals: Arrivals, engine: Engine, queue_size: int = 4096
    ) -> None:
        """Begins to drain what the spool holds. Raises `BadSpool` when a call in it can have no place in this database."""
        for place in spool.places():
            arrivals.restore(place)
        self._writer = writer
        self.spool = spool
        self._inbox: Inbox[Item] = Inbox(queue_size, can_wait=lambda item: isinstance(item, Fact))
        self._drainer = Drainer(spool, writer, engine, arrivals.settle)
        self._something = threading.Event()
        self._ending = threading.Event()
        self._trouble: str | None = None
        self._stumbled = 0.0
        self._failed = 0
        self._tries = threading.Condition()
        self._tried: dict[Future[None], tuple[Item, Future[None]]] = {}
        """What was submitted and is with the writer, by the future there. Whoever takes it out answers for it."""
        spool.away = len(spool) > 0
        self._threads = [
            threading.Thread(target=self._append_all, name="polarproxy-spool", daemon=True),
            threading.Thread(target=self._drain_all, name="polarproxy-drain", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self._something.set()

    async def write(self, item: Item, timeout: float) -> None:  # noqa: ASYNC109  (the caller's setting, by name)
        """Returns when the item is committed, or on the disk of the spool.

        Raises `StoreUnavailable` when it is neither within `timeout` seconds, of which a slow disk of the spool gets ten at
        least, `StoreConflict` as the writer does.
        """
        if not self._behind(item):
            try:
                await self._writer.write(placed(item), patience(timeout))
            except StoreUnavailable as error:
                self._went_away(error)
            except asyncio.CancelledError:
                # Nobody waits for it any more, and whether it was committed is not known.
                with suppress(StoreUnavailable):
                    self._inbox.put(item, None)
                raise
            else:
                return
        spooled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(item, spooled)
        await wait_for(spooled, max(timeout, _DISK_S))

    def submit(self, item: Item) -> Future[None]:
        """Queues an item. The future ends as `write` does, without a limit of time; raises `StoreUnavailable` when there is no
        room."""
        done: Future[None] = Future()
        if not self._behind(item):
            with suppress(StoreUnavailable):
                tried = self._writer.submit(placed(item))
                self._tried[tried] = (item, done)
                tried.add_done_callback(self._was_tried)
                return done
        self._put(item, done)
        return done

    def note(self, item: Item) -> None:
        """As `submit`, for an item for which nobody waits."""
        self.submit(item)

    def _was_tried(self, tried: Future[None]) -> None:
        error = tried.exception()
        with self._tries:
            item, done = self._tried.pop(tried, (None, None))
            if item is not None and isinstance(error, StoreUnavailable):
                self._went_away(error)
                self._put_or_fail(item, done)
            self._tries.notify_all()
        if item is not None and not isinstance(error, StoreUnavailable):
            settle([done], error if isinstance(error, Exception) else None)

    def _put_or_fail(self, item: Item, done: Done) -> None:
        try:
            self._put(item, done)
        except StoreUnavailable as refused:
            settle([done], refused)

    def _give_up_trying(self) -> None:
        """What the writer still has when its time is over goes into the spool too; that it is stored twice is nothing."""
        with self._tries:
            self._tries.wait_for(lambda: not self._tried, 0 if self.spool.away else _PATIENCE_S)
            for item, done in self._tried.values():
                self._put_or_fail(item, done)
            self._tried.clear()

    def _put(self, item: Item, done: Done) -> None:
        try:
            self._inbox.put(item, done)
        except StoreUnavailable:
            self._failed += 1
            raise

    def _behind(self, item: Item) -> bool:
        """Whether the item has to go into the spool: the database is away, or something is in there that comes before it."""
        spool = self.spool
        if spool.away:
            return True
        if isinstance(item, Fact):
            return spool.holds_call(item.call_id)
        if isinstance(item, NewCall):
            return spool.holds_session(item.call.session_id) or (item.place is not None and item.place.waits)
        return spool.holds_session(item.session_id)

    def _went_away(self, error: StoreUnavailable) -> None:
        if not self.spool.away and not isinstance(error, Unstorable):
            log.warning("%s; from now on the spool %s takes what comes", error, self.spool.folder)
            self.spool.away = True

    @property
    def waiting(self) -> int:
        """Items that are neither committed nor in the spool yet."""
        return self._inbox.waiting + self._writer.waiting

    @property
    def failed(self) -> int:
        """Items that are in neither since the start."""
        return self._failed

    @property
    def trouble(self) -> str | None:
        """Why nothing can be acknowledged. None: it can."""
        return self._trouble

    async def look(self, patience: float) -> str | None:
        """As `trouble`. A spool that cannot be written is no trouble where the database takes what comes; of neither is it
        known before a call is there, so that after some seconds the next one may try."""
        if self._trouble is not None and not self.spool.away and await self._writer.look(patience) is None:
            self._trouble = None
        if self._trouble is not None and time.monotonic() - self._stumbled > _BELIEVED_S:
            self._trouble = None
        return self._trouble

    @property
    def full(self) -> bool:
        """Whether a new call would be refused."""
        return self._inbox.full

    def close(self, timeout: float = 30.0) -> None:
        """Puts what is queued where it can go, and ends the threads. What stays in the spool is stored by the next process."""
        self._give_up_trying()
        if not self._inbox.close():
            return
        self._threads[0].join(timeout)
        self._ending.set()
        self._something.set()
        self._threads[1].join(_LAST_S)
        self._writer.close(timeout)
        if len(self.spool):
            log.warning("%d records stay in the spool %s for the next start", len(self.spool), self.spool.folder)
        self.spool.close()

    def _append_all(self) -> None:
        ended = False
        while not ended:
            group, ended = self._inbox.next_group()
            if group:
                self._append(group)

    def _append(self, group: list[tuple[Item, Done]]) -> None:
        records: list[tuple[bytes, Subject]] = []
        waiting: list[Done] = []
        for item, done in group:
            try:
                records.append((encode(item), subject(item)))
                waiting.append(done)
            except Exception as error:  # noqa: BLE001  (one item is at fault; it ends neither this thread nor the other items)
                self._fail([done], Unstorable(f"the spool cannot hold this record: {type(error).__name__}: {error}"))
        try:
            self.spool.append(records)
        except OSError as error:
            why = f"the spool {self.spool.folder} cannot be written: {error.strerror or error}"
            log.error("%s; the database is asked again", why)
            self._trouble, self._stumbled = why, time.monotonic()
            # Nothing says when the spool has room again, but the database may be back.
            self.spool.away = len(self.spool) > 0
            self._fail(waiting, StoreUnavailable(why))
        else:
            self._trouble = None
            settle(waiting)
        self._something.set()

    def _fail(self, waiting: Sequence[Done], error: Exception) -> None:
        self._failed += len(waiting)
        settle(waiting, error)

    def _drain_all(self) -> None:
        while not self._ending.is_set() or (len(self.spool) and not self.spool.away):
            self._something.wait()
            self._something.clear()
            while len(self.spool):
                if self._drain_some():
                    continue
                if self._ending.wait(_AGAIN_S):
                    return
            self.spool.away = False

    def _drain_some(self) -> bool:
        try:
            taken = self._drainer.some()
        except Exception:  # a fault of ours must not end this thread; what is in the spool stays there
            log.exception("the spool could not be drained")
            taken = False
        if taken and self.spool.away:
            log.warning("the database takes records again; %d are left in the spool", len(self.spool))
            self.spool.away = False
        elif not taken:
            self.spool.away = len(self.spool) > 0
        return taken

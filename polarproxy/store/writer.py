"""One thread that writes, and commits many calls at once: acknowledged means committed, at the price of one flush a group.

The queue is bounded. When it is full, or when a group cannot be committed, the waiting requests are told so; the thread
goes on with the next group, so that a disk that has room again or a lock that was released needs no restart.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy.exc import DBAPIError, IntegrityError

from polarproxy.errors import StoreConflict, StoreUnavailable, Unstorable
from polarproxy.store.database import for_writing, is_trouble, reason, was_rolled_back
from polarproxy.store.inbox import Done, Inbox, settle, wait_for
from polarproxy.store.items import Fact, NewCall
from polarproxy.store.recording import Recording
from polarproxy.store.trial import Trial

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from polarproxy.store.items import Item

_LOOK_S = 1.0
"""How often the files of the database are looked at while nothing is written."""

_Waiting: TypeAlias = "tuple[Item | Trial, Done]"


class Writer:
    """Stores calls, facts and sessions; every method may be called from any thread."""

    def __init__(self, engine: Engine, queue_size: int = 4096) -> None:
        self._recording = Recording(for_writing(engine))
        # Nobody waits for a fact.
        self._inbox: Inbox[Item | Trial] = Inbox(queue_size, can_wait=lambda item: isinstance(item, Fact))
        self._thread = threading.Thread(target=self._run, name="polarproxy-writer", daemon=True)
        self._trouble: str | None = None
        self._trial: asyncio.Future[None] | None = None
        self.failed = 0
        """Items that could not be stored since the start."""
        self._thread.start()

    def submit(self, item: Item) -> Future[None]:
        """Queues an item. The future ends when it is committed; raises `StoreUnavailable` when the queue is full."""
        done: Future[None] = Future()
        self._put(item, done)
        return done

    def note(self, item: Item) -> None:
        """Queues an item for which nobody waits; raises `StoreUnavailable` when the queue is full."""
        self._put(item, None)

    async def write(self, item: Item, timeout: float) -> None:  # noqa: ASYNC109  (the caller's setting, by name)
        """Returns when the item is committed.

        Raises `StoreUnavailable` when it was not within `timeout` seconds (it may still be), `StoreConflict` when another
        call has its id or its place. The same call again is stored once.
        """
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(item, committed)
        try:
            await wait_for(committed, timeout)
        except Unstorable:
            raise
        except StoreUnavailable as error:
            # Where it did not answer at all, nobody else says so.
            self._trouble = str(error)
            raise

    def _put(self, item: Item, done: Done) -> None:
        try:
            self._inbox.put(item, done)
        except StoreUnavailable:
            self.failed += 1
            raise

    @property
    def waiting(self) -> int:
        """Items in the queue."""
        return self._inbox.waiting

    @property
    def trouble(self) -> str | None:
        """Why nothing could be committed when that was tried last, or why nothing more is taken now. None: it could."""
        return self._inbox.refusal if self._inbox.full else self._trouble

    async def look(self, patience: float) -> str | None:
        """As `trouble`. When there is any, it is tried first whether it is over, for which so many seconds are waited."""
        if self._trouble is None:
            return self.trouble
        if self._trial is None or self._trial.done():
            trial: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            try:
                self._inbox.put(Trial(), trial)
            except StoreUnavailable as error:
                return str(error)
            # It may fail after the last one who waited for it went away.
            trial.add_done_callback(asyncio.Future.exception)
            self._trial = trial
        await asyncio.wait((self._trial,), timeout=patience)
        return self.trouble

    @property
    def full(self) -> bool:
        """Whether a new call would be refused."""
        return self._inbox.full

    def close(self, timeout: float = 30.0) -> None:
        """Commits what is queued and ends the thread."""
        if self._inbox.close():
            self._thread.join(timeout)

    def _run(self) -> None:
        ended = False
        while not ended:
            group, ended = self._inbox.next_group(_LOOK_S)
            if group:
                self._commit(group)
            elif not ended:
                self._look_after_files()
        self._recording.close()

    def _look_after_files(self) -> None:
        """What was acknowledged is to be there still when the process is killed, also when no more calls come."""
        try:
            self._recording.files.require()
        except StoreUnavailable as error:
            self._stumble(str(error))

    def _commit(self, group: list[_Waiting]) -> None:
        try:
            self._recording.write([item for item, _ in group])
        except Exception as error:  # noqa: BLE001  (whatever it is, those who wait are told and the thread goes on)
            if was_rolled_back(error) or not is_trouble(error):
                self._commit_one_by_one(group)
                return
            # Each of them by itself would fail alike, and what is damaged is not to be written to.
            self._stumble(_said(error))
            for item, done in group:
                self._fail(item, done, StoreUnavailable(f"the store could not commit: {_said(error)}"))
        else:
            self._trouble = None
            settle(done for _, done in group)

    def _commit_one_by_one(self, group: list[_Waiting]) -> None:
        """A group was refused because of one of its items: the others must not suffer for it."""
        for item, done in group:
            try:
                self._write_once(item)
            except Exception as error:  # noqa: BLE001  (whatever is wrong with the item, its request is told)
                self._refuse(item, done, error)
            else:
                self._trouble = None
                settle([done])

    def _write_once(self, item: Item | Trial) -> None:
        """Nothing is to be done for a call that is stored already: it was committed, and only the word of it got lost."""
        try:
            self._recording.write([item])
        except IntegrityError:
            if not isinstance(item, NewCall) or not self._recording.holds(item.call):
                raise

    def _refuse(self, item: Item | Trial, done: Done, error: Exception) -> None:
        why = _said(error)
        if isinstance(error, StoreConflict):
            self._fail(item, done, error)
        elif isinstance(error, IntegrityError):
            self._fail(item, done, StoreConflict(f"{_name(item)} contradicts what is stored: {why}"))
        elif is_trouble(error):
            self._stumble(why)
            self._fail(item, done, StoreUnavailable(f"{_name(item)} cannot be stored: {why}"))
        else:
            self._fail(item, done, Unstorable(f"{_name(item)} cannot be stored: {why}"))

    def _stumble(self, why: str) -> None:
        """The database that comes back may be an older one (a standby): what was stored is no base for what comes."""
        self._trouble = why
        self._recording.forget()

    def _fail(self, item: Item | Trial, done: Done, error: Exception) -> None:
        self.failed += not isinstance(item, Trial)
        settle([done], error)


def _said(error: Exception) -> str:
    if isinstance(error, StoreUnavailable):
        return str(error)
    return reason(error) if isinstance(error, DBAPIError) else f"{type(error).__name__}: {error}"


def _name(item: Item | Trial) -> str:
    if isinstance(item, Trial):
        return "a trial"
    if isinstance(item, NewCall):
        return f"call {item.call.call_id}"
    if isinstance(item, Fact):
        return f"{item.name} of call {item.call_id}"
    return f"session {item.session_id}"

"""What a delegate needs of a queue, and one in this process."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from polarproxy.errors import MessageTooLarge
from polarproxy.store.ids import new_id

_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that is this receiver's for a while."""

    text: str
    handle: str
    """Names this delivery to the queue."""
    times: int
    """How often the message was delivered, with this time; a queue may count only about right."""


class Queue(Protocol):
    """Messages that come at least once, in about the order in which they were sent. Every method raises `QueueFailed`."""

    async def send(self, text: str) -> None:
        """Returns when it is the queue's to keep. Raises `MessageTooLarge`."""
        ...

    async def receive(self, most: int, visible_s: float) -> list[Delivery]:
        """Up to `most` messages, after a while perhaps none; others do not see them for `visible_s` seconds."""
        ...

    async def extend(self, delivery: Delivery, visible_s: float) -> None:
        """Others do not see the message for so many seconds from now on; 0: it is there for everybody."""
        ...

    async def acknowledge(self, delivery: Delivery) -> None:
        """It is worked off and does not come again."""
        ...


@dataclass(slots=True)
class _Held:
    text: str
    handle: str = ""
    times: int = 0
    visible_at: float = 0.0


class LocalQueue:
    """Within this process: what is in it when the process ends is lost."""

    def __init__(self, most_bytes: int = 1 << 20) -> None:
        self._most_bytes = most_bytes
        self._held: list[_Held] = []
        self._changed = asyncio.Event()

    @property
    def left(self) -> int:
        """Messages that nobody acknowledged."""
        return len(self._held)

    async def send(self, text: str) -> None:
        """To its end. Raises `MessageTooLarge`."""
        size = len(text.encode())
        if size > self._most_bytes:
            raise MessageTooLarge(f"a message of {size} bytes does not fit into this queue ({self._most_bytes})")
        self._held.append(_Held(text))
        self._changed.set()

    async def receive(self, most: int, visible_s: float) -> list[Delivery]:
        """Looks again for a second when there is nothing."""
        until = time.monotonic() + _WAIT_S
        while not (found := self._take(most, visible_s)) and (left := until - time.monotonic()) > 0:
            self._changed.clear()
            soonest = min((one.visible_at for one in self._held), default=until) - time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.001, min(left, soonest))):
                    await self._changed.wait()
        return found

    async def extend(self, delivery: Delivery, visible_s: float) -> None:
        """Nothing happens when somebody else received it since."""
        for one in self._held:
            if one.handle == delivery.handle:
                one.visible_at = time.monotonic() + visible_s
                self._changed.set()

    async def acknowledge(self, delivery: Delivery) -> None:
        """Nothing happens when somebody else received it since."""
        self._held = [one for one in self._held if one.handle != delivery.handle]

    def _take(self, most: int, visible_s: float) -> list[Delivery]:
        now = time.monotonic()
        found = [one for one in self._held if one.visible_at <= now][:most]
        for one in found:
            one.handle, one.times, one.visible_at = new_id("m"), one.times + 1, now + visible_s
        return [Delivery(one.text, one.handle, one.times) for one in found]

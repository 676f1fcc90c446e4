"""The outlet of one reply that several clients listen to, whenever they came."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from multidict import CIMultiDict

    from polarproxy.model import Dialect
    from polarproxy.proxy.outlet import HttpOutlet, Outlet
    from polarproxy.proxy.replies import Refusal

    Said = bytes | Callable[[Outlet], Awaitable[None]]
    """One thing that an outlet is told; bytes: more of the stream."""

_KEPT = 2 << 20
"""Bytes of one reply that are kept for who may join it; a longer one can be joined no more."""
_PATIENCE_S = 1.0
"""How long a client may hold up those who listen with it."""


class SharedOutlet:
    """The outlet of a reply that several may listen to; what it is told goes to the first one at once, and is kept."""

    def __init__(self, first: HttpOutlet) -> None:
        self._first: HttpOutlet | None = first
        self._said: list[Said] = []
        self._ended = False
        """Whether the last of it was the end of the reply."""
        self._news = asyncio.Event()
        self._kept = 0
        self._waiting = False
        """Whether the first client is being waited for."""
        self.listening = 0
        """Clients that joined and are still there."""

    @property
    def open(self) -> bool:
        return self._first is not None and self._first.open

    @property
    def whole(self) -> bool:
        """Whether all that was said is still kept."""
        return self._kept <= _KEPT

    @property
    def alone(self) -> bool:
        """Whether nobody listens."""
        return self._first is None and not self.listening

    def leave(self) -> None:
        """The first client is gone."""
        self._first = None

    def hurry(self) -> None:
        """Somebody else listens now: a first client that is being waited for is given up."""
        if self._waiting and self._first is not None:
            self._first.abort()

    def wake(self) -> None:
        """There is something new to hear, or the reply has ended."""
        self._news.set()

    async def hear(self, outlet: Outlet, ended: Callable[[], bool]) -> bool:
        """Tells all that was said and will be to one who joined; False when the reply ended without an answer."""
        at = 0
        while True:
            self._news.clear()
            while at < len(self._said):
                await _tell(outlet, self._said[at])
                at += 1
            if self._ended:
                return True
            if ended():
                return False
            await self._news.wait()

    async def begin(self, head: CIMultiDict[str]) -> None:
        await self._tell(lambda outlet: outlet.begin(head))

    async def write(self, data: bytes) -> None:
        await self._tell(data, len(data))

    async def end(self, data: bytes) -> None:
        await self._tell(lambda outlet: outlet.end(data), len(data), last=True)

    async def answer(self, status: int, head: Mapping[str, str], body: bytes) -> None:
        await self._tell(lambda outlet: outlet.answer(status, head, body), len(body), last=True)

    async def refuse(self, refusal: Refusal, dialect: Dialect) -> None:
        await self._tell(lambda outlet: outlet.refuse(refusal, dialect), last=True)

    async def break_off(self, last: bytes) -> None:
        await self._tell(lambda outlet: outlet.break_off(last), last=True)

    async def _tell(self, said: Said, size: int = 0, *, last: bool = False) -> None:
        self._kept += size
        if self.whole or self.listening:
            self._said.append(said)
        else:
            self._said.clear()
        self._ended = last
        self._news.set()
        first = self._first
        if first is None:
            return
        try:
            self._waiting = True
            if self.listening:
                async with asyncio.timeout(_PATIENCE_S):
                    await _tell(first, said)
            else:
                await _tell(first, said)
        except (ConnectionResetError, TimeoutError) as error:
            # Half of something may have been written to it: nothing else may follow.
            first.abort()
            self._first = None
            if not self.listening:
                raise ConnectionResetError("the client does not read") from error
        finally:
            self._waiting = False


def _tell(outlet: Outlet, said: Said) -> Awaitable[None]:
    return outlet.write(said) if isinstance(said, bytes) else said(outlet)

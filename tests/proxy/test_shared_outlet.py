"""An outlet that several clients hear: none holds up the others, and what nobody may join any more is not kept."""

import asyncio

import pytest
from multidict import CIMultiDict

from polarproxy.model import Dialect
from polarproxy.proxy import shared_outlet
from polarproxy.proxy.outlet import HttpOutlet
from polarproxy.proxy.replies import Refusal
from polarproxy.proxy.shared_outlet import SharedOutlet


class Slow(HttpOutlet):
    """A client that does not read."""

    def __init__(self) -> None:
        self.given_up = asyncio.Event()

    async def write(self, data: bytes) -> None:
        await self.given_up.wait()
        raise ConnectionResetError

    def abort(self) -> None:
        self.given_up.set()

    @property
    def open(self) -> bool:
        return not self.given_up.is_set()


class Heard:
    """What one client was told."""

    open = True

    def __init__(self) -> None:
        self.said: list[bytes] = []

    async def begin(self, head: CIMultiDict[str]) -> None:
        self.said.append(b"begin")

    async def write(self, data: bytes) -> None:
        self.said.append(data)

    async def end(self, data: bytes) -> None:
        self.said.append(data)

    async def answer(self, status: int, head: object, body: bytes) -> None:
        await self.end(body)

    async def refuse(self, refusal: Refusal, dialect: Dialect) -> None:
        await self.end(b"refused")

    async def break_off(self, last: bytes) -> None:
        await self.end(last)


async def test_a_first_client_that_does_not_read_holds_nobody_up() -> None:
    shared, heard = SharedOutlet(Slow()), Heard()
    telling = asyncio.create_task(shared.write(b"one"))
    await asyncio.sleep(0)
    shared.listening += 1
    shared.hurry()
    await asyncio.wait_for(telling, 10)
    await shared.write(b"two")
    await shared.end(b"three")
    await shared.hear(heard, lambda: True)
    assert heard.said == [b"one", b"two", b"three"]


async def test_a_first_client_that_stops_reading_is_let_go_while_others_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_outlet, "_PATIENCE_S", 0.01)
    slow, heard = Slow(), Heard()
    shared = SharedOutlet(slow)
    shared.listening += 1
    await asyncio.wait_for(shared.write(b"one"), 10)
    assert (slow.given_up.is_set(), shared.open) == (True, False)
    await shared.end(b"two")
    assert await shared.hear(heard, lambda: True)
    assert heard.said == [b"one", b"two"]


async def test_a_long_reply_is_kept_only_for_those_who_listen() -> None:
    shared = SharedOutlet(HttpOutlet.__new__(HttpOutlet))
    shared.leave()
    piece = bytes(1 << 20)
    await shared.write(piece)
    assert (shared.whole, len(shared._said)) == (True, 1)
    for _ in range(3):
        await shared.write(piece)
    assert (shared.whole, shared._said) == (False, [])

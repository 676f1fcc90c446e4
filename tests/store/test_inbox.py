"""Groups grow under load, and nobody waits longer than there is something to wait for."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import uvloop

from polarproxy.store import inbox
from polarproxy.store.inbox import Inbox, settle, wait_for

SECONDS = 20

Group = tuple[list[str], bool]


@pytest.fixture(autouse=True)
def for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as a test can wait, only items end the waiting for more of them."""
    for name in ("_GATHER_S", "_GATHER_MOST_S", "_LULL_S"):
        monkeypatch.setattr(inbox, name, 10 * SECONDS)


def filled(*items: str) -> Inbox[str]:
    made: Inbox[str] = Inbox(1000, can_wait=lambda item: item.startswith("later"))
    put(made, *items)
    return made


def put(box: Inbox[str], *items: str) -> None:
    for item in items:
        box.put(item, None)


def take(box: Inbox[str]) -> Group:
    group, ended = box.next_group()
    return [item for item, _ in group], ended


def in_a_thread(box: Inbox[str]) -> Future[Group]:
    """The next group, while this thread goes on."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(take, box)
    pool.shutdown(wait=False)
    return future


def test_what_comes_alone_waits_for_nobody() -> None:
    box = filled("a")
    assert take(box) == (["a"], False)
    put(box, "b")
    assert take(box) == (["b"], False)


def test_what_comes_after_a_lull_waits_for_nobody_however_often_the_waiting_was_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox, "_LULL_S", 0.05)
    box = filled("a", "b", "c")
    take(box)
    for _ in range(3):
        assert box.next_group(0.02) == ([], False)
    put(box, "d")
    assert in_a_thread(box).result(SECONDS) == (["d"], False)


def test_a_group_grows_until_it_is_as_large_as_the_one_before() -> None:
    box = filled("a", "b", "c")
    assert take(box) == (["a", "b", "c"], False)
    put(box, "d")
    growing = in_a_thread(box)
    put(box, "e", "f")
    assert growing.result(SECONDS) == (["d", "e", "f"], False)


def test_a_small_group_does_not_make_it_forget_how_many_come_together() -> None:
    box = filled("a", "b", "c")
    take(box)
    put(box, "later 1", "later 2", "d")
    # Those that can wait count for what is there, not for what is to be expected.
    assert take(box) == (["later 1", "later 2", "d"], False)
    put(box, "e")
    growing = in_a_thread(box)
    put(box, "f", "g")
    assert growing.result(SECONDS) == (["e", "f", "g"], False)


def test_nothing_is_waited_for_once_it_is_closed() -> None:
    box = filled("a", "b", "c")
    take(box)
    put(box, "d")
    growing = in_a_thread(box)
    box.close()
    assert growing.result(SECONDS) == (["d"], True)


def test_large_groups_of_long_ago_are_forgotten() -> None:
    box = filled("a", "b", "c")
    take(box)
    for _ in range(inbox._GROUPS_REMEMBERED):
        put(box, "later", "later", "alone")
        assert take(box) == (["later", "later", "alone"], False)
    put(box, "b")
    assert take(box) == (["b"], False)


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_what_was_committed_in_time_is_not_refused_by_a_loop_that_is_late(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """A machine that is busy holds up the loop of the requests too."""

    async def late() -> None:
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(wait_for(committed, 0.05))
        await asyncio.sleep(0)
        writer = threading.Thread(target=settle, args=([committed],))
        writer.start()
        writer.join()
        time.sleep(0.1)  # noqa: ASYNC251  (that is the trouble)
        await waiting

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(late())

"""One thread writes: acknowledged means committed, many at once, and no item suffers for another."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait

import pytest
from sqlalchemy import Engine, event

from polarproxy.errors import StoreConflict, StoreUnavailable
from polarproxy.model import Sampling
from polarproxy.store.inbox import MAX_GROUP, Done
from polarproxy.store.items import Fact, Item
from polarproxy.store.repository import Repository
from polarproxy.store.schema import DELIVERED
from polarproxy.store.trial import Trial
from polarproxy.store.writer import Writer
from tests.store.samples import NOW, a_call, a_session, new_call

SECONDS = 20


class GatedWriter(Writer):
    """Commits nothing before its gate is opened; `groups` are the sizes of the groups it took."""

    def __init__(self, engine: Engine, queue_size: int = 4096) -> None:
        self.gate = threading.Event()
        self.took = threading.Event()
        self.groups: list[int] = []
        super().__init__(engine, queue_size)

    def _commit(self, group: list[tuple[Item | Trial, Done]]) -> None:
        self.groups.append(len(group))
        self.took.set()
        assert self.gate.wait(SECONDS)
        super()._commit(group)

    def hold(self, item: Item) -> Future[None]:
        """Submits an item and returns when the thread holds it at the gate."""
        future = self.submit(item)
        assert self.took.wait(SECONDS)
        return future


@pytest.fixture
def gated(engine: Engine) -> Iterator[GatedWriter]:
    made = GatedWriter(engine)
    yield made
    made.gate.set()
    made.close()


def numbered(number: int) -> Item:
    return new_call(a_call(f"c{number}", number))


def recorded(repository: Repository) -> list[str]:
    return [captured.call.call_id for captured in repository.calls("s1")]


def test_many_waiting_calls_cost_one_commit(gated: GatedWriter, engine: Engine, repository: Repository) -> None:
    first = gated.hold(numbered(0))
    futures = [gated.submit(numbered(number)) for number in range(1, 101)]
    commits: list[object] = []
    event.listen(engine, "commit", commits.append)
    gated.gate.set()
    wait([first, *futures], SECONDS)
    assert gated.groups == [1, 100]
    assert len(commits) == 2
    assert recorded(repository) == [f"c{number}" for number in range(101)]


def test_a_group_is_not_larger_than_its_limit(gated: GatedWriter) -> None:
    gated.hold(numbered(0))
    futures = [gated.submit(numbered(number)) for number in range(1, MAX_GROUP + 11)]
    gated.gate.set()
    wait(futures, SECONDS)
    assert gated.groups == [1, MAX_GROUP, 10]


def test_acknowledged_means_committed(gated: GatedWriter, repository: Repository) -> None:
    future = gated.hold(numbered(0))
    assert not future.done()
    assert recorded(repository) == []
    gated.gate.set()
    future.result(SECONDS)
    assert recorded(repository) == ["c0"]


def test_a_bad_item_in_a_group_does_not_hurt_the_others(gated: GatedWriter, repository: Repository) -> None:
    gated.hold(numbered(0))
    good = [gated.submit(numbered(number)) for number in (1, 2)]
    same_id = gated.submit(new_call(a_call("c1", 9)))
    same_ordinal = gated.submit(new_call(a_call("c9", 1)))
    nobody = gated.submit(Fact("nobody", NOW, DELIVERED, "yes"))
    good.append(gated.submit(numbered(3)))
    gated.gate.set()
    for future in good:
        future.result(SECONDS)
    for future in (same_id, same_ordinal, nobody):
        with pytest.raises(StoreConflict):
            future.result(SECONDS)
    assert recorded(repository) == ["c0", "c1", "c2", "c3"]


@pytest.mark.parametrize(
    "bad",
    [a_call("bad", 1, sampling=Sampling(max_tokens=2**80)), a_call("bad", 1, http_status=2**64)],
    ids=["a number that no driver takes", "a number that no column holds"],
)
def test_a_call_that_cannot_be_stored_ends_neither_the_thread_nor_its_neighbours(
    gated: GatedWriter, repository: Repository, bad: object
) -> None:
    gated.hold(numbered(0))
    good = gated.submit(numbered(2))
    refused = gated.submit(new_call(bad))  # type: ignore[arg-type]
    gated.gate.set()
    good.result(SECONDS)
    with pytest.raises(StoreUnavailable, match="call bad cannot be stored"):
        refused.result(SECONDS)
    gated.submit(numbered(3)).result(SECONDS)
    assert recorded(repository) == ["c0", "c2", "c3"]
    assert gated.trouble is None


@pytest.mark.parametrize("second", [a_call("c1", 1), a_call("c2", 0)], ids=["the same id", "the same ordinal"])
def test_a_call_is_stored_once(writer: Writer, repository: Repository, second: object) -> None:
    writer.submit(new_call(a_call("c1", 0))).result(SECONDS)
    with pytest.raises(StoreConflict):
        writer.submit(new_call(second)).result(SECONDS)  # type: ignore[arg-type]
    assert [captured.call for captured in repository.calls("s1")] == [a_call("c1", 0)]


def test_a_call_and_what_is_known_of_it_can_be_stored_together(gated: GatedWriter, repository: Repository) -> None:
    gated.hold(a_session("before"))
    futures = [gated.submit(numbered(0)), gated.submit(Fact("c0", NOW, DELIVERED, "yes"))]
    gated.gate.set()
    for future in futures:
        future.result(SECONDS)
    (captured,) = repository.calls("s1")
    assert captured.delivered


def test_a_full_queue_refuses_at_once(engine: Engine, repository: Repository) -> None:
    gated = GatedWriter(engine, queue_size=2)
    gated.hold(numbered(0))
    futures = [gated.submit(numbered(number)) for number in (1, 2)]
    assert gated.full
    assert gated.waiting == 2
    with pytest.raises(StoreUnavailable, match="too much waits to be stored: 2 calls"):
        gated.submit(numbered(3))
    gated.gate.set()
    wait(futures, SECONDS)
    assert not gated.full
    gated.submit(numbered(3)).result(SECONDS)
    gated.close()
    assert recorded(repository) == ["c0", "c1", "c2", "c3"]


def test_closing_commits_what_is_queued(gated: GatedWriter, repository: Repository) -> None:
    gated.hold(numbered(0))
    for number in range(1, 300):
        gated.submit(numbered(number))
    gated.gate.set()
    gated.close()
    assert len(recorded(repository)) == 300


def test_a_closed_writer_takes_nothing_and_closes_again(writer: Writer) -> None:
    writer.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        writer.submit(numbered(0))
    writer.close()


def test_whatever_is_taken_while_it_closes_is_committed(engine: Engine, repository: Repository) -> None:
    """No item slips in behind the end of the queue, where nobody would ever write it."""
    writer, taken = Writer(engine), list[Future[None]]()

    def submit(start: int) -> None:
        for number in range(start, 10_000, 8):
            try:
                taken.append(writer.submit(new_call(a_call(f"c{number}", number))))
            except StoreUnavailable:
                return

    threads = [threading.Thread(target=submit, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    writer.close()
    for thread in threads:
        thread.join(SECONDS)
    for future in taken:
        future.result(0)
    assert len(recorded(repository)) == len(taken)


async def test_who_stops_waiting_disturbs_nobody(gated: GatedWriter, repository: Repository) -> None:
    """One leaves while its call is being committed, one while it is in the queue; both calls are stored."""
    waiting = [asyncio.create_task(gated.write(numbered(0), SECONDS))]
    await asyncio.to_thread(gated.took.wait, SECONDS)
    waiting += [asyncio.create_task(gated.write(numbered(number), SECONDS)) for number in (1, 2)]
    await asyncio.sleep(0)
    for task in waiting[:2]:
        task.cancel()
    done = await asyncio.gather(*waiting[:2], return_exceptions=True)
    assert [type(result) for result in done] == [asyncio.CancelledError] * 2
    gated.gate.set()
    await waiting[2]
    assert recorded(repository) == ["c0", "c1", "c2"]


async def test_waiting_ends_after_its_time_and_the_call_may_still_be_stored(
    gated: GatedWriter, repository: Repository
) -> None:
    with pytest.raises(StoreUnavailable, match=r"within 0\.01 s"):
        await gated.write(numbered(0), 0.01)
    gated.gate.set()
    await gated.write(numbered(1), SECONDS)
    assert recorded(repository) == ["c0", "c1"]

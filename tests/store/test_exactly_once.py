"""A call is stored once, however often it is given: again after its acknowledgement was lost, or twice at a time."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from polarproxy.errors import StoreConflict, StoreUnavailable
from polarproxy.model import Call, Logprobs, Loss, TokenIds
from polarproxy.store.database import open_database
from polarproxy.store.items import NewCall
from polarproxy.store.repository import Repository
from polarproxy.store.responses import StoredResponse
from polarproxy.store.writer import Writer
from tests.store.samples import a_call, a_completion, a_session, new_call

SECONDS = 20
CALL = a_call("c1", 0, range(100), (7, 8), headers=(("x-a", "b"),), request_body=b"hello", losses=(Loss("a", "b"),))
RESPONSE = StoredResponse("resp_c1", None, b"[]", b"{}")


def stored(repository: Repository) -> list[Call]:
    return [captured.call for captured in repository.calls("s1")]


@contextmanager
def deaf(engine: Engine) -> Iterator[None]:
    """Commits reach the database, and the connection breaks before it can say so."""
    dialect: Any = engine.dialect
    commit, lost = dialect.do_commit, dialect.dbapi.OperationalError

    def unheard(connection: Any) -> None:
        commit(connection)
        raise lost("the connection was lost")

    dialect.do_commit = unheard
    yield
    dialect.do_commit = commit


@pytest.mark.parametrize("together", [1, 3])
def test_a_call_whose_acknowledgement_was_lost_is_not_doubled(
    engine: Engine, repository: Repository, together: int
) -> None:
    items = [NewCall(CALL, a_session(), {7: b"text"}, RESPONSE)]
    items += [new_call(a_call(f"c{number}", number - 1)) for number in range(2, together + 1)]
    writer = Writer(engine)
    with deaf(engine):
        for done in [writer.submit(item) for item in items]:
            with pytest.raises(StoreUnavailable):
                done.result(SECONDS)
    for done in [writer.submit(item) for item in items]:
        done.result(SECONDS)
    writer.close()
    assert stored(repository) == [item.call for item in items]
    assert [found.response for found in repository.response_chain("resp_c1")] == [RESPONSE]
    assert list(repository.verify()) == []


def test_a_new_process_may_give_it_again(engine: Engine, repository: Repository) -> None:
    for _ in range(2):
        writer = Writer(engine)
        writer.submit(new_call(CALL)).result(SECONDS)
        assert writer.failed == 0
        writer.close()
    assert stored(repository) == [CALL]


def test_given_twice_in_one_group(engine: Engine, repository: Repository) -> None:
    writer = Writer(engine)
    for done in [writer.submit(new_call(CALL)) for _ in range(20)]:
        done.result(SECONDS)
    writer.close()
    assert stored(repository) == [CALL]


def test_given_to_several_processes_at_once(url: str, repository: Repository) -> None:
    engines = [open_database(url) for _ in range(4)]
    writers = [Writer(engine) for engine in engines]
    ready = threading.Barrier(len(writers))
    calls = [a_call(f"c{number}", number, range(40 + number), (number,)) for number in range(30)]

    def give(writer: Writer) -> None:
        ready.wait(SECONDS)
        for call in calls:
            writer.submit(new_call(call)).result(SECONDS)

    with ThreadPoolExecutor(len(writers)) as pool:
        for done in [pool.submit(give, writer) for writer in writers]:
            done.result(SECONDS * 3)
    for writer, engine in zip(writers, engines, strict=True):
        writer.close()
        engine.dispose()
    assert stored(repository) == calls


@pytest.mark.parametrize(
    "changed",
    [
        {"ordinal": 1},
        {"session_id": "s2"},
        {"prompt_token_ids": TokenIds.of(range(101))},
        {"prompt_token_ids": None},
        {"completions": (a_completion([7, 9]),)},
        {"completions": (a_completion([7, 8], logprobs=Logprobs.of([-0.5, -0.25])),)},
        {"completions": ()},
        {"request_body": b"hullo"},
        {"headers": ()},
        {"losses": ()},
        {"policy_version_max": 3},
        {"error": "x"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_another_call_of_the_same_name_is_a_conflict(
    writer: Writer, repository: Repository, changed: dict[str, Any]
) -> None:
    writer.submit(new_call(CALL)).result(SECONDS)
    with pytest.raises(StoreConflict, match="call c1 contradicts what is stored"):
        writer.submit(new_call(replace(CALL, **changed))).result(SECONDS)
    assert stored(repository) == [CALL]
    assert repository.calls("s2") == []
    assert list(repository.verify()) == []


def test_another_call_at_the_same_place_is_a_conflict(writer: Writer, repository: Repository) -> None:
    writer.submit(new_call(CALL)).result(SECONDS)
    with pytest.raises(StoreConflict):
        writer.submit(new_call(replace(CALL, call_id="c2"))).result(SECONDS)
    assert stored(repository) == [CALL]

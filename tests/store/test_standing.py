"""Nothing new builds on what was pruned, although the writer remembers it."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, event

from polarproxy.store.database import for_writing, open_database
from polarproxy.store.prune import Rule, prune
from polarproxy.store.recording import Recording
from polarproxy.store.repository import Repository
from polarproxy.store.standing import Seen
from polarproxy.store.writer import Writer
from tests.database import ON_POSTGRESQL, ON_SQLITE
from tests.store.samples import NOW, a_call, a_session, new_call

SECONDS = 30
SYSTEM = list(range(100))
OLD = Rule(NOW + timedelta(days=1))
YOUNG = NOW + timedelta(days=2)
ROUNDS, TURNS = 12, 6


def sweep(engine: Engine) -> int:
    return sum(freed.sessions for freed in prune(engine, OLD))


def test_a_sibling_of_a_pruned_session_stands_alone(engine: Engine, writer: Writer, repository: Repository) -> None:
    body = b"x" * 1000
    writer.submit(new_call(a_call("old", 0, SYSTEM, (1,), session_id="old", request_body=body))).result(SECONDS)
    assert sweep(engine) == 1
    call = a_call("new", 0, [*SYSTEM, 5], (1,), session_id="new", request_body=body, arrived_at=YOUNG)
    writer.submit(new_call(call)).result(SECONDS)
    assert repository.call("new").call == call
    assert list(repository.verify()) == []


def test_a_pruned_session_may_go_on(engine: Engine, writer: Writer, repository: Repository) -> None:
    """With what its client sends now; its earlier calls are gone."""
    first = a_call("c0", 0, SYSTEM, (1,), request_body=b"y" * 1000)
    writer.submit(new_call(first)).result(SECONDS)
    assert sweep(engine) == 1
    call = a_call("c1", 1, [*SYSTEM, 1, 2], (3,), request_body=b"y" * 1001, arrived_at=YOUNG)
    writer.submit(new_call(call)).result(SECONDS)
    assert [captured.call for captured in repository.calls("s1")] == [call]
    assert list(repository.verify()) == []
    assert writer.failed == 0


def test_writers_and_a_pruner_do_not_hurt_each_other(url: str, repository: Repository) -> None:
    """Every second session is old as soon as it is stored; all of them begin alike, and with the same body."""
    engines = [open_database(url) for _ in range(3)]
    over = threading.Event()

    def write(number: int) -> list[str]:
        writer, young = Writer(engines[number]), []
        for place in range(ROUNDS):
            name = f"s{number}-{place}"
            arrived_at = YOUNG if place % 2 else NOW
            for turn in range(TURNS):
                prompt = [*SYSTEM, *range(3 * turn)]
                body = b"z" * (500 + turn)
                call = a_call(
                    f"{name}-{turn}", turn, prompt, (turn,), session_id=name, request_body=body, arrived_at=arrived_at
                )
                writer.submit(new_call(call)).result(SECONDS)
            young += [name] if place % 2 else []
        writer.close()
        return young

    def clean() -> int:
        gone = 0
        while not over.is_set():
            gone += sweep(engines[2])
        return gone

    with ThreadPoolExecutor(3) as pool:
        cleaning = pool.submit(clean)
        try:
            young = [name for done in pool.map(write, range(2)) for name in done]
        finally:
            over.set()
        assert cleaning.result(SECONDS) > 0
    for engine in engines:
        engine.dispose()
    assert list(repository.verify()) == []
    for name in young:
        assert [captured.call.ordinal for captured in repository.calls(name)] == list(range(TURNS))


def test_what_was_seen_is_forgotten_when_somebody_else_changed_the_file() -> None:
    seen = Seen()
    stored = [{"session_id": "s", "call_id": "c", "base_call_id": None}], [{"digest": b"d", "base_digest": None}]
    seen.add(*stored)
    assert (seen.sessions, seen.calls, seen.bodies) == (set(), set(), set())
    seen.now_at(1)
    seen.add(*stored)
    seen.now_at(1)
    assert (seen.sessions, seen.calls, seen.bodies) == ({"s"}, {"c"}, {b"d"})
    seen.now_at(2)
    assert (seen.sessions, seen.calls, seen.bodies) == (set(), set(), set())


@ON_SQLITE
def test_nothing_is_asked_for_as_long_as_nobody_else_writes(engine: Engine, writer: Writer) -> None:
    """And everything once somebody did, if only a reward."""
    asked: list[str] = []

    def before(connection: Any, _record: Any) -> None:
        connection.set_trace_callback(lambda sql: asked.append(sql) if "count(*)" in sql else None)

    event.listen(engine, "connect", before)
    counts = []
    for number in range(4):
        if number == 3:
            assert sweep(engine) == 0
            Repository(engine).add_session(a_session("another"))
        call = a_call(f"c{number}", number, [*SYSTEM, *range(number)], (), arrived_at=YOUNG)
        writer.submit(new_call(call)).result(SECONDS)
        counts.append(sum("FROM sessions WHERE session_id IN" in sql for sql in asked))
    assert counts == [1, 1, 1, 2]


def scans(engine: Engine) -> tuple[int, int]:
    """How often one of the tables was read whole, and how often by a key, since it was made."""
    query = (
        "SELECT sum(seq_scan), sum(idx_scan) FROM pg_stat_user_tables WHERE relname IN ('calls', 'sessions', 'bodies')"
    )
    with engine.connect() as connection:
        whole, by_key = connection.exec_driver_sql(query).one()
    return int(whole), int(by_key)


@ON_POSTGRESQL
def test_what_is_built_on_is_found_by_its_key_from_the_first_call_on(engine: Engine) -> None:
    """The plan of a question that was prepared while there was next to nothing stands while the tables grow."""
    before = scans(engine)
    recording = Recording(for_writing(engine))
    for number in range(20):
        body = b"z" * 500 + b"%d" % number
        recording.write([new_call(a_call(f"a{number}", number, [*SYSTEM, number], (1,), request_body=body))])
    for turn in range(10):
        names = [f"g{number}" for number in range(30)]
        calls = [a_call(f"{name}-{turn}", turn, [*SYSTEM, turn], (1,), session_id=name) for name in names]
        recording.write([new_call(call) for call in calls])
    recording.close()
    # A connection tells what it counted when it ends.
    engine.dispose()
    until(lambda: scans(engine)[1] > before[1] + 300)
    assert scans(engine)[0] == before[0]


def until(condition: Callable[[], bool]) -> None:
    """Waits; fails after a while."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)

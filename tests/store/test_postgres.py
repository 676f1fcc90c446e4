"""What "committed" means on PostgreSQL, and what its connections and columns are, whatever the server's defaults are."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import Engine, LargeBinary, insert
from sqlalchemy.exc import DBAPIError

from polarproxy.errors import Unstorable, WrongDatabase
from polarproxy.model import Usage
from polarproxy.store.database import for_writing, open_database, was_rolled_back
from polarproxy.store.items import NewCall
from polarproxy.store.migrate import upgrade
from polarproxy.store.repository import Repository
from polarproxy.store.revisions import require_current
from polarproxy.store.rows import session_row
from polarproxy.store.schema import metadata, sessions
from polarproxy.store.writer import Writer
from tests.postgres import Server
from tests.store.samples import a_call, a_session, new_call

SECONDS = 20
ROUNDS, PLACES = 12, 40


@pytest.fixture
def url(postgres: Server) -> Iterator[str]:
    with postgres.temporary() as made:
        yield made


def show(engine: Engine, name: str) -> str:
    with engine.connect() as connection:
        return str(connection.exec_driver_sql(f"SHOW {name}").scalar_one())


def test_committed_means_on_the_disk(engine: Engine, postgres: Server) -> None:
    """Although the server's own default is another."""
    assert postgres.settings["synchronous_commit"] == "off"
    assert show(engine, "synchronous_commit") == show(for_writing(engine), "synchronous_commit") == "on"


def test_a_connection_says_whose_it_is(engine: Engine) -> None:
    assert show(engine, "application_name") == "polarproxy"


def test_the_url_has_the_last_word(url: str) -> None:
    engine = open_database(f"{url}&application_name=mine&options=-c%20lock_timeout%3D7s%20-c%20work_mem%3D5MB")
    found = [show(engine, name) for name in ("application_name", "lock_timeout", "work_mem", "synchronous_commit")]
    assert found == ["mine", "7s", "5MB", "on"]
    engine.dispose()


def test_nobody_waits_for_ever_for_a_proxy_that_stopped(engine: Engine) -> None:
    assert show(engine, "lock_timeout") == "15s"
    assert show(engine, "idle_in_transaction_session_timeout") == "1min"


def test_a_reader_sees_one_moment(engine: Engine, writer: Writer) -> None:
    """A call that is committed between two of its questions is in none of the answers."""
    count = "SELECT count(*) FROM calls"
    with engine.begin() as reading:
        assert reading.exec_driver_sql(count).scalar_one() == 0
        writer.submit(new_call(a_call())).result(SECONDS)
        assert reading.exec_driver_sql(count).scalar_one() == 0
    with engine.begin() as reading:
        assert reading.exec_driver_sql(count).scalar_one() == 1


def test_a_change_sees_what_others_committed(engine: Engine) -> None:
    with for_writing(engine).begin() as first:
        assert first.exec_driver_sql("SELECT count(*) FROM sessions").scalar_one() == 0
        Repository(engine).add_session(a_session())
        assert first.exec_driver_sql("SELECT count(*) FROM sessions").scalar_one() == 1


def test_nothing_large_is_compressed_by_the_server(engine: Engine) -> None:
    """The server's own way costs several times the rest of an insert, and most of it is compressed already."""
    query = (
        "SELECT relname, attname FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid"
        " WHERE attstorage = 'e' AND relkind = 'r' AND attnum > 0 AND relnamespace = 'public'::regnamespace"
    )
    with engine.connect() as connection:
        plain = {tuple(row) for row in connection.exec_driver_sql(query)}
    # A digest has a length; the text of one token and four bytes for each turn are no large things.
    large = {
        (table.name, column.name)
        for table in metadata.tables.values()
        for column in table.columns
        if isinstance(column.type, LargeBinary) and column.type.length is None
    } - {("token_texts", "text"), ("completions", "turn_reasoning")}
    texts = {("calls", "headers"), ("calls", "error"), ("calls", "losses"), ("sessions", "metadata")}
    assert plain == large | texts


@pytest.fixture
def latin(postgres: Server) -> Iterator[str]:
    postgres.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    yield postgres.url("latin")
    postgres.drop(postgres.url("latin"))


def test_a_database_that_cannot_hold_every_text_is_refused(latin: str) -> None:
    engine = open_database(latin)
    with pytest.raises(WrongDatabase, match="LATIN1"):
        upgrade(engine)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").scalar() == 0
    engine.dispose()


def test_somebody_elses_database_is_not_touched(postgres: Server) -> None:
    url = postgres.empty()
    engine = open_database(url)
    with for_writing(engine).begin() as connection:
        connection.exec_driver_sql("CREATE TABLE holiday_photos (name text)")
    for use in (upgrade, require_current):
        with pytest.raises(WrongDatabase, match="holiday_photos"):
            use(engine)
    with engine.connect() as connection:
        tables = connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").scalars()
        assert tables.all() == ["holiday_photos"]
    engine.dispose()
    postgres.drop(url)


def test_a_newer_schema_is_not_touched(engine: Engine) -> None:
    with for_writing(engine).begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    for use in (upgrade, require_current):
        with pytest.raises(WrongDatabase, match="9999"):
            use(engine)
    with for_writing(engine).begin() as connection:
        # What is not as it was made is not used again.
        connection.exec_driver_sql("DROP TABLE alembic_version")


def test_a_database_that_is_not_there_is_one_clear_sentence(url: str, postgres: Server) -> None:
    for wrong in (postgres.url("nobody"), "postgresql://x:secret@/y?host=/nowhere"):
        engine = open_database(wrong)
        with pytest.raises(WrongDatabase, match="cannot be used") as caught:
            upgrade(engine)
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)
        engine.dispose()


def test_who_may_only_read_is_told(url: str) -> None:
    engine = open_database(f"{url}&options=-c%20default_transaction_read_only%3Don")
    writer = Writer(engine)
    done = writer.submit(new_call(a_call()))
    with pytest.raises(Exception, match="read-only transaction"):
        done.result(SECONDS)
    assert writer.trouble is not None
    writer.close()
    engine.dispose()


def test_two_that_wait_for_each_other_are_told_apart(engine: Engine) -> None:
    """The server ends one of them; that one has done nothing, and may do it again."""
    a, b = ([session_row(a_session(name))] for name in ("a", "b"))
    writing = for_writing(engine)
    with ThreadPoolExecutor(1) as pool, writing.connect() as loser, writing.begin() as winner:
        winner.exec_driver_sql("SET LOCAL deadlock_timeout = '30s'")
        loser.exec_driver_sql("SET LOCAL deadlock_timeout = '1s'")
        winner.execute(insert(sessions), a)
        loser.execute(insert(sessions), b)
        waiting = pool.submit(winner.execute, insert(sessions), b)
        with pytest.raises(DBAPIError) as caught:
            loser.execute(insert(sessions), a)
        loser.rollback()
        waiting.result(SECONDS)
    assert was_rolled_back(caught.value)
    assert sorted(Repository(engine).session_ids()) == ["a", "b"]


def test_two_proxies_that_store_the_same_rows_do_not_wait_for_each_other(postgres: Server) -> None:
    """Sessions, bodies and spellings that both see for the first time, in opposite order, round after round."""
    # Whose deadlocks nobody else has caused.
    url = postgres.fresh()
    engines = [open_database(url) for _ in range(2)]
    ready = threading.Barrier(len(engines))

    def write(number: int) -> None:
        writer = Writer(engines[number])
        for turn in range(ROUNDS):
            places = range(PLACES) if number else reversed(range(PLACES))
            ready.wait(SECONDS)
            done = [writer.submit(_shared(number, turn, place)) for place in places]
            for future in done:
                future.result(SECONDS)
        assert writer.failed == 0
        writer.close()

    with ThreadPoolExecutor(len(engines)) as pool:
        for result in [pool.submit(write, number) for number in range(len(engines))]:
            result.result(SECONDS * 3)
    assert len(Repository(engines[0]).call_summaries()) == len(engines) * ROUNDS * PLACES
    for engine in engines:
        engine.dispose()
    # What the server says of one names the rows that both waited for.
    assert postgres.deadlocks(url) == 0, (postgres.folder / "log").read_text(errors="replace")[-5000:]
    postgres.drop(url)


def _shared(number: int, turn: int, place: int) -> NewCall:
    """A call of a session that the other proxy has a call of too, with the same body and the same spelling."""
    name = f"s{turn}-{place}"
    call = a_call(f"{name}-{number}", number, session_id=name, request_body=f"{name} {'x' * 300}".encode())
    return NewCall(call, a_session(name), {turn * PLACES + place: b"text"})


def test_a_number_that_no_column_takes_is_refused_and_not_cut_off(
    engine: Engine, writer: Writer, repository: Repository
) -> None:
    """COPY takes rows in binary, and the driver does not look at what it cuts off. The calls around it are stored."""
    calls = [a_call(f"c{number}", number) for number in range(4)]
    calls[1] = replace(calls[1], policy_version_min=2**40, policy_version_max=2**40)
    calls[2] = replace(calls[2], usage=Usage(2**70, 1))
    futures = [writer.submit(new_call(call)) for call in calls]
    for future, stored in zip(futures, (True, False, False, True), strict=True):
        assert isinstance(future.exception(SECONDS), Unstorable) is not stored
    assert [captured.call for captured in repository.calls("s1")] == [calls[0], calls[3]]

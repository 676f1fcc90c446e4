"""Everything of a session survives the way through an archive; what contradicts a database changes nothing in it."""

import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, update

from polarproxy.errors import BadArchive, NotFound, StoreConflict, StoreDamaged
from polarproxy.model import Call, CapturedCall, Reward, SessionStatus
from polarproxy.store.archive import ArchiveWriter, Record, read_archive
from polarproxy.store.archiving import Survey, chosen_sessions, import_sessions, survey, write_sessions
from polarproxy.store.database import open_database
from polarproxy.store.entries import CallEntry, SessionEntry
from polarproxy.store.repository import Repository
from polarproxy.store.schema import calls, completions, sessions
from polarproxy.store.stats import read_stats
from polarproxy.store.writer import Writer
from tests.database import ON_POSTGRESQL, ON_SQLITE, fresh, temporary
from tests.store.filled import SESSIONS, contents, converse, fill
from tests.store.samples import NOW, a_call, a_session, new_call
from tests.store.samples import calls as any_calls

SHARED = ("policy_versions", "session_heads")
"""What belongs to no session, and is in no archive."""


@pytest.fixture
def source(engine: Engine) -> Engine:
    fill(engine)
    return engine


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Engine]:
    opened = open_database(fresh(tmp_path / "other.db"))
    yield opened
    opened.dispose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.polar"


def write(engine: Engine, path: Path, **chosen: object) -> Path:
    ids = chosen_sessions(engine, **chosen)  # type: ignore[arg-type]
    assert list(write_sessions(engine, ids, path)) == ids
    return path


def take(engine: Engine, path: Path) -> Survey:
    found = survey(engine, path)
    found.require_no_conflict()
    assert set(import_sessions(engine, path, found.new)) == found.new
    return found


def of_sessions(engine: Engine) -> dict[str, object]:
    return {name: rows for name, rows in contents(engine).items() if name not in SHARED}


def test_everything_survives(source: Engine, other: Engine, path: Path) -> None:
    assert take(other, write(source, path)) == Survey(frozenset(SESSIONS), 0, ())
    assert of_sessions(other) == of_sessions(source)
    assert list(Repository(other).verify()) == []


def test_it_takes_no_more_room_there(source: Engine, other: Engine, path: Path) -> None:
    """The beginning that sessions share is stored once again, though each is whole in the archive."""
    take(other, write(source, path))
    assert read_stats(other).stored_tokens == read_stats(source).stored_tokens
    assert read_stats(other).body_bytes == read_stats(source).body_bytes


def test_the_same_archive_twice_changes_nothing(source: Engine, other: Engine, path: Path) -> None:
    take(other, write(source, path))
    before = contents(other)
    assert take(other, path) == Survey(frozenset(), len(SESSIONS), ())
    assert contents(other) == before
    assert take(source, path).known == len(SESSIONS)


def test_a_zero_below_zero_is_no_other_content(source: Engine, other: Engine, path: Path) -> None:
    Repository(source).add_reward("first", Reward(-0.0))
    assert take(other, write(source, path)).new == frozenset(SESSIONS)
    assert take(other, path) == take(source, path) == Survey(frozenset(), len(SESSIONS), ())


def test_an_archive_of_an_archive_is_the_same(source: Engine, other: Engine, path: Path, tmp_path: Path) -> None:
    take(other, write(source, path))
    again = write(other, tmp_path / "again.polar")
    assert list(read_archive(again)) == list(read_archive(path))


def test_sessions_can_be_chosen(source: Engine, other: Engine, path: Path) -> None:
    """Whatever they build on in the database they come from."""
    assert take(other, write(source, path, ids=["second"])).new == {"second"}
    assert take(other, write(source, path, group_id="g")) == Survey(frozenset({"first"}), 1, ())
    assert Repository(other).calls("second") == Repository(source).calls("second")
    assert Repository(other).token_texts("m") == Repository(source).token_texts("m")
    assert list(Repository(other).verify()) == []


def test_what_is_not_there_cannot_be_chosen(source: Engine) -> None:
    with pytest.raises(NotFound, match="'nobody'"):
        chosen_sessions(source, ids=["first", "nobody"])
    with pytest.raises(NotFound, match="'nothing'"):
        chosen_sessions(source, group_id="nothing")


def reward(engine: Engine) -> None:
    Repository(engine).add_reward("third", Reward(1.0))


def close(engine: Engine) -> None:
    Repository(engine).set_status("third", SessionStatus.COMPLETED)


def go_on(engine: Engine) -> None:
    writer = Writer(engine)
    writer.submit(new_call(a_call("more", 99, session_id="third"))).result(30)
    writer.close()


@pytest.mark.parametrize("change", [reward, close, go_on])
def test_another_content_is_a_conflict_and_nothing_is_imported(
    source: Engine, other: Engine, path: Path, change: object
) -> None:
    write(source, path)
    take(other, write(source, path.with_name("third.polar"), ids=["third"]))
    change(other)  # type: ignore[operator]
    before = contents(other)
    found = survey(other, path)
    assert found.conflicts == ("third",)
    with pytest.raises(StoreConflict, match=r"nothing was imported; 1 of its sessions .* third"):
        found.require_no_conflict()
    assert contents(other) == before


def test_calls_of_another_session_are_a_conflict(source: Engine, other: Engine, path: Path) -> None:
    go_on(other)
    with other.begin() as connection:
        connection.execute(update(calls).values(call_id="first-2"))
    before = contents(other)
    assert survey(other, write(source, path)).conflicts == ("first", "third")
    with pytest.raises(StoreConflict, match="first"):
        list(import_sessions(other, path, frozenset({"first"})))
    assert contents(other) == before


def test_an_import_that_is_broken_off_leaves_whole_sessions(source: Engine, other: Engine, path: Path) -> None:
    write(source, path)
    taking = import_sessions(other, path, frozenset(SESSIONS))
    taken = list(islice(taking, 2))
    del taking
    assert sorted(Repository(other).session_ids()) == sorted(taken)
    assert take(other, path).known == 2
    assert of_sessions(other) == of_sessions(source)


def rewritten(path: Path, change: object) -> Path:
    """The archive with other records, and digests that fit."""
    records = list(read_archive(path))
    with ArchiveWriter(path, 1) as writer:
        for record in change(records):  # type: ignore[operator]
            writer.add(record)
    return path


def _replace(place: int, **fields: object) -> object:
    def change(records: list[Record]) -> list[Record]:
        place_of = [index for index, record in enumerate(records) if isinstance(record, CallEntry)][place]
        old = records[place_of]
        assert isinstance(old, CallEntry)
        row = old.row | {name: value for name, value in fields.items() if name not in CallEntry.__struct_fields__}
        known = {name: getattr(old, name) for name in CallEntry.__struct_fields__} | {"row": row}
        known |= {name: value for name, value in fields.items() if name in known}
        records[place_of] = CallEntry(**known)
        return records

    return change


def _without_calls(records: list[Record]) -> list[Record]:
    return [record for record in records if not isinstance(record, CallEntry)]


def _without_sessions(records: list[Record]) -> list[Record]:
    return [record for record in records if not isinstance(record, SessionEntry)]


def _twice(records: list[Record]) -> list[Record]:
    empty: list[Record] = [record for record in records if isinstance(record, SessionEntry) and not record.calls]
    return empty * 2


def _fewer_than_none(records: list[Record]) -> list[Record]:
    return [msgspec.structs.replace(one, calls=-1) if isinstance(one, SessionEntry) else one for one in records]


LIES = {
    "another prompt": _replace(1, prompt=b"\x01\x00\x00\x00"),
    "no prompt": _replace(1, prompt=None),
    "half a token": _replace(1, prompt=b"\x01\x00"),
    "another body": _replace(1, body=b"another"),
    "no completions": _replace(1, completions=[]),
    "another session's call": _replace(1, session_id="third"),
    "a status that nobody writes": _replace(1, status="splendid"),
    "no status": _replace(1, status=None),
    "a number for a text": _replace(1, path=7),
    "a text for a number": _replace(1, ordinal="1"),
    "a truth for a number": _replace(1, ordinal=True),
    "a label that nobody wrote": _replace(1, facts=[(NOW, "label", "[")]),
    "a moment without a zone": _replace(1, facts=[(NOW.replace(tzinfo=None), "delivered", "yes")]),
    "fewer calls than none": _fewer_than_none,
    "a column of the future": _replace(1, feeling="fine"),
    "no calls": _without_calls,
    "calls of no session": _without_sessions,
    "a session twice": _twice,
}


@ON_SQLITE
@pytest.mark.parametrize("lie", LIES)
def test_what_contradicts_itself_is_refused_before_anything_is_stored(
    source: Engine, other: Engine, path: Path, lie: str
) -> None:
    rewritten(write(source, path), LIES[lie])
    with pytest.raises(BadArchive):
        survey(other, path)
    if lie != "a session twice":
        with pytest.raises(BadArchive):
            list(import_sessions(other, path, frozenset(SESSIONS)))
    assert "first" not in Repository(other).session_ids()


def test_a_column_of_the_future_is_named(source: Engine, other: Engine, path: Path) -> None:
    rewritten(write(source, path), LIES["a column of the future"])
    with pytest.raises(BadArchive, match="calls has no column 'feeling'"):
        survey(other, path)


def test_a_row_that_lacks_what_may_be_missing_is_taken(source: Engine, other: Engine, path: Path) -> None:
    """As an older version would have written it, before there was such a column."""

    def older(records: list[Record]) -> list[Record]:
        for record in records:
            if isinstance(record, CallEntry):
                record.row.pop("engine_request_id")
        return records

    take(other, rewritten(write(source, path), older))
    assert of_sessions(other) == of_sessions(source)
    assert take(source, path).known == len(SESSIONS)


def test_a_damaged_session_is_not_archived(source: Engine, path: Path) -> None:
    with source.begin() as connection:
        connection.execute(delete(completions).where(completions.c.call_id == "second-1"))
    with pytest.raises(StoreDamaged, match="second-1"):
        list(write_sessions(source, SESSIONS, path))
    with pytest.raises(BadArchive):
        list(read_archive(path))


@given(st.lists(any_calls(), min_size=1, max_size=4))
@settings(max_examples=25)
def test_whatever_a_call_can_be_survives(drawn: list[Call]) -> None:
    with temporary() as url, temporary() as other_url:
        engine, other = open_database(url), open_database(other_url)
        writer = Writer(engine)
        for number, call in enumerate(drawn):
            fields = {name: getattr(call, name) for name in call.__slots__}
            named = Call(**(fields | {"call_id": f"c{number}", "ordinal": number}))
            writer.submit(new_call(named)).result(30)
        writer.close()
        path = write(engine, Path(str(engine.url.database) + ".polar"))
        take(other, path)
        stored: list[CapturedCall] = Repository(engine).calls("s1")
        assert repr(Repository(other).calls("s1")) == repr(stored)
        assert of_sessions(other) == of_sessions(engine)
        engine.dispose()
        other.dispose()


@ON_SQLITE
def test_memory_does_not_grow_with_the_number_of_sessions(engine: Engine, other: Engine, path: Path) -> None:
    """An import also remembers what later prompts may build on, up to a bound."""

    def peak(count: int) -> int:
        tracemalloc.start()
        ids = chosen_sessions(engine)[:count]
        for _ in write_sessions(engine, ids, path):
            pass
        survey(other, path)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    converse(engine, {f"s{number}": 0 for number in range(24)}, turns=2, padding=100_000)
    peak(1)
    assert peak(24) < 2 * peak(4)


def test_a_session_without_calls_and_one_that_is_gone(engine: Engine, other: Engine, path: Path) -> None:
    Repository(engine).add_session(a_session("alone"))
    take(other, write(engine, path))
    assert Repository(other).session("alone") == Repository(engine).session("alone")
    with engine.begin() as connection:
        connection.execute(delete(sessions))
    with pytest.raises(NotFound, match="alone"):
        list(write_sessions(engine, ["alone"], path))


@ON_POSTGRESQL
def test_a_number_that_the_database_cannot_hold_is_a_conflict(engine: Engine, other: Engine, path: Path) -> None:
    """SQLite holds larger ones."""
    with closing(Writer(other)) as writer:
        writer.submit(new_call(replace(a_call("c0", 0), policy_version_min=2**40, policy_version_max=2**40))).result(30)
    write(other, path)
    with pytest.raises(StoreConflict, match="session s1 cannot be stored: 1099511627776 does not fit into 4 bytes"):
        take(engine, path)
    assert Repository(engine).session_ids() == []

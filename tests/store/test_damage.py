"""What was changed behind the store's back is noticed when it is read, and found by `verify`."""

from typing import Any

import pytest
from sqlalchemy import Engine, text

from polarproxy.errors import StoreDamaged
from polarproxy.model import Logprobs, TokenIds
from polarproxy.store import codec
from polarproxy.store.database import for_writing, open_database
from polarproxy.store.repository import Repository
from polarproxy.store.schema import bodies, calls, completions
from polarproxy.store.verifying import session_damage
from polarproxy.store.writer import Writer
from tests.database import ON_SQLITE
from tests.store.samples import a_call, new_call

SECONDS = 20
HEAD = list(range(100))


@pytest.fixture
def url(url: str) -> str:
    """Three turns, each building on the one before, and a call of another session."""
    engine = open_database(url)
    writer = Writer(engine)
    for number in range(3):
        call = a_call(f"c{number}", number, [*HEAD, *range(2 * number)], [2 * number])
        writer.submit(new_call(call)).result(SECONDS)
    writer.submit(new_call(a_call("other", 0, [7] * 10, [8], session_id="s2", request_body=b"other"))).result(SECONDS)
    writer.close()
    engine.dispose()
    return url


def change(url: str, statement: str, value: Any = None, key: Any = None) -> None:
    """Edits the database as no part of the program would."""
    engine = open_database(url)
    unchecked = "PRAGMA foreign_keys=OFF" if engine.dialect.name == "sqlite" else "SET session_replication_role=replica"
    autocommit = engine.raw_connection()
    autocommit.cursor().execute(unchecked)
    autocommit.commit()
    autocommit.close()
    with for_writing(engine).begin() as connection:
        changed = connection.execute(text(statement), {"value": value, "key": key})
        assert changed.rowcount == 1
    engine.dispose()


def ids(*values: int) -> bytes:
    return codec.encode_ids(TokenIds.of(values).raw)


PROMPT = "UPDATE calls SET prompt_suffix = :value WHERE call_id = :key"
SAMPLED = "UPDATE completions SET token_ids = :value WHERE call_id = :key"

EDITS = {
    "another token in a prompt": (PROMPT, ids(*HEAD[:-1], 5), "c0"),
    "one token less in a prompt": (PROMPT, ids(*HEAD[:-1]), "c0"),
    "a truncated blob": (PROMPT, ids(*HEAD)[:-3], "c0"),
    "no blob": (PROMPT, None, "c0"),
    "half a token": (PROMPT, codec.compress(b"123"), "c0"),
    "another digest": ("UPDATE calls SET prompt_digest = :value WHERE call_id = :key", b"0" * 16, "c0"),
    "another sampled token": (SAMPLED, ids(77), "c0"),
    "one sampled token more": (SAMPLED, ids(0, 1), "c0"),
    "a truncated completion": (SAMPLED, ids(0)[:-2], "c0"),
    "half a logprob": ("UPDATE completions SET logprobs = :value WHERE call_id = :key", b"123", "c0"),
    "a prompt that builds on itself": ("UPDATE calls SET base_call_id = :value WHERE call_id = :key", "c2", "c1"),
    "a base that is gone": ("UPDATE calls SET base_call_id = :value WHERE call_id = :key", "nobody", "c1"),
    "no length of a base": ("UPDATE calls SET base_length = :value WHERE call_id = :key", None, "c1"),
    "a length of a base below zero": ("UPDATE calls SET base_length = :value WHERE call_id = :key", -3, "c1"),
    "no choice of a base": ("UPDATE calls SET base_choice = :value WHERE call_id = :key", None, "c1"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_it_is_an_error_to_read_it(repository: Repository, url: str, edit: str) -> None:
    change(url, *EDITS[edit])
    with pytest.raises(StoreDamaged):
        repository.calls("s1")


@pytest.mark.parametrize("edit", EDITS)
def test_verify_names_the_call(repository: Repository, url: str, edit: str) -> None:
    _, _, call_id = EDITS[edit]
    change(url, *EDITS[edit])
    damages = list(repository.verify())
    assert f"call {call_id} of session s1" in {damage.where for damage in damages}
    assert not any("s2" in damage.where for damage in damages)


@pytest.mark.parametrize("edit", EDITS)
def test_other_sessions_can_still_be_read(repository: Repository, url: str, edit: str) -> None:
    change(url, *EDITS[edit])
    assert [captured.call.call_id for captured in repository.calls("s2")] == ["other"]


@pytest.mark.parametrize("edit", EDITS)
def test_a_new_process_still_takes_calls_of_that_session(
    engine: Engine, repository: Repository, url: str, edit: str
) -> None:
    """Nothing that was sampled is lost because something older is damaged; it is stored whole, or on what is sound."""
    change(url, *EDITS[edit])
    fresh = Writer(engine)
    fresh.submit(new_call(a_call("new", 3, [*HEAD, 1, 2], [3]))).result(SECONDS)
    fresh.close()
    assert list(repository.call("new").call.prompt_token_ids or ()) == [*HEAD, 1, 2]


def test_a_missing_call_is_named_by_those_that_build_on_it(repository: Repository, url: str) -> None:
    change(url, "DELETE FROM completions WHERE call_id = :key", key="c0")
    change(url, "DELETE FROM calls WHERE call_id = :key", key="c0")
    with pytest.raises(StoreDamaged, match="c0"):
        repository.calls("s1")
    assert any("c0" in damage.what for damage in repository.verify())


def test_a_missing_completion_is_named_by_those_that_build_on_it(repository: Repository, url: str) -> None:
    change(url, "DELETE FROM completions WHERE call_id = :key", key="c1")
    with pytest.raises(StoreDamaged, match="completion of c1"):
        repository.call("c2")


BODY_EDITS = {
    "no frame": ("UPDATE bodies SET data = :value WHERE digest = :key", b"junk"),
    "another body": ("UPDATE bodies SET data = :value WHERE digest = :key", codec.compress(b"another body")),
    "a body that builds on itself": (
        "UPDATE bodies SET base_digest = :value WHERE digest = :key",
        codec.digest(b"other"),
    ),
    "a base that is gone": ("UPDATE bodies SET base_digest = :value WHERE digest = :key", codec.digest(b"nobody")),
}


@pytest.mark.parametrize("edit", BODY_EDITS)
def test_a_changed_body_is_found_too(repository: Repository, url: str, edit: str) -> None:
    change(url, *BODY_EDITS[edit], codec.digest(b"other"))
    with pytest.raises(StoreDamaged):
        repository.call("other")
    (damage,) = repository.verify()
    assert damage.where == "call other of session s2"
    assert len(repository.calls("s1")) == 3


def test_another_logprob_is_found_by_verify(repository: Repository, url: str) -> None:
    change(url, "UPDATE completions SET logprobs = :value WHERE call_id = :key", Logprobs.of([-0.25]).raw, "c0")
    assert list(repository.verify()) != []


def test_a_sound_store_has_no_damage(repository: Repository) -> None:
    assert list(repository.verify()) == []


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM completions WHERE call_id = 'c2'",
        "UPDATE calls SET status = 'bogus' WHERE call_id = 'c2'",
        "UPDATE calls SET headers = '{' WHERE call_id = 'c2'",
        "UPDATE completions SET finish_reason = 'zzz' WHERE call_id = 'c2'",
    ],
)
def test_what_nobody_wrote_is_found_by_verify(repository: Repository, url: str, statement: str) -> None:
    change(url, statement)
    (damage,) = repository.verify()
    assert damage.where == "call c2 of session s1"
    with pytest.raises(StoreDamaged):
        repository.calls("s1")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sessions SET metadata = '[' WHERE session_id = 's1'",
        "UPDATE sessions SET status = 'bogus' WHERE session_id = 's1'",
        "INSERT INTO reward_components (reward_id, name, place, value, kind) VALUES (9, 'a', 0, 1, 'bogus')",
    ],
)
def test_a_session_that_nobody_wrote_is_found_by_verify(repository: Repository, url: str, statement: str) -> None:
    reward = (
        "INSERT INTO rewards (reward_id, session_id, recorded_at, value) VALUES (9, 's1', '2026-01-01 00:00:00', 1)"
    )
    change(url, reward)
    assert list(repository.verify()) == []
    change(url, statement)
    assert [damage.where for damage in repository.verify()] == ["session s1"]


def test_a_label_that_nobody_wrote_is_found_by_verify(repository: Repository, url: str) -> None:
    label = (
        "INSERT INTO call_facts (call_id, recorded_at, name, value) VALUES ('c1', '2026-01-01 00:00:00', 'label', '[')"
    )
    change(url, label)
    assert [damage.where for damage in repository.verify()] == ["call c1 of session s1"]


ROWS = {calls: "call_id = 'c1'", completions: "call_id = 'c1'", bodies: "length = 5"}
COLUMNS = [
    column for table in ROWS for column in table.columns if not column.primary_key and column.name != "session_id"
]


@pytest.mark.parametrize("value", [None, -1, 3, "junk", b"junk"], ids=repr)
@ON_SQLITE
def test_verify_goes_on_whatever_a_column_holds(engine: Engine, value: object) -> None:
    """SQLite takes any value in any column. It is named, or it changes nothing that is read; the rest is verified."""
    with for_writing(engine).connect() as connection:
        for column in COLUMNS:
            if value is None and not column.nullable:
                continue
            with connection.begin() as transaction:
                connection.exec_driver_sql("PRAGMA defer_foreign_keys=ON")
                edit = f"UPDATE {column.table.name} SET {column.name} = ? WHERE {ROWS[column.table]}"
                assert connection.exec_driver_sql(edit, (value,)).rowcount == 1
                connection.exec_driver_sql("UPDATE completions SET digest = x'00' WHERE call_id = 'c2'")
                found = {damage.where for name in ("s1", "s2") for damage in session_damage(connection, name)}
                transaction.rollback()
            assert "call c2 of session s1" in found, column
            assert found <= {f"call c{number} of session s1" for number in range(3)} | {"call other of session s2"}

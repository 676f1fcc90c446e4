"""What was changed behind the store's back is noticed when it is read, and found by `verify`."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from polarproxy.errors import StoreDamaged
from polarproxy.model import Logprobs, TokenIds
from polarproxy.store import codec
from polarproxy.store.database import open_database
from polarproxy.store.repository import Repository
from polarproxy.store.writer import Writer
from tests.database import fresh
from tests.store.samples import a_call, new_call

SECONDS = 20
HEAD = list(range(100))


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Three turns, each building on the one before, and a call of another session."""
    file = tmp_path_factory.mktemp("sound") / "polar.db"
    engine = open_database(fresh(file))
    writer = Writer(engine)
    for number in range(3):
        call = a_call(f"c{number}", number, [*HEAD, *range(2 * number)], [2 * number])
        writer.submit(new_call(call)).result(SECONDS)
    writer.submit(new_call(a_call("other", 0, [7] * 10, [8], session_id="s2", request_body=b"other"))).result(SECONDS)
    writer.close()
    engine.dispose()
    return file.read_bytes()


@pytest.fixture
def engine(conversation: bytes, file: Path) -> Iterator[Engine]:
    file.write_bytes(conversation)
    opened = open_database(f"sqlite:///{file}")
    yield opened
    opened.dispose()


def change(file: Path, statement: str, *values: Any) -> None:
    """Edits the file as no part of the program would."""
    connection = sqlite3.connect(file, timeout=SECONDS)
    connection.execute("PRAGMA foreign_keys=OFF")
    assert connection.execute(statement, values).rowcount == 1
    connection.commit()
    connection.close()


def ids(*values: int) -> bytes:
    return codec.encode_ids(TokenIds.of(values))


PROMPT = "UPDATE calls SET prompt_suffix = ? WHERE call_id = ?"
SAMPLED = "UPDATE completions SET token_ids = ? WHERE call_id = ?"

EDITS = {
    "another token in a prompt": (PROMPT, ids(*HEAD[:-1], 5), "c0"),
    "one token less in a prompt": (PROMPT, ids(*HEAD[:-1]), "c0"),
    "a truncated blob": (PROMPT, ids(*HEAD)[:-3], "c0"),
    "no blob": (PROMPT, None, "c0"),
    "half a token": (PROMPT, codec.compress(b"123"), "c0"),
    "another digest": ("UPDATE calls SET prompt_digest = ? WHERE call_id = ?", b"0" * 16, "c0"),
    "another sampled token": (SAMPLED, ids(77), "c0"),
    "one sampled token more": (SAMPLED, ids(0, 1), "c0"),
    "a truncated completion": (SAMPLED, ids(0)[:-2], "c0"),
    "half a logprob": ("UPDATE completions SET logprobs = ? WHERE call_id = ?", b"123", "c0"),
    "a prompt that builds on itself": ("UPDATE calls SET base_call_id = ? WHERE call_id = ?", "c2", "c1"),
    "a base that is gone": ("UPDATE calls SET base_call_id = ? WHERE call_id = ?", "nobody", "c1"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_it_is_an_error_to_read_it(repository: Repository, file: Path, edit: str) -> None:
    change(file, *EDITS[edit])
    with pytest.raises(StoreDamaged):
        repository.calls("s1")


@pytest.mark.parametrize("edit", EDITS)
def test_verify_names_the_call(repository: Repository, file: Path, edit: str) -> None:
    _, _, call_id = EDITS[edit]
    change(file, *EDITS[edit])
    damages = list(repository.verify())
    assert f"call {call_id} of session s1" in {damage.where for damage in damages}
    assert not any("s2" in damage.where for damage in damages)


@pytest.mark.parametrize("edit", EDITS)
def test_other_sessions_can_still_be_read(repository: Repository, file: Path, edit: str) -> None:
    change(file, *EDITS[edit])
    assert [captured.call.call_id for captured in repository.calls("s2")] == ["other"]


@pytest.mark.parametrize("edit", EDITS)
def test_a_new_process_still_takes_calls_of_that_session(
    engine: Engine, repository: Repository, file: Path, edit: str
) -> None:
    """Nothing that was sampled is lost because something older is damaged; it is stored whole, or on what is sound."""
    change(file, *EDITS[edit])
    fresh = Writer(engine)
    fresh.submit(new_call(a_call("new", 3, [*HEAD, 1, 2], [3]))).result(SECONDS)
    fresh.close()
    assert list(repository.call("new").call.prompt_token_ids or ()) == [*HEAD, 1, 2]


def test_a_missing_call_is_named_by_those_that_build_on_it(repository: Repository, file: Path) -> None:
    change(file, "DELETE FROM completions WHERE call_id = ?", "c0")
    change(file, "DELETE FROM calls WHERE call_id = ?", "c0")
    with pytest.raises(StoreDamaged, match="c0"):
        repository.calls("s1")
    assert any("c0" in damage.what for damage in repository.verify())


def test_a_missing_completion_is_named_by_those_that_build_on_it(repository: Repository, file: Path) -> None:
    change(file, "DELETE FROM completions WHERE call_id = ?", "c1")
    with pytest.raises(StoreDamaged, match="completion of c1"):
        repository.call("c2")


BODY_EDITS = {
    "no frame": ("UPDATE bodies SET data = ? WHERE digest = ?", b"junk"),
    "another body": ("UPDATE bodies SET data = ? WHERE digest = ?", codec.compress(b"another body")),
    "a body that builds on itself": ("UPDATE bodies SET base_digest = ? WHERE digest = ?", codec.digest(b"other")),
    "a base that is gone": ("UPDATE bodies SET base_digest = ? WHERE digest = ?", codec.digest(b"nobody")),
}


@pytest.mark.parametrize("edit", BODY_EDITS)
def test_a_changed_body_is_found_too(repository: Repository, file: Path, edit: str) -> None:
    change(file, *BODY_EDITS[edit], codec.digest(b"other"))
    with pytest.raises(StoreDamaged):
        repository.call("other")
    (damage,) = repository.verify()
    assert damage.where == "call other of session s2"
    assert len(repository.calls("s1")) == 3


def test_another_logprob_is_found_by_verify(repository: Repository, file: Path) -> None:
    change(file, "UPDATE completions SET logprobs = ? WHERE call_id = ?", Logprobs.of([-0.25]).raw, "c0")
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
def test_what_nobody_wrote_is_found_by_verify(repository: Repository, file: Path, statement: str) -> None:
    change(file, statement)
    (damage,) = repository.verify()
    assert damage.where == "call c2 of session s1"
    with pytest.raises(StoreDamaged):
        repository.calls("s1")

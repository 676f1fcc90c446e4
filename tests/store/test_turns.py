"""A turn is found by its key: the one that goes furthest, in its own session, whole or not at all."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from polarproxy.errors import StoreDamaged
from polarproxy.model import Call, Completion, PromptMode, TokenIds
from polarproxy.store import turns
from polarproxy.store.database import for_writing
from polarproxy.store.repository import Repository
from polarproxy.store.writer import Writer
from tests.store.samples import a_call, a_completion, a_session, new_call

SECONDS = 20


def key(text: str) -> bytes:
    return text.encode().ljust(16, b".")


def turn(call_id: str, ordinal: int, prompt: tuple[int, ...], *said: str, **fields: Any) -> Call:
    """A call with one choice for each of `said`, which is also its key."""
    choices = [replace(a_completion([100, ordinal], index), turn_key=key(text)) for index, text in enumerate(said)]
    return a_call(call_id, ordinal, prompt, completions=tuple(choices), **fields)


def store(writer: Writer, *calls: Call) -> None:
    for call in calls:
        writer.submit(new_call(call)).result(SECONDS)


def found(repository: Repository, *wanted: str, session: str = "s1") -> tuple[str, int] | None:
    turn = repository.longest_turn(session, [key(text) for text in wanted])
    return None if turn is None else (turn.call_id, turn.completion.index)


def test_the_last_key_that_any_turn_has_counts(writer: Writer, repository: Repository) -> None:
    store(writer, turn("c1", 0, (1, 2), "one"), turn("c2", 1, (1, 2, 3), "two"), turn("c3", 2, (9,), "other"))
    assert found(repository, "one", "two", "three") == ("c2", 0)
    assert found(repository, "one") == ("c1", 0)
    assert found(repository, "three") is None
    assert found(repository) is None


def test_it_comes_with_its_prompt_and_what_was_sampled(writer: Writer, repository: Repository) -> None:
    call = turn("c2", 1, (1, 2, 100, 0, 3), "two")
    store(writer, turn("c1", 0, (1, 2), "one"), call)
    turn_found = repository.longest_turn("s1", [key("two")])
    assert turn_found is not None
    assert turn_found.prompt == TokenIds.of((1, 2, 100, 0, 3))
    assert turn_found.completion == call.completions[0]


def test_of_equal_turns_the_latest_counts_and_of_its_choices_the_first(writer: Writer, repository: Repository) -> None:
    store(writer, turn("c9", 0, (1,), "one"), turn("c1", 1, (1,), "one", "one"), turn("c5", 2, (1,), "two", "one"))
    assert found(repository, "one") == ("c5", 1)
    assert found(repository, "zero", "two") == ("c5", 0)


def test_another_sessions_turn_is_none_of_ours(writer: Writer, repository: Repository) -> None:
    store(writer, turn("c1", 0, (1,), "one"), turn("c2", 0, (1,), "one", session_id="s2"))
    assert found(repository, "one", session="s2") == ("c2", 0)
    assert found(repository, "one", session="s3") is None


def test_the_latest_keys_are_looked_for_first(
    writer: Writer, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_AT_ONCE", 2)
    store(writer, turn("c1", 0, (1,), "a"), turn("c2", 1, (1,), "c"))
    assert found(repository, "a", "b", "c", "d", "e") == ("c2", 0)
    assert found(repository, "a", "b", "d", "e", "f") == ("c1", 0)


def test_a_turn_without_a_key_is_never_found(writer: Writer, repository: Repository) -> None:
    store(writer, a_call("c1", 0, (1,), (2,)))
    assert repository.longest_turn("s1", [b"\0" * 16, b""]) is None


def test_damage_is_told(writer: Writer, repository: Repository, engine: Engine) -> None:
    store(writer, turn("c1", 0, (1,), "one"))
    with for_writing(engine).begin() as connection:
        connection.exec_driver_sql("UPDATE completions SET length = 7")
    with pytest.raises(StoreDamaged):
        found(repository, "one")


def test_a_session_says_where_its_prompts_come_from(repository: Repository) -> None:
    for mode in (None, *PromptMode):
        session = a_session(f"s-{mode}", prompts=mode)
        repository.add_session(session)
        assert repository.session(session.session_id) == session
        state = repository.session_state(session.session_id)
        assert state is not None
        assert state.prompts is mode


def test_a_completion_without_a_key_equals_itself(writer: Writer, repository: Repository) -> None:
    call = turn("c1", 0, (1,), "one")
    plain = replace(call, call_id="c2", ordinal=1, completions=(Completion(0, TokenIds.of([1]), None, None),))
    store(writer, call, plain)
    assert [captured.call for captured in repository.calls("s1")] == [call, plain]

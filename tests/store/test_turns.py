"""Turns are found by their keys, in their own session, and come back whole or not at all."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Engine

from polarproxy.errors import StoreDamaged
from polarproxy.model import Call, PromptMode, TokenIds, TurnMark
from polarproxy.store import turns
from polarproxy.store.database import for_writing
from polarproxy.store.items import Fact
from polarproxy.store.repository import Repository
from polarproxy.store.schema import DELIVERED
from polarproxy.store.writer import Writer
from tests.store.samples import a_call, a_completion, a_session, new_call

SECONDS = 20


def key(text: str) -> bytes:
    return text.encode().ljust(16, b".")


def mark(text: str) -> TurnMark:
    return TurnMark(key(text), key("spelled"), key("thought"), ("call-1", "\x00"), "f" * 32)


def turn(call_id: str, ordinal: int, prompt: tuple[int, ...], *said: str, **fields: Any) -> Call:
    """A call with one choice for each of `said`, which is also its key."""
    choices = [replace(a_completion([100, ordinal], index), mark=mark(text)) for index, text in enumerate(said)]
    return a_call(call_id, ordinal, prompt, completions=tuple(choices), **fields)


def store(writer: Writer, *calls: Call) -> None:
    for call in calls:
        writer.submit(new_call(call)).result(SECONDS)


def found(repository: Repository, *wanted: str, session: str = "s1") -> list[tuple[str, int]]:
    return [(one.call_id, one.choice) for one in repository.marked_turns(session, [key(text) for text in wanted])]


def test_all_turns_with_a_key_are_found_in_order_of_arrival(writer: Writer, repository: Repository) -> None:
    store(writer, turn("c9", 0, (1,), "one"), turn("c1", 1, (1,), "one", "one"), turn("c5", 2, (1,), "two", "one"))
    assert found(repository, "one") == [("c9", 0), ("c1", 0), ("c1", 1), ("c5", 1)]
    assert found(repository, "zero", "two") == [("c5", 0)]
    assert found(repository) == []


def test_another_sessions_turn_is_none_of_ours(writer: Writer, repository: Repository) -> None:
    store(writer, turn("c1", 0, (1,), "one"), turn("c2", 0, (1,), "one", session_id="s2"))
    assert found(repository, "one", session="s2") == [("c2", 0)]
    assert found(repository, "one", session="s3") == []


def test_more_keys_than_one_query_takes(
    writer: Writer, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_AT_ONCE", 2)
    store(writer, turn("c1", 0, (1,), "a"), turn("c2", 1, (1,), "e"), turn("c3", 2, (1,), "c"))
    assert found(repository, "a", "b", "c", "d", "e") == [("c1", 0), ("c2", 0), ("c3", 0)]


def test_a_turn_comes_with_its_mark_its_tokens_and_whether_it_was_delivered(
    writer: Writer, repository: Repository
) -> None:
    call = turn("c2", 1, (1, 2, 100, 0, 3), "two")
    store(writer, turn("c1", 0, (1, 2), "one"), call)
    writer.submit(Fact("c2", datetime.now(UTC), DELIVERED, "yes")).result(SECONDS)
    first, second = repository.marked_turns("s1", [key("one"), key("two")])
    assert (first.delivered, second.delivered) == (False, True)
    assert second.mark == mark("two")
    assert repository.turn_tokens(second) == (TokenIds.of((1, 2, 100, 0, 3)), call.completions[0])


def test_a_turn_without_a_mark_is_never_found(writer: Writer, repository: Repository) -> None:
    store(writer, a_call("c1", 0, (1,), (2,)))
    assert repository.marked_turns("s1", [b"\0" * 16, b""]) == []


@pytest.mark.parametrize(
    "damage", ["turn_ids = NULL", "turn_ids = '[1'", "turn_spelling = NULL", "turn_template = NULL", "length = 7"]
)
def test_damage_is_told(writer: Writer, repository: Repository, engine: Engine, damage: str) -> None:
    store(writer, turn("c1", 0, (1,), "one"))
    with for_writing(engine).begin() as connection:
        connection.exec_driver_sql(f"UPDATE completions SET {damage}")
    with pytest.raises(StoreDamaged):
        repository.turn_tokens(repository.marked_turns("s1", [key("one")])[0])


def test_a_session_says_where_its_prompts_come_from(repository: Repository) -> None:
    for mode in (None, *PromptMode):
        session = a_session(f"s-{mode}", prompts=mode)
        repository.add_session(session)
        assert repository.session(session.session_id) == session
        state = repository.session_state(session.session_id)
        assert state is not None
        assert state.terms.prompts is mode

"""Any text goes into a text column of either database, and comes out as it was."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from polarproxy.errors import NotFound
from polarproxy.model import Reward, RewardComponent
from polarproxy.store.facts import LABEL
from polarproxy.store.items import Fact
from polarproxy.store.repository import Repository
from polarproxy.store.schema import call_facts
from polarproxy.store.text import decode_pairs, encode_pairs, escape, unescape
from polarproxy.store.writer import Writer
from tests.store.samples import NOW, a_call, a_completion, a_session, new_call

SECONDS = 20
HARD = "nul \x00, substitute \x1a and \x1a0000, halves \ud83d\udcff, a whole 😀, \\u001a and \\u0000"

_texts = st.text(st.characters() | st.sampled_from("\x00\x1a\ud83d\udcff0d"))


@given(_texts)
def test_what_was_escaped_comes_back(text: str) -> None:
    escaped = escape(text)
    assert unescape(escaped) == text
    assert "\x00" not in escaped
    escaped.encode()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00\x1a")))
def test_usual_text_is_stored_as_it_is(text: str) -> None:
    assert escape(text) == text


@given(st.lists(st.tuples(_texts, _texts)))
def test_pairs_come_back_from_their_json(pairs: list[tuple[str, str]]) -> None:
    encoded = encode_pairs(pairs)
    assert list(decode_pairs(encoded)) == pairs
    assert "\x00" not in encoded
    encoded.encode()


@pytest.mark.parametrize("text", ["", "{", "[1]", '[["a"]]', '[["a", 1]]'])
def test_what_is_no_pairs_is_refused(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_pairs(text)


def test_every_text_of_a_call_and_its_session_may_be_anything(writer: Writer, repository: Repository) -> None:
    call = a_call(
        path=HARD,
        error=HARD,
        requested_model=HARD,
        served_model=HARD,
        engine_request_id=HARD,
        headers=((HARD, HARD),),
        completions=(a_completion([1], stop_reason=HARD),),
    )
    session = a_session("s1", task_id=HARD, group_id=HARD, harness=HARD, model=HARD, metadata=((HARD, HARD),))
    reward = Reward(1.0, (RewardComponent(HARD, 0.5),))
    repository.add_session(session)
    writer.submit(new_call(call, t1=b"one")).result(SECONDS)
    repository.add_reward("s1", reward)
    assert repository.call("c1").call == call
    assert repository.session("s1").task_id == session.task_id
    assert repository.session("s1").metadata == session.metadata
    assert repository.session("s1").reward == reward
    assert [found.session.session_id for found in repository.sessions(group_id=HARD)] == ["s1"]
    assert repository.token_texts(HARD) == {1: b"one"}


def test_a_fact_may_say_anything(writer: Writer, repository: Repository) -> None:
    writer.submit(new_call(a_call())).result(SECONDS)
    writer.submit(Fact("c1", NOW, LABEL, HARD)).result(SECONDS)
    with repository._engine.connect() as connection:
        assert connection.execute(select(call_facts.c.value)).scalar_one() == HARD


@pytest.mark.parametrize("name", ["\x00", "s1\x00", "\ud83d"])
def test_a_name_that_no_column_takes_is_not_found(repository: Repository, name: str) -> None:
    """Such a name can stand in a URL."""
    for question in (repository.session, repository.call):
        with pytest.raises(NotFound):
            question(name)
    assert repository.session_state(name) is None
    assert repository.response_chain(name) == []
    assert repository.token_texts(name) == {}

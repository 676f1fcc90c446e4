"""An item that went through a spool is the item that went in."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.errors import DamagedRecord
from polarproxy.model import Call
from polarproxy.store.items import Fact, NewCall
from polarproxy.store.places import Place
from polarproxy.store.responses import StoredResponse
from polarproxy.store.spool_records import decode, encode, subject
from tests.store.samples import NOW, a_call, a_session, calls, new_call

HARD = "\x00\x1a\ud83d"
SESSION = a_session("s1", task_id=HARD, group_id="g", harness=HARD, model="m", metadata=(("a", HARD),))


@given(calls(), st.dictionaries(st.integers(0, 2**31 - 1), st.binary(max_size=8), max_size=3), st.booleans())
@settings(max_examples=60)
def test_any_call(call: Call, texts: dict[int, bytes], answered: bool) -> None:
    response = StoredResponse("resp_c1", HARD, b"[]", b"{}") if answered else None
    item = NewCall(call, SESSION, texts, response)
    assert decode(encode(item)) == item


def test_sessions_and_facts() -> None:
    fact = Fact("c1", NOW, "delivered", HARD)
    assert decode(encode(SESSION)) == SESSION
    assert decode(encode(fact)) == fact


def test_a_call_without_a_place_has_none_afterwards() -> None:
    """Even when one was given meanwhile: whether that holds is known only when the call is stored."""
    waiting = replace(new_call(a_call("c1", 0)), place=Place("s1", 0, 7, waits=True))
    given_meanwhile = replace(waiting, place=Place("s1", 12, 7))
    for item in (waiting, given_meanwhile):
        found = decode(encode(item))
        assert isinstance(found, NewCall)
        assert found.place == Place("s1", 0, 7, waits=True)
    about = subject(waiting)
    assert (about.session_id, about.call_id, about.ordinal, about.place) == ("s1", "c1", None, waiting.place)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"type": "other"}),
        msgspec.msgpack.encode({"type": "fact", "call_id": "c"}),
        encode(new_call(a_call("c1", 0, (1, 2), (3,)))).replace(b"completed", b"completeX"),
        encode(new_call(a_call("c1", 0, (1, 2), (3,)))).replace(b"ordinal", b"ordinaX"),
    ],
    ids=["empty", "nothing", "kind", "lacks", "status", "column"],
)
def test_what_nobody_wrote_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedRecord, match="cannot be read"):
        decode(data)

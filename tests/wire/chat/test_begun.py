"""A request that begins with an earlier one is read as if there had been none."""

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from polarproxy.errors import BadRequest
from polarproxy.wire.chat.fields import ChatRequest, read_request
from polarproxy.wire.shape import read_shape

if TYPE_CHECKING:
    from polarproxy.wire.chat.begun import Begun

LONG = "x" * 4096
PART = st.sampled_from([{"type": "text", "text": "a"}, {"type": "image_url"}, "a", 1, {"text": "]"}])
CONTENT = st.one_of(st.none(), st.text(max_size=4), st.lists(PART, max_size=2), st.just('"messages":[{'))
MESSAGE: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "tool"]), "content": CONTENT}),
    st.just({"messages": [1]}),
    st.integers(0, 99),
    st.just([]),
)
OTHERS = st.dictionaries(
    st.sampled_from(["model", "stream", "tools", "a", "messages ", "temperature"]),
    st.sampled_from([1, "m", True, None, [1], {"messages": [2]}, {"a": '"messages":[1]'}]),
    max_size=3,
)
SPACES = st.sampled_from([(",", ":"), (",", ":"), (", ", ":"), (" , ", " : "), (",", ":\n")])


def members(request: ChatRequest) -> Any:
    """All that is known of a request, as values, with the members in their order."""
    fields = [(name, bytes(value)) for name, value in request.fields.items()]
    shape = read_shape(request.fields, request.ends)
    return fields, shape, replace(request, fields={}, ends=None, begun=None), [*map(bytes, request.messages())]  # type: ignore[arg-type]


def encode(before: dict[str, Any], messages: Any, behind: dict[str, Any], spaces: tuple[str, str]) -> bytes:
    between, after = spaces
    names = [(name, value) for half in (before, {"messages": messages}, behind) for name, value in half.items()]
    said = (f"{json.dumps(name)}{after}{json.dumps(value, separators=spaces)}" for name, value in names)
    return f"{{{between.join(said)}}}".encode()


@st.composite
def conversations(draw: st.DrawFn) -> list[bytes]:
    """Requests of which each goes on from the one before it, or nearly."""
    spaces, before = draw(SPACES), draw(OTHERS)
    messages: list[Any] = [{"role": draw(st.sampled_from(["system", "user"])), "content": LONG}]
    made = []
    for _ in range(draw(st.integers(2, 4))):
        messages = [*messages, *draw(st.lists(MESSAGE, max_size=2))]
        behind = draw(OTHERS)
        body = encode(before, messages, behind, spaces)
        if draw(st.integers(0, 3)) == 0:
            # A second list of messages.
            body = body[:-1] + b',"messages":%b}' % draw(
                st.sampled_from([b"[]", b"[1]", b"null", b'[{"role":"user"}]'])
            )
        if draw(st.integers(0, 5)) == 0:
            place = draw(st.integers(len(LONG), len(body)))
            put_in = draw(st.sampled_from([b"", b",", b"]", b"{}", b" ", b"1"]))
            body = body[:place] + put_in + body[place + draw(st.integers(0, 1)) :]
        made.append(body)
    return made


IMAGE = '{"content":[{"type":"image_url"}]}'
TWICE = b'{"messages":[%b,"%b"]}' % (json.dumps("y" * (len(IMAGE) - 2)).encode(), LONG.encode())


@settings(max_examples=400)
@given(conversations())
@example([encode({}, [1, LONG, 1], {}, (",", ":")), encode({}, [1, LONG, 12], {}, (",", ":"))])
@example([encode({}, [LONG], {}, (",", ":")), encode({}, [LONG], {}, (",", ":")).replace(b"]", b",]")])
@example([encode({}, [LONG], {}, (",", ":")), encode({}, [LONG], {}, (",", ":")).replace(b"]", b"{}]")])
@example([encode({}, [LONG], {}, (",", ":")), encode({}, [LONG], {}, (",", ":"))[:-1] + b',"messages":[1]}'])
@example([b'{"m\\u0065ssages":1,"a":2,"messages":["%b"]}' % LONG.encode()] * 2)
@example([TWICE[:-1] + f',"messages":[{IMAGE}]}}'.encode(), TWICE])
def test_going_on_reads_what_a_whole_reading_reads(bodies: list[bytes]) -> None:
    begun: Begun | None = None
    for body in bodies:
        try:
            whole = read_request(body)
        except BadRequest as refused:
            with pytest.raises(BadRequest, match=re.escape(str(refused))):
                read_request(body, begun, goes_on=True)
            continue
        read = read_request(body, begun, goes_on=True)
        assert members(read) == members(whole)
        begun = read.begun


def conversation(turns: int) -> list[bytes]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": LONG}]
    made = []
    for turn in range(turns):
        messages += [{"role": "user", "content": f"{turn}"}, {"role": "assistant", "content": [{"type": "text"}]}]
        made.append(encode({"model": "m"}, messages, {"tools": [], "stream": True}, (",", ":")))
    return made


def test_a_conversation_goes_on_from_turn_to_turn() -> None:
    first, second, third = conversation(3)
    begun = read_request(first, goes_on=True).begun
    assert begun is not None
    opened = begun.go_on(second)
    assert opened is not None
    assert bytes(opened.more or b"").count(b"role") == 2
    read = read_request(second, begun, goes_on=True)
    assert read.ends.count == 5
    assert read.begun is not None
    assert read.begun.go_on(third) is not None
    assert read.begun.go_on(second) is not None, "the same again"
    assert read.begun.go_on(first) is None


def test_what_is_remembered_of_a_conversation_is_one_body() -> None:
    """Not one for each of its turns: neither end holds on to the body in which it came."""
    begun: Begun | None = None
    for body in conversation(4):
        begun = read_request(body, begun, goes_on=True).begun
    assert begun is not None
    assert (begun.ends.count, begun.ends.last) == (9, None)
    assert begun.ends.first is not None
    assert len(memoryview(begun.ends.first.content)) == len(LONG) + 2


@pytest.mark.parametrize("body", [b'{"messages":[]}', b'{"messages":[{"role":"user"}]}', b"{}"])
def test_short_requests_are_not_remembered(body: bytes) -> None:
    assert read_request(body, goes_on=True).begun is None

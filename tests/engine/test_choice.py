"""A long stream is parsed on the way: what comes out is the same, wherever its pieces and the parsing lie."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.engine import choice
from polarproxy.engine.capture import Capture
from polarproxy.engine.choice import ChoiceCapture
from polarproxy.engine.completion_capture import CompletionCapture
from polarproxy.errors import BadReply

TOKEN = st.tuples(st.integers(0, 40), st.one_of(st.none(), st.floats(-20, 0, width=32)))
PIECES = st.lists(st.tuples(st.lists(TOKEN, max_size=12), st.booleans()), max_size=8)
"""What comes at a time, and whether it is taken for a piece with nothing but sampled text."""
LIMITS = st.sampled_from([2, 12, 60, 400, 2000])
"""Of bytes; an array of nothing has two."""


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def entry(token_id: int, value: float | None) -> dict[str, object]:
    return {"token": f"<{token_id}>", "logprob": value, "bytes": list(b"t%d" % token_id), "top_logprobs": []}


def fed(pieces: list[tuple[list[tuple[int, float | None]], bool]], kept: int, copied: int) -> Capture:
    """The capture of these pieces, with these limits."""
    capture = Capture()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "_CONDENSED", kept)
        patch.setattr(choice, "_COPIED", copied)
        for piece, few in pieces:
            ids = raw([token_id for token_id, _ in piece])
            logprobs = raw({"content": [entry(*token) for token in piece]})
            if few and piece:
                capture.choice(0).take_few(bytes(ids), bytes(logprobs))
            else:
                capture.choice(0).take(ids, logprobs)
    return capture


@given(PIECES, LIMITS, LIMITS)
def test_wherever_it_is_parsed_it_is_the_same(
    pieces: list[tuple[list[tuple[int, float | None]], bool]], kept: int, copied: int
) -> None:
    tokens = [token for piece, _ in pieces for token in piece]
    pieces.append(([], False))
    at_the_end, on_the_way = fed(pieces, 1 << 30, 1 << 30), fed(pieces, kept, copied)
    (expected,), (found,) = at_the_end.completions(), on_the_way.completions()
    assert [token_id for token_id, _ in tokens] == list(found.token_ids) == list(expected.token_ids)
    assert found.logprobs is not None
    assert expected.logprobs is not None
    assert found.logprobs.raw == expected.logprobs.raw
    wanted = range(0, 40, 2)
    assert on_the_way.token_texts(wanted) == at_the_end.token_texts(wanted)
    assert on_the_way.token_texts(wanted) == {token: b"t%d" % token for token, _ in tokens if token in wanted}


def long(capture: Capture, tokens: int = 2_000, *, few: bool = False) -> ChoiceCapture:
    one = capture.choice(0)
    for token in range(tokens):
        ids, logprobs = raw([token]), raw({"content": [entry(token, -0.5)]})
        if few:
            one.take_few(bytes(ids), bytes(logprobs))
        else:
            one.take(ids, logprobs)
    return one


@pytest.mark.parametrize("few", [False, True])
def test_a_long_stream_takes_a_fraction_of_its_json(few: bool) -> None:
    one = long(Capture(), few=few)
    assert len(one.ids) + len(one.logprobs) < 1 << 15
    assert one._parsed is not None
    assert len(one._parsed.ids) > 6_000
    assert list(one.token_ids()) == list(range(2_000))


@pytest.mark.parametrize("bad", [raw({"content": [{"logprob": "x"}]}), raw({"content": 7})], ids=bytes)
def test_what_cannot_be_read_is_an_error_in_the_end_and_not_on_the_way(bad: msgspec.Raw) -> None:
    capture = Capture()
    capture.choice(0).take(raw([1]), bad)
    long(capture)
    with pytest.raises(BadReply, match="the logprobs of choice 0 cannot be read"):
        capture.completions()
    with pytest.raises(BadReply):
        capture.token_texts([1])


def test_entries_that_are_missing_on_the_way_spell_nothing() -> None:
    capture = Capture()
    capture.choice(0).take(raw([7, 8]), raw({"content": [entry(7, -0.5)]}))
    one = long(capture)
    assert len(one.token_ids()) == len(one.values()) + 1
    assert capture.token_texts(range(100)) == {}


def test_the_entries_of_an_echoed_prompt_are_left_out_of_a_long_stream_too() -> None:
    capture = CompletionCapture()
    one = capture.choice(0)
    one.echoed = 3
    one.take(None, raw({"tokens": ["p", "q"], "token_logprobs": [None, -9.0]}))
    one.take(raw([1]), raw({"tokens": ["r", "a"], "token_logprobs": [-9.0, -0.5]}))
    for token in range(2, 2_000):
        one.take(raw([token]), raw({"tokens": ["b"], "token_logprobs": [-0.25]}))
    (completion,) = capture.completions()
    assert completion.logprobs is not None
    assert list(completion.logprobs) == [-0.5] + [-0.25] * 1_998
    assert capture.token_texts([1, 2]) == {1: b"a", 2: b"b"}

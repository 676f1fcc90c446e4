"""From the bytes that say what was sampled to ids and logprobs: exact, or refused; nothing is filled in."""

import json
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.engine.capture import Capture, choice_index, decode_scalar, decode_usage, finish_reason, is_true
from polarproxy.engine.choice import is_null
from polarproxy.engine.ids import decode_ids, parse_ids
from polarproxy.errors import BadReply
from polarproxy.model import FinishReason, Logprobs, TokenIds, Usage
from polarproxy.trajectory.eligibility import Reason, untrainable_tokens

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=6)
NO_IDS = [
    b"[1.5]", b"[1.0]", b"[1e2]", b"[-1]", b"[0,-2]", b"[2147483648]", b"[4294967297]", b"[9223372036854775808]",
    b"[18446744073709551617]", b"[[1],[2]]", b"[[1]]", b'["1"]', b"[null]", b"[true]", b"[1,null,2]", b"[{}]", b"1234",
    b'"[1]"', b'"]["', b"{}", b'{"a":[1]}', b"true",
]  # fmt: skip
"""JSON, but not an array of token ids."""
NO_JSON = [
    b"[1,]",
    b"[1, ]",
    b"[ ,1]",
    b"[1,\t,2]",
    b"[+1]",
    b"[007]",
    b"[1,\v2]",
    b"[1,,2]",
    b"[1 2]",
    b"[0x10]",
    b"[1_0]",
    b"[NaN]",
    b"[",
    b"]",
    b"",
    b"[1",
    b"1]",
]


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


@given(IDS, st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", ":")]))
def test_ids_are_read_exactly(ids: list[int], separators: tuple[str, str]) -> None:
    assert list(decode_ids(json.dumps(ids, separators=separators).encode())) == ids


@pytest.mark.parametrize("text", [*NO_IDS, *NO_JSON, b"null"], ids=repr)
def test_what_is_no_array_of_ids_is_refused(text: bytes) -> None:
    with pytest.raises(BadReply, match=r"token ids"):
        decode_ids(text)


PIECES = st.one_of(
    st.integers(0, 2**31 - 1).map(str),
    st.sampled_from([*"012,,, []\t\r", "\v", "00", "07", "-0", "+1", "1.0", "1e2", "null", "\xa0", "2147483648"]),
)


@given(st.lists(IDS, max_size=2), st.lists(PIECES, max_size=6).map("".join))
def test_ids_are_read_as_json_is_and_nothing_else(before: list[list[int]], text: str) -> None:
    """A blank is no zero, and leading zeros are no number; with an earlier array at hand as without."""
    start = json.dumps(before[0], separators=(",", ":"))[:-1] if before else "["
    data = f"{start}{text}]".encode()
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(type(one) is int and 0 <= one < 2**31 for one in found):
        found = None
    for earlier in (None, *[parse_ids(json.dumps(ids, separators=(",", ":")).encode()) for ids in [*before, []]]):
        try:
            read: list[int] | None = list(parse_ids(data, earlier).ids)
        except BadReply:
            read = None
        assert read == found


@pytest.mark.parametrize("text", [b"[1,2,]", b"[1,2, ]", b"[1,2,,3]", b"[1,2,\t,3]", b"[1,2,03]"], ids=repr)
def test_what_follows_an_earlier_array_must_be_ids_too(text: bytes) -> None:
    with pytest.raises(BadReply, match=r"token ids"):
        parse_ids(text, parse_ids(b"[1,2]"))


def test_an_array_of_blanks_adds_nothing_to_a_stream() -> None:
    capture = Capture()
    for piece in (b"[5]", b"[ ]", b"[\n]", b"[7]"):
        capture.choice(0).take(msgspec.Raw(piece), None)
    assert list(capture.choice(0).token_ids()) == [5, 7]


@given(st.lists(IDS, max_size=5))
def test_the_pieces_of_a_stream_join_to_the_whole(pieces: list[list[int]]) -> None:
    capture = Capture()
    for piece in pieces:
        capture.choice(0).take(raw(piece), None)
    assert list(capture.choice(0).token_ids()) == [token for piece in pieces for token in piece]


@pytest.mark.parametrize("text", NO_IDS, ids=repr)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_piece_spoils_them_all(text: bytes, place: int) -> None:
    """Never a shorter completion, and never another token."""
    capture = Capture()
    pieces = [b"[1]", b"[2,3]"]
    pieces.insert(place, text)
    for piece in pieces:
        capture.choice(0).take(msgspec.Raw(piece), None)
    with pytest.raises(BadReply):
        capture.completions()


def test_null_and_absent_are_nothing() -> None:
    choice = Capture().choice(0)
    choice.take(raw(None), raw(None))
    choice.take(None, None)
    assert not choice.ids
    assert not choice.logprobs
    assert list(choice.token_ids()) == []


def entries(*values: float | None) -> msgspec.Raw:
    return raw({"content": [{"token": "x", "logprob": value, "bytes": [120], "top_logprobs": []} for value in values]})


def captured(ids: list[int], *pieces: msgspec.Raw | None) -> Capture:
    capture = Capture()
    capture.choice(0).take(raw(ids), None)
    for piece in pieces:
        capture.choice(0).take(None, piece)
    return capture


def test_logprobs_are_the_float32_of_what_was_written() -> None:
    written = [-0.0035729873925447464, -9999.0, -1e-30]
    (completion,) = captured([1, 2, 3], entries(*written[:1]), entries(*written[1:])).completions()
    assert completion.logprobs is not None
    np.testing.assert_array_equal(completion.logprobs.array, np.asarray(written, np.float32))


def test_a_null_logprob_is_nan() -> None:
    (completion,) = captured([1, 2], entries(-0.5, None)).completions()
    assert completion.logprobs is not None
    first, second = completion.logprobs
    assert first == -0.5
    assert math.isnan(second)
    assert untrainable_tokens(completion) is Reason.BAD_LOGPROB


def test_no_logprobs_are_none_and_not_zeros() -> None:
    (completion,) = captured([1, 2]).completions()
    assert completion.logprobs is None


@pytest.mark.parametrize("piece", [raw({"content": None}), raw({"content": []}), raw({}), entries(-0.5)], ids=bytes)
def test_too_few_entries_stay_too_few(piece: msgspec.Raw) -> None:
    (completion,) = captured([1, 2], piece).completions()
    assert completion.logprobs is not None
    assert len(completion.logprobs) < len(completion.token_ids)
    assert untrainable_tokens(completion) is Reason.LOGPROB_COUNT


def test_lost_entries_make_every_value_missing() -> None:
    capture = captured([1, 2], entries(-0.5))
    capture.choice(0).missing_logprobs = True
    (completion,) = capture.completions()
    assert completion.logprobs is not None
    assert [math.isnan(value) for value in completion.logprobs] == [True, True]


def test_a_value_beyond_float32_is_not_finite_and_so_not_trained() -> None:
    (completion,) = captured([1], entries(-1e300)).completions()
    assert completion.logprobs == Logprobs.of([-math.inf])


@pytest.mark.parametrize(
    "piece", [b"7", b'"x"', b'{"content": 7}', b'{"content": [{"logprob": "-inf"}]}', b'{"content": [7]}']
)
def test_logprobs_that_cannot_be_read_are_refused(piece: bytes) -> None:
    with pytest.raises(BadReply, match="the logprobs of choice 0 cannot be read"):
        captured([1], msgspec.Raw(piece)).completions()


def test_completions_stand_in_order_of_their_index() -> None:
    capture = Capture()
    capture.choice(1).finish, capture.choice(0).finish = FinishReason.LENGTH, None
    assert [(one.index, one.finish_reason) for one in capture.completions()] == [(0, None), (1, FinishReason.LENGTH)]
    assert capture.finished() == 1


def test_spellings_are_the_engines_bytes() -> None:
    content = [
        {"token": "\ufffd", "logprob": -0.5, "bytes": [240, 159]},
        {"token": "a", "logprob": -0.5, "bytes": None},
        {"token": "token_id:7", "logprob": -0.5, "bytes": [120]},
        {"token": "c", "logprob": -0.5, "bytes": [999]},
        {"token": "d", "logprob": -0.5},
    ]
    capture = captured([5, 6, 7, 8, 9], raw({"content": content}))
    assert capture.token_texts([5, 6, 7, 8]) == {5: b"\xf0\x9f", 6: b"a", 8: b"c"}


def test_spellings_of_a_choice_with_other_counts_are_not_guessed() -> None:
    assert captured([5, 6], entries(-0.5)).token_texts([5, 6]) == {}


def test_spellings_of_the_prompt_count_too() -> None:
    capture = captured([5], entries(-0.5))
    capture.prompt_texts = {1: b"p", 5: b"q"}
    assert capture.token_texts([1, 5, 9]) == {1: b"p", 5: b"q"}


@pytest.mark.parametrize(
    ("text", "value"),
    [(b'"x"', "x"), (b"7", "7"), (b"null", None), (b"1.5", None), (b"[]", None), (b'"\xff"', None), (b"{}", None)],
)
def test_scalars(text: bytes, value: str | None) -> None:
    assert decode_scalar(msgspec.Raw(text)) == value
    assert decode_scalar(None) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [(reason.value, reason) for reason in FinishReason if reason is not FinishReason.OTHER]
    + [("content_filter", FinishReason.OTHER), ("other", FinishReason.OTHER), (None, None), (1.5, None)],
)
def test_finish_reasons(text: Any, reason: FinishReason | None) -> None:
    assert finish_reason(raw(text)) is reason


def test_usage() -> None:
    assert decode_usage(raw({"prompt_tokens": 3})) == Usage(3, 0)
    assert decode_usage(
        raw({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "prompt_tokens_details": None})
        ) == Usage(3, 4)  # fmt: skip
    details = {"prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 1}}
    assert decode_usage(raw({"prompt_tokens": 3, "completion_tokens": 4, **details})) == Usage(3, 4, 2, 1)


@pytest.mark.parametrize("text", [b"null", b"7", b"{}", b'{"prompt_tokens": "x"}', b'{"prompt_tokens": null}'])
def test_usage_that_cannot_be_read_is_unknown_and_not_zero(text: bytes) -> None:
    assert decode_usage(msgspec.Raw(text)) is None
    assert decode_usage(None) is None


def test_null_and_true() -> None:
    assert [is_null(raw(value)) for value in (None, 0, "null", False)] == [True, False, False, False]
    assert is_null(None)
    assert [is_true(raw(value)) for value in (True, False, None, 1, "true")] == [True, False, False, True, True]
    assert not is_true(None)


def test_a_choice_without_an_index_is_the_first() -> None:
    assert choice_index({}) == 0
    assert choice_index({"index": raw(2)}) == 2
    with pytest.raises(BadReply, match="the index of a choice cannot be read"):
        choice_index({"index": raw("x")})


@pytest.mark.parametrize("sent", [b"[]", b"[ ]"])
def test_an_empty_prompt_is_none_that_was_captured(sent: bytes) -> None:
    """No engine samples after nothing: taken for a prompt, the sampled tokens would be trained without their context."""
    array, told = Capture(), Capture()
    array.take_prompt(sent, None)
    told.prompt = TokenIds()
    for capture in (array, told):
        assert capture.prompt is None

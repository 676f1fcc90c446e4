"""Halves of characters in JSON are read as U+FFFD, as `json` with a lenient encoder reads them; all else stays."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.wire.surrogates import whole_characters

HALVES = {
    r"cut \ud83d": r"cut \ufffd",
    r"\uDE00 cut": r"\ufffd cut",
    r"\ude00\ud83d": r"\ufffd\ufffd",
    r"\ud83d\ud83d\ude00": r"\ufffd\ud83d\ude00",
    r"\ud83d\n": r"\ufffd\n",
    r"\\\ud83d": r"\\\ufffd",
    r"\ud83dude00": r"\ufffdude00",
}
WHOLE = (r"\ud83d\ude00", r"\\ud83d", r"\\\\uDE00", r"\u0000\ud7ff\ue000", "😀", r"\ufffd", "")
TEXTS = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("\ud83d\ude00\\u")))


@pytest.mark.parametrize(("text", "expected"), HALVES.items())
def test_a_half_becomes_the_replacement_character(text: str, expected: str) -> None:
    assert whole_characters(f'{{"a":"{text}"}}'.encode()) == f'{{"a":"{expected}"}}'.encode()


@pytest.mark.parametrize("text", WHOLE)
def test_whole_characters_stay(text: str) -> None:
    assert whole_characters(f'{{"a":"{text}"}}'.encode()) is None


@given(st.dictionaries(TEXTS, TEXTS))
def test_what_is_left_is_what_a_lenient_reader_reads(value: dict[str, str]) -> None:
    # Python writes halves as escapes, and reads them; two of them in the right order are one character.
    body = json.dumps(value).encode()
    expected = {_lenient(name): _lenient(text) for name, text in json.loads(body).items()}
    mended = whole_characters(body)
    read = msgspec.json.decode(body if mended is None else mended)
    assert read == expected
    assert (mended is None) == (b"".join(map(_strict, (*value, *value.values()))).find(b"?") < 0)


def _lenient(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _strict(text: str) -> bytes:
    """A question mark for each half that stays one."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return b"?" if any("\ud800" <= char <= "\udfff" for char in whole) else b""

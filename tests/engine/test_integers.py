"""Two ways to read a JSON array of integers, which accept the same arrays and read the same from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.engine.integers import by_msgspec, by_simdjson, read_integers

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from numpy.typing import NDArray

    Read: TypeAlias = Callable[[bytes | memoryview], NDArray[np.int64]]

READERS = [by_simdjson, by_msgspec]
INT64 = st.integers(-(2**63), 2**63 - 1)
BROKEN = [
    *(
        b"",
        b"[",
        b"]",
        b"[1",
        b"[1]]",
        b"[1,]",
        b"[,1]",
        b"[1,,2]",
        b"[1 2]",
        b"[1]2",
        b"[1],[2]",
        b"x",
        b"1",
        b"null",
        b'"1"',
    ),
    *(
        b"{}",
        b'{"a":1}',
        b"[[1],[2]]",
        b"[[1,2]]",
        b"[[]]",
        b"[1,[]]",
        b"[{}]",
        b'["1"]',
        b"[null]",
        b"[true]",
        b"[NaN]",
    ),
    *(
        b"[1.5]",
        b"[1e400]",
        b"[01]",
        b"[-01]",
        b"[-]",
        b"[+1]",
        b"[0x1]",
        b"[1_0]",
        b"[1]\0",
        b"[\0]",
        b"[\xff]",
        b"[1\xc2\xa0]",
    ),
    *(
        b"[9223372036854775808]",
        b"[-9223372036854775809]",
        b"[18446744073709551615]",
        b"[1" + b"0" * 400 + b"]",
        b"[" * 3000,
    ),
]


@pytest.mark.parametrize("read", READERS)
@given(
    integers=st.lists(INT64),
    separators=st.sampled_from([(",", ":"), (" ,\n\t ", ":"), (", ", ":")]),
    blank=st.text(" \t\r\n"),
)
def test_integers_are_read_exactly(
    read: Callable[[bytes | memoryview], NDArray[np.int64]],
    integers: list[int],
    separators: tuple[str, str],
    blank: str,
) -> None:
    text = f"[{blank}{json.dumps(integers, separators=separators)[1:-1]}{blank}]".encode()
    for array in (text, memoryview(b"," + text + b",")[1:-1]):
        found = read(array)
        assert found.dtype == np.int64
        assert found.tolist() == integers


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("text", BROKEN, ids=lambda text: repr(text[:24]))
def test_anything_else_is_refused(read: Read, text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(text)


@given(st.text("0123456789,,,- []\t.eE", max_size=24).map(lambda text: f"[{text}]".encode()))
def test_both_accept_the_same(text: bytes) -> None:
    read: list[list[int] | None] = []
    for reader in READERS:
        try:
            read.append(reader(text).tolist())
        except ValueError:
            read.append(None)
    assert read[0] == read[1]


def test_what_is_read_outlives_its_text_and_its_parser() -> None:
    text = bytearray(b"[1,2,3]")
    found = by_simdjson(memoryview(text))
    text[:] = b"[9,9,9]"
    by_simdjson(b"[4,5,6]")
    assert found.tolist() == [1, 2, 3]


def test_the_fast_one_is_used_where_it_is() -> None:
    assert read_integers is by_simdjson

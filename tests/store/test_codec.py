"""Tokens and bodies come back from their stored bytes, and what does not is called damaged."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.errors import StoreDamaged
from polarproxy.model import TokenIds
from polarproxy.store import codec


@given(st.lists(st.integers(0, 2**31 - 1)))
def test_ids_come_back(ids: list[int]) -> None:
    assert list(codec.decode_ids(codec.encode_ids(TokenIds.of(ids).raw))) == ids


@given(st.binary())
def test_bytes_come_back(data: bytes) -> None:
    assert codec.decompress(codec.compress(data)) == data


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_the_digest_of_parts_is_that_of_the_whole(parts: list[bytes]) -> None:
    assert codec.digest(*parts) == codec.digest(b"".join(parts))


@given(st.binary(min_size=1), st.data())
def test_a_truncated_frame_is_damaged(content: bytes, data: st.DataObject) -> None:
    frame = codec.compress(content)
    short = frame[: data.draw(st.integers(0, len(frame) - 1))]
    with pytest.raises(StoreDamaged):
        codec.decompress(short)


def test_a_frame_that_holds_no_whole_ids_is_damaged() -> None:
    with pytest.raises(StoreDamaged, match="5 bytes"):
        codec.decode_ids(codec.compress(b"12345"))


def test_a_digest_is_16_bytes_and_tells_contents_apart() -> None:
    assert len(codec.digest(b"")) == 16
    assert codec.digest(b"a") != codec.digest(b"b")


def test_a_repeated_sequence_costs_little() -> None:
    ids = TokenIds.of([151_644, 198] * 4000)
    assert len(codec.encode_ids(ids.raw)) < len(ids.raw) / 50


def test_threads_do_not_disturb_each_other() -> None:
    contents = [bytes([number]) * 50_000 for number in range(64)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda content: codec.decompress(codec.compress(content)), contents)) == contents

"""Ids of 18 bits come back from what was packed; anything else is left to a compressor, and nothing else is taken for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.errors import StoreDamaged
from polarproxy.model import TokenIds
from polarproxy.store import codec
from polarproxy.store.packing import MARK, pack, pack_all, unpack

LARGEST = 2**18 - 1


@given(st.lists(st.integers(0, LARGEST), max_size=50))
def test_small_ids_are_packed_and_come_back(ids: list[int]) -> None:
    raw = TokenIds.of(ids).raw
    packed = pack(raw)
    assert packed is not None
    assert packed.startswith(MARK)
    assert len(packed) == 1 + 2 * len(ids) + (len(ids) + 3) // 4
    assert unpack(packed) == raw
    assert codec.encode_ids(raw) == packed


@given(st.lists(st.integers(0, LARGEST), max_size=9), st.integers(LARGEST + 1, 2**31 - 1), st.integers(0, 9))
def test_a_larger_id_is_compressed_as_it_is(ids: list[int], larger: int, place: int) -> None:
    ids.insert(place, larger)
    raw = TokenIds.of(ids).raw
    assert pack(raw) is None
    assert not codec.encode_ids(raw).startswith(MARK)
    assert codec.decode_ids(codec.encode_ids(raw)).raw == raw


@given(st.binary(max_size=60))
def test_what_cannot_have_been_packed_is_damaged(rest: bytes) -> None:
    data = MARK + rest
    raw = unpack(data)
    if raw is None:
        with pytest.raises(StoreDamaged, match="packed"):
            codec.decode_ids(data)
    else:
        assert len(pack(raw) or b"") == len(data)


def test_what_a_compressor_makes_is_never_taken_for_packed_ids() -> None:
    assert not codec.compress(b"").startswith(MARK)
    assert not codec.compress(bytes(range(256)) * 9).startswith(MARK)


def test_long_sequences_are_compressed() -> None:
    raw = TokenIds.of([*range(1025)]).raw
    assert not codec.encode_ids(raw).startswith(MARK)
    assert codec.encode_ids(raw[:-4]).startswith(MARK)


SEQUENCES = st.lists(st.lists(st.integers(0, LARGEST), max_size=9).map(lambda ids: TokenIds.of(ids).raw), max_size=12)


@given(SEQUENCES)
def test_many_are_packed_as_each_of_them_is(many: list[bytes]) -> None:
    assert pack_all(many) == [pack(raw) for raw in many]


@given(SEQUENCES, st.integers(LARGEST + 1, 2**31 - 1), st.booleans())
def test_many_are_encoded_as_each_of_them_is(many: list[bytes], larger: int, long: bool) -> None:
    """Also with a long one and one that does not fit among them."""
    many.insert(len(many) // 2, TokenIds.of([larger, 1] if larger % 2 else [1, 2]).raw)
    if long:
        many.insert(len(many) // 3, TokenIds.of(range(1025)).raw)
    assert codec.encode_all_ids(many) == [codec.encode_ids(raw) for raw in many]

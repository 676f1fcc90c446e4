"""What is taken out of a body is put back byte for byte, whatever the body is."""

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.errors import StoreDamaged
from polarproxy.store.blobs import _LONG, _may_hold_one, put_back, take_out

IMAGE = bytes(range(256)) * 8
OTHER = bytes(reversed(IMAGE))
SPANS = st.one_of(
    st.binary(max_size=40),
    st.binary(min_size=768, max_size=1500).map(b64encode),
    st.just(b64encode(IMAGE)),
    st.just(b64encode(IMAGE)[:-3]),
    st.just(b"A" * 1025 + b"B="),
    st.just(b"\0" + b"0" * 32 + b"\0"),
)


@given(st.lists(SPANS, max_size=6).map(b"".join))
def test_any_body_comes_back_as_it_was(body: bytes) -> None:
    rest, blobs = take_out(body)
    assert put_back(rest, blobs.get) == body


@given(st.lists(st.one_of(SPANS, st.sampled_from([b" ", b'"', b"a" * 700, b"!" * 1500])), max_size=8).map(b"".join))
def test_looking_here_and_there_overlooks_nothing(body: bytes) -> None:
    assert _may_hold_one(body) or _LONG.search(body) is None


def test_text_is_not_looked_at_closely() -> None:
    assert not _may_hold_one(b"a word and another one, " * 500)
    assert not _may_hold_one(b"short")


def test_an_image_is_taken_out_once_however_often_it_stands_there() -> None:
    url = "data:image/png;base64," + b64encode(IMAGE).decode()
    body = json.dumps({"messages": [url, url, b64encode(OTHER).decode(), "short"]}).encode()
    rest, blobs = take_out(body)
    assert sorted(blobs.values()) == sorted([IMAGE, OTHER])
    assert len(rest) < 300
    assert put_back(rest, blobs.get) == body


def test_a_blob_that_is_gone_or_another_is_damage() -> None:
    rest, blobs = take_out(b64encode(IMAGE))
    (digest,) = blobs
    with pytest.raises(StoreDamaged, match=digest.hex()):
        put_back(rest, lambda _: None)
    with pytest.raises(StoreDamaged, match=digest.hex()):
        put_back(rest, {digest: OTHER}.get)

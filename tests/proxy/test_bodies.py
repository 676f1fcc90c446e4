"""Compressed request bodies are undone within the limit; what is broken or unknown is refused in words."""

import gzip
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.errors import BadRequest, TooLarge
from polarproxy.proxy.bodies import unpack
from tests.proxy.rig import BODY, Starter, _encoded

PACK = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}
LIMIT = 1 << 20


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("name", PACK)
@given(data=st.binary(max_size=2000))
def test_what_was_packed_is_unpacked(name: str, data: bytes) -> None:
    assert unpack(PACK[name](data), name, LIMIT) == data
    assert unpack(PACK[name](PACK["gzip"](data)), f"gzip, {name.upper()}", LIMIT) == data


@given(data=st.binary(min_size=1, max_size=2000))
def test_raw_deflate_goes_by_the_same_name(data: bytes) -> None:
    assert unpack(raw_deflate(data), "deflate", LIMIT) == data


@pytest.mark.parametrize("name", PACK)
def test_a_small_body_that_grows_beyond_the_limit_is_too_large(name: str) -> None:
    bomb = PACK[name](b"\0" * (8 << 20))
    assert len(bomb) < LIMIT
    with pytest.raises(TooLarge, match=f"longer than {LIMIT} bytes"):
        unpack(bomb, name, LIMIT)


@pytest.mark.parametrize("name", PACK)
def test_a_broken_body_is_refused(name: str) -> None:
    whole = PACK[name](bytes(range(256)) * 20)
    for broken in (whole[: len(whole) // 2], b"\xff\xfe" + whole[2:]):
        with pytest.raises(BadRequest):
            unpack(broken, name, LIMIT)


def test_an_unknown_encoding_is_refused_by_name() -> None:
    with pytest.raises(BadRequest, match="'snappy' is not known; use gzip, deflate, br, zstd"):
        unpack(b"", "snappy", LIMIT)


@pytest.mark.parametrize("name", PACK)
async def test_the_engine_gets_the_body_unpacked_and_the_record_holds_it(start: Starter, name: str) -> None:
    rig = await start()
    plain = _encoded(BODY)
    answer = await rig.ask(PACK[name](plain), headers={"Content-Encoding": name})
    assert answer.status == 200
    assert (await rig.call()).call.request_body == plain
    assert "Content-Encoding" not in rig.received[0].headers


async def test_a_bomb_is_refused_and_the_proxy_lives_on(start: Starter) -> None:
    rig = await start(max_body_mb=1)
    answer = await rig.ask(gzip.compress(b"\0" * (64 << 20)), headers={"Content-Encoding": "gzip"})
    assert answer.status == 413
    assert (await rig.ask()).status == 200

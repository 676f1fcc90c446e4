"""Request bodies as the client meant them: read within a limit, decompressed within the same limit."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import brotli
import zstandard

from polarproxy.errors import BadRequest, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.proxy.server.request import Request

_STEP = 256
_GOES_ON = "the compressed request body goes on after its end"
_CUT = "the compressed request body ends too early"


def _inflate(data: bytes, limit: int) -> bytes:
    """gzip and zlib by their head; anything else is raw deflate, which many clients send by that name."""
    packed = data[:2] == b"\x1f\x8b" or (len(data) > 1 and data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0)
    inflater = zlib.decompressobj(zlib.MAX_WBITS | 32 if packed else -zlib.MAX_WBITS)
    text = inflater.decompress(data, limit + 1)
    if not inflater.eof and len(text) <= limit:
        raise BadRequest(_CUT)
    if inflater.unused_data:
        raise BadRequest(_GOES_ON)
    return text


def _unbrotli(data: bytes, limit: int) -> bytes:
    decompressor = brotli.Decompressor()
    text: bytes = decompressor.process(data, output_buffer_limit=limit + 1)
    if len(text) <= limit and not decompressor.is_finished():
        raise BadRequest(_CUT)
    return text


def _unzstd(data: bytes, limit: int) -> bytes:
    """In small steps: one step may unfold to a hundred thousand times its size."""
    decompressor, text = zstandard.ZstdDecompressor().decompressobj(), bytearray()
    for start in range(0, len(data), _STEP):
        if decompressor.eof:
            raise BadRequest(_GOES_ON)
        text += decompressor.decompress(data[start : start + _STEP])
        if len(text) > limit:
            return bytes(text)
    if not decompressor.eof:
        raise BadRequest(_CUT)
    return bytes(text)


_UNPACK: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _inflate,
    "x-gzip": _inflate,
    "deflate": _inflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
_BROKEN: tuple[type[Exception], ...] = (zlib.error, brotli.error, zstandard.ZstdError)


def unpack(data: bytes, encodings: str, limit: int) -> bytes:
    """The body under its `Content-Encoding`s, the last one undone first.

    Raises `BadRequest` for an unknown or broken one, `TooLarge` for more than `limit` bytes.
    """
    for name in reversed([part.strip().lower() for part in encodings.split(",") if part.strip()]):
        if name == "identity":
            continue
        unpacker = _UNPACK.get(name)
        if unpacker is None:
            raise BadRequest(f"Content-Encoding {name!r} is not known; use gzip, deflate, br, zstd or none")
        try:
            data = unpacker(data, limit)
        except _BROKEN as error:
            raise BadRequest(f"the request body is not {name}: {error}") from error
        if len(data) > limit:
            raise TooLarge(f"the request body is longer than {limit} bytes once decompressed")
    return data


async def read_body(http: Request, limit: int) -> bytes:
    """The body of a request; raises `BadRequest`, `TooLarge`."""
    data = await http.read()
    encodings = http.headers.getall("Content-Encoding", ())
    return unpack(data, ",".join(encodings), limit) if encodings else data

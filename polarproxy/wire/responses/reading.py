"""Reading JSON that a client wrote: what cannot be read is a `BadRequest` that names the member."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import msgspec

from polarproxy.errors import BadRequest

Members: TypeAlias = dict[str, msgspec.Raw]
"""The members of a JSON object, each value as the bytes that came in."""

NONE = msgspec.Raw(b"")
"""Default of a member that is kept as its bytes: it was absent."""

_T = TypeVar("_T")

members = msgspec.json.Decoder(Members)


def read(decoder: msgspec.json.Decoder[_T], raw: bytes | msgspec.Raw, where: str) -> _T:
    """The value of some JSON; raises `BadRequest` that begins with `where`."""
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"{where}: {error}") from error


def given(raw: msgspec.Raw) -> bytes | None:
    """The bytes of a member; None when it is absent or null."""
    value = bytes(raw)
    return None if value in (b"", b"null") else value

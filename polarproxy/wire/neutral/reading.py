"""Reading JSON that a client wrote: what cannot be read is a `BadRequest` that names the member, in every dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from polarproxy.errors import UNREADABLE, BadRequest

if TYPE_CHECKING:
    import msgspec

_T = TypeVar("_T")


def require_utf8(raw: bytes | msgspec.Raw, where: str = "the request body") -> None:
    """Raises `BadRequest` when some JSON is no text: what is only carried, msgspec does not look into."""
    try:
        bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"{where}: not UTF-8: {error}") from error


def read(decoder: msgspec.json.Decoder[_T], raw: bytes | msgspec.Raw, where: str) -> _T:
    """The value of some JSON; raises `BadRequest` that begins with `where` (empty: the body itself)."""
    try:
        return decoder.decode(raw)
    except UNREADABLE as error:
        raise BadRequest(f"{where or 'the request body'}: {error}") from error


def is_given(raw: msgspec.Raw) -> bool:
    """Whether a member is there and not null."""
    return bytes(raw) not in (b"", b"null")

"""The members of a JSON object, read one by one; what nobody read is what is not known."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from polarproxy.errors import UNREADABLE, BadRequest
from polarproxy.model import Loss
from polarproxy.wire.neutral.reading import read, require_utf8

_T = TypeVar("_T")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SAYS_NOTHING = frozenset(("cache_control",))
"""Members that change neither what the model reads nor what it answers."""
_encode = msgspec.json.Encoder().encode


def note_unknown(raw: msgspec.Raw, known: frozenset[str], where: str, losses: list[Loss]) -> None:
    """A loss for each member of an object that says something and is not known."""
    for name, value in _object.decode(raw).items():
        if name not in known and name not in _SAYS_NOTHING and bytes(value) != b"null":
            losses.append(Loss(f"{where}.{name}", "not a member that can be carried; left out"))


class Members:
    """The members of a body that nobody has read yet."""

    def __init__(self, body: bytes) -> None:
        require_utf8(body)
        try:
            members = _object.decode(body)
        except UNREADABLE as error:
            raise BadRequest(f"the request body is not a JSON object: {error}") from error
        self.left = {name: value for name, value in members.items() if bytes(value) != b"null"}

    def take(self, name: str, decoder: msgspec.json.Decoder[_T]) -> _T | None:
        """A member; None when it is absent or null. Raises `BadRequest` when it is of another type."""
        raw = self.left.pop(name, None)
        return None if raw is None else read(decoder, raw, name)

    def take_if(self, name: str, decoder: msgspec.json.Decoder[_T]) -> _T | None:
        """A member; when it is of another type it stays and None is returned."""
        raw = self.left.get(name)
        if raw is None:
            return None
        try:
            value = decoder.decode(raw)
        except UNREADABLE:
            return None
        del self.left[name]
        return value

    def take_inner(self, name: str, inner: str) -> bool | None:
        """A true or false inside an object; the rest of the object stays."""
        whole = self.left.get(name)
        rest = self.take_if(name, _object) or {}
        value = {b"true": True, b"false": False}.get(bytes(rest.pop(inner, b"")))
        if whole is not None and value is None:
            self.left[name] = whole
        elif rest:
            self.left[name] = msgspec.Raw(_encode(rest))
        return value

"""Reading JSON as the Gemini API does, by the rules of protobuf's JSON.

A member may be spelled `systemInstruction` or `system_instruction`, `null` is the same as leaving it out, a list of one
may be written without its brackets, and a number may be written as a string. Source: protobuf, "ProtoJSON format".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import msgspec

from polarproxy.errors import UNREADABLE, BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

_T = TypeVar("_T")
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_FLAG = msgspec.json.Decoder(bool)
_NUMBER = msgspec.json.Decoder(int | float | str)
_TEXTS = msgspec.json.Decoder(dict[str, str])


def camel(name: str) -> str:
    """`system_instruction` as `systemInstruction`; a name that begins with `_`, or has none, as it is."""
    if name.startswith("_"):
        return name
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def read_body(body: bytes) -> Members:
    """The members of a request; raises `BadRequest` for what is not a JSON object in UTF-8."""
    try:
        body.decode()
        return Members(_OBJECT.decode(body), "")
    except UNREADABLE as error:
        raise BadRequest(f"the body is not a JSON object: {error}") from error


class Members:
    """The members of one object, each to be taken once; what nobody took is the `rest`."""

    def __init__(self, fields: dict[str, msgspec.Raw], where: str) -> None:
        self.where = where
        """The object's place in the request as a path; empty for the request itself."""
        self._left = {camel(name): (name, value) for name, value in fields.items() if bytes(value) != b"null"}

    def at(self, name: str) -> str:
        """The place of a member."""
        return f"{self.where}.{name}" if self.where else name

    def holds_text(self, name: str) -> bool:
        """Whether a member is there and a string; it stays to be taken."""
        return name in self._left and bytes(self._left[name][1]).startswith(b'"')

    def raw(self, name: str) -> bytes | None:
        """A member's JSON. None: it is not there, or null."""
        found = self._left.pop(name, None)
        return None if found is None else bytes(found[1])

    def text(self, name: str) -> str | None:
        """A string."""
        value = self.raw(name)
        return None if value is None else self._read(_TEXT, value, name, "a string")

    def flag(self, name: str) -> bool | None:
        """A boolean."""
        value = self.raw(name)
        return None if value is None else self._read(_FLAG, value, name, "true or false")

    def number(self, name: str) -> float | None:
        """A number."""
        value = self.raw(name)
        if value is None:
            return None
        try:
            found = float(self._read(_NUMBER, value, name, "a number"))
        except (ValueError, OverflowError):
            found = math.nan
        if not math.isfinite(found):
            raise BadRequest(f"{self.at(name)} must be a number")
        return found

    def integer(self, name: str) -> int | None:
        """An integer, also one that is written `40.0`."""
        value = self.raw(name)
        if value is None:
            return None
        found = self._read(_NUMBER, value, name, "an integer")
        try:
            if isinstance(found, str):
                return int(found)
            if int(found) == found:
                return int(found)
        except (ValueError, OverflowError):
            pass
        raise BadRequest(f"{self.at(name)} must be an integer")

    def message(self, name: str) -> Members | None:
        """An object."""
        value = self.raw(name)
        return None if value is None else self._open(value, self.at(name))

    def messages(self, name: str) -> list[Members] | None:
        """A list of objects, or one of them alone."""
        value = self.raw(name)
        if value is None:
            return None
        if value.startswith(b"{"):
            return [self._open(value, f"{self.at(name)}[0]")]
        items = self._read(_LIST, value, name, "a list of objects")
        return [self._open(bytes(item), f"{self.at(name)}[{place}]") for place, item in enumerate(items)]

    def texts(self, name: str) -> list[str] | None:
        """A list of strings, or one of them alone."""
        value = self.raw(name)
        if value is None:
            return None
        if value.startswith(b'"'):
            return [self._read(_TEXT, value, name, "a string")]
        items = self._read(_LIST, value, name, "a list of strings")
        return [self._read(_TEXT, bytes(item), f"{name}[{place}]", "a string") for place, item in enumerate(items)]

    def map(self, name: str) -> dict[str, str] | None:
        """An object of strings."""
        value = self.raw(name)
        return None if value is None else self._read(_TEXTS, value, name, "an object of strings")

    def object(self, name: str) -> bytes | None:
        """The JSON of an object whose members are the client's own."""
        value = self.raw(name)
        if value is not None and not value.startswith(b"{"):
            raise BadRequest(f"{self.at(name)} must be an object")
        return value

    def rest(self) -> Iterator[tuple[str, bytes]]:
        """Every member that was not taken, as the client spelled it, with its JSON."""
        return ((own, bytes(value)) for own, value in self._left.values())

    def _open(self, value: bytes, where: str) -> Members:
        try:
            return Members(_OBJECT.decode(value), where)
        except UNREADABLE as error:
            raise BadRequest(f"{where} must be an object") from error

    def _read(self, decoder: msgspec.json.Decoder[_T], value: bytes, name: str, what: str) -> _T:
        try:
            return decoder.decode(value)
        except UNREADABLE as error:
            raise BadRequest(f"{self.at(name)} must be {what}") from error

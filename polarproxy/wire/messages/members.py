"""Reading a JSON object member by member, so that what nobody asked for can be reported afterwards.

Errors name the member as a path: `messages[0].content[1].text: Field required`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import msgspec

from polarproxy.errors import BadRequest
from polarproxy.model import Loss
from polarproxy.wire.neutral.reading import read

if TYPE_CHECKING:
    from collections.abc import Iterator

_T = TypeVar("_T")
Json: TypeAlias = bytes | msgspec.Raw
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]

TEXT = msgspec.json.Decoder(str)
FLAG = msgspec.json.Decoder(bool)
COUNT = msgspec.json.Decoder(Count)
INTEGER = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)])
NUMBER = msgspec.json.Decoder(float)
TEXTS = msgspec.json.Decoder(list[str])
RAWS = msgspec.json.Decoder(list[msgspec.Raw])
TEXT_OR_RAWS: msgspec.json.Decoder[str | list[msgspec.Raw]] = msgspec.json.Decoder(str | list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Members:
    """The members of one JSON object at the path `where` (empty: the body itself). null is the same as absent."""

    __slots__ = ("_asked", "_fields", "where")

    def __init__(self, raw: Json, where: str) -> None:
        self.where = where
        self._fields = {name: value for name, value in read(_OBJECT, raw, where).items() if bytes(value) != b"null"}
        self._asked: set[str] = set()

    def path(self, name: str) -> str:
        """The path of a member."""
        return f"{self.where}.{name}" if self.where else name

    def raw(self, name: str) -> bytes | None:
        """A member as its JSON. None: absent."""
        self._asked.add(name)
        value = self._fields.get(name)
        return None if value is None else bytes(value)

    def get(self, name: str, decoder: msgspec.json.Decoder[_T]) -> _T | None:
        """A member's value. None: absent."""
        self._asked.add(name)
        value = self._fields.get(name)
        return None if value is None else read(decoder, value, self.path(name))

    def need(self, name: str, decoder: msgspec.json.Decoder[_T]) -> _T:
        """A member's value; raises `BadRequest` when it is absent."""
        value = self.get(name, decoder)
        if value is None:
            raise BadRequest(f"{self.path(name)}: Field required")
        return value

    def object(self, name: str) -> Members | None:
        """A member that is an object itself. None: absent."""
        raw = self.raw(name)
        return None if raw is None else Members(raw, self.path(name))

    def need_object(self, name: str) -> Members:
        """A member that is an object itself; raises `BadRequest` when it is absent."""
        value = self.object(name)
        if value is None:
            raise BadRequest(f"{self.path(name)}: Field required")
        return value

    def need_json_object(self, name: str) -> bytes:
        """A member that must be an object, as its JSON."""
        self.need(name, _OBJECT)
        return bytes(self._fields[name])

    def ignore(self, *names: str) -> None:
        """Marks members that may be dropped without a word."""
        self._asked.update(names)

    def rest(self) -> Iterator[tuple[str, bytes]]:
        """The members that were neither asked for nor ignored, each with its JSON."""
        return ((name, bytes(value)) for name, value in self._fields.items() if name not in self._asked)


@dataclass(slots=True)
class Reading:
    """What gathers while a request is read."""

    losses: list[Loss] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)
    """Deferred tools that the history has made available."""
    removed: set[str] = field(default_factory=set)
    """Tools that the history has withdrawn."""
    defined: list[Members] = field(default_factory=list)
    """Tools that the history itself defines."""

    def lose(self, where: str, why: str) -> None:
        """Reports something that is not carried."""
        self.losses.append(Loss(where, why))

    def lose_rest(self, members: Members) -> None:
        """Reports each member that nobody asked for."""
        for name, _ in members.rest():
            self.lose(members.path(name), "not carried: it has no counterpart in the engine")

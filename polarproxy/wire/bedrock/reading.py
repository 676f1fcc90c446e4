"""Reading JSON member by member, so that what is not understood is named by its place: as an error or as a `Loss`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from polarproxy.errors import UNREADABLE
from polarproxy.model import Loss
from polarproxy.wire.neutral.reading import is_given

if TYPE_CHECKING:
    from polarproxy.errors import PolarproxyError

Block: TypeAlias = dict[str, msgspec.Raw]
"""A union of AWS: an object whose one member names its kind."""
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
NO_PLACE = "has no place in what the engine is asked; left out"


@dataclass(slots=True)
class Reader:
    """One reading of one body."""

    error: type[PolarproxyError]
    """Raised for what cannot be understood."""
    losses: list[Loss] = field(default_factory=list)

    def lose(self, where: str, why: str) -> None:
        """Note something that is left out or changed."""
        self.losses.append(Loss(where, why))

    def value(self, raw: bytes | msgspec.Raw, kind: type[T], where: str) -> T:
        """JSON as a value of `kind`."""
        try:
            return msgspec.json.decode(raw, type=kind)
        except UNREADABLE as error:
            raise self.error(f"{where}: {error}") from error

    def split(self, raw: bytes | msgspec.Raw, kind: type[S], where: str) -> tuple[S, dict[str, bytes]]:
        """JSON as a struct, and the members that the struct does not know."""
        value, members = self.value(raw, kind, where), self.value(raw, Block, where)
        known = kind.__struct_encode_fields__
        return value, {name: bytes(rest) for name, rest in members.items() if name not in known and is_given(rest)}

    def read(self, raw: bytes | msgspec.Raw, kind: type[S], where: str) -> S:
        """JSON as a struct; members that it does not know are lost."""
        value, rest = self.split(raw, kind, where)
        for name in rest:
            self.lose(f"{where}.{name}", NO_PLACE)
        return value

    def optional(self, raw: msgspec.Raw, kind: type[S], where: str) -> S | None:
        """`read`, or None for a member that is not given."""
        return self.read(raw, kind, where) if is_given(raw) else None

    def union(self, raw: msgspec.Raw, where: str) -> list[tuple[str, msgspec.Raw]]:
        """The members of a union that are given: one, when the client keeps to the API."""
        return given(self.value(raw, Block, where))


def given(block: Block) -> list[tuple[str, msgspec.Raw]]:
    """The members of a union that are there and not null."""
    return [(name, raw) for name, raw in block.items() if is_given(raw)]

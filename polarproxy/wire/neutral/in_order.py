"""The pieces of one answer, in an order in which dialects can say them that say one part after the other.

An engine may go on with an earlier tool call after a later one began. And clients act on a call once its part has ended,
some before the reply is over, when nothing of it is stored yet. So no call ends before the reply does: while one is open,
what comes after it waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from polarproxy.wire.neutral.reply import ArgumentsPiece, TextPiece, ThinkingPiece, ToolBegin

if TYPE_CHECKING:
    from collections.abc import Iterator

First: TypeAlias = TextPiece | ThinkingPiece | ToolBegin
Said: TypeAlias = First | ArgumentsPiece


@dataclass(slots=True)
class _Part:
    first: First
    said: list[str] = field(default_factory=list)


class InOrder:
    """Gives the pieces of one choice part by part, as `fold` orders them.

    `live`: the arguments of the first call pass as they come; otherwise all of a call waits, as where it has no partial form.
    """

    def __init__(self, *, live: bool = True) -> None:
        self._live = live
        self._open: int | None = None
        """The call whose arguments pass. None: none."""
        self._waiting: list[_Part] = []
        self._calls: dict[int, _Part] = {}

    def feed(self, piece: Said) -> bool:
        """Whether the piece can be said now; otherwise it is kept until the end."""
        match piece:
            case ToolBegin():
                if self._live and self._open is None:
                    self._open = piece.call
                    return True
                self._calls[piece.call] = part = _Part(piece)
                self._waiting.append(part)
            case ArgumentsPiece():
                if piece.call == self._open:
                    return True
                self._calls[piece.call].said.append(piece.text)
            case _:
                if self._open is None and not self._waiting:
                    return True
                self._wait(piece)
        return False

    def _wait(self, piece: TextPiece | ThinkingPiece) -> None:
        if not self._waiting or type(self._waiting[-1].first) is not type(piece):
            self._waiting.append(_Part(piece))
        self._waiting[-1].said.append(piece.text)

    def parts(self) -> Iterator[tuple[First, str]]:
        """What waited: the piece that began each part, and all of its text."""
        for part in self._waiting:
            yield part.first, "".join(part.said)
        self._waiting.clear()

    def rest(self) -> Iterator[Said]:
        """What waited, with each part's text in one piece."""
        for first, text in self.parts():
            match first:
                case TextPiece() | ThinkingPiece():
                    yield replace(first, text=text)
                case ToolBegin():
                    yield first
                    if text:
                        yield ArgumentsPiece(first.call, text, first.index)

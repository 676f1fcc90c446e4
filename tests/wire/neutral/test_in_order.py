"""Parts come one after the other, calls end last, and text never waits before the first call."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from polarproxy.wire.neutral.in_order import InOrder, Said
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Choice,
    Final,
    Finished,
    Piece,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
    fold,
)


@st.composite
def interleaved(draw: st.DrawFn) -> list[Said]:
    """What one choice says, with arguments of any call that began coming at any time."""
    said: list[Said] = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from(("text", "thinking", "call", "more")), max_size=12)):
        match kind:
            case "text":
                said.append(TextPiece(draw(st.sampled_from("ab"))))
            case "thinking":
                said.append(ThinkingPiece(draw(st.sampled_from("ab"))))
            case "call":
                said.append(ToolBegin(calls, f"c{calls}", "f"))
                calls += 1
            case _ if calls:
                said.append(ArgumentsPiece(draw(st.integers(0, calls - 1)), draw(st.sampled_from("{}"))))
    return said


def passed(said: list[Said], *, live: bool) -> tuple[list[Said], list[Said]]:
    """What is said at once, and what at the end."""
    order = InOrder(live=live)
    return [piece for piece in said if order.feed(piece)], list(order.rest())


def answer(pieces: list[Said]) -> Choice:
    return fold([Begin(), *pieces, Finished("stop"), Final(None)]).choices[0]


def part_of(piece: Piece) -> object:
    return piece.call if isinstance(piece, (ToolBegin, ArgumentsPiece)) else type(piece)


@given(interleaved(), st.booleans())
def test_what_is_said_is_the_same_and_each_part_is_said_at_once(said: list[Said], live: bool) -> None:
    now, later = passed(said, live=live)
    assert answer(now + later) == answer(said)
    calls = [part for part, _ in groupby(now + later, part_of) if isinstance(part, int)]
    assert calls == sorted(set(calls))


@given(interleaved())
def test_at_once_comes_what_is_before_the_first_call_and_the_first_call(said: list[Said]) -> None:
    first = next((place for place, piece in enumerate(said) if isinstance(piece, ToolBegin)), len(said))
    assert passed(said, live=False)[0] == said[:first]
    own = [piece for piece in said[first:] if isinstance(piece, (ToolBegin, ArgumentsPiece)) and piece.call == 0]
    assert passed(said, live=True)[0] == said[:first] + own

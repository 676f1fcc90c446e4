"""Law 8 in the neutral form: a whole reply and a stream of pieces are one story."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.model import Usage
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Choice,
    Final,
    Finished,
    Piece,
    Reply,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
    fold,
    pieces,
)
from polarproxy.wire.neutral.request import Text, Thinking, ToolUse
from tests.wire.neutral.strategies import cut_pieces, replies


@given(replies())
def test_folding_the_pieces_of_a_reply_gives_it_back(reply: Reply) -> None:
    assert fold(pieces(reply)) == reply


@given(st.data())
def test_any_stream_that_tells_a_reply_folds_to_it(data: st.DataObject) -> None:
    reply = data.draw(replies())
    assert fold(data.draw(cut_pieces(reply))) == reply


@given(replies())
def test_the_pieces_of_a_reply_begin_once_end_once_and_are_never_empty(reply: Reply) -> None:
    every = list(pieces(reply))
    assert [type(piece) for piece in every].count(Begin) == 1
    assert isinstance(every[0], Begin)
    assert [type(piece) for piece in every].count(Final) == 1
    assert isinstance(every[-1], Final)
    assert all(piece.text for piece in every if isinstance(piece, (TextPiece, ThinkingPiece, ArgumentsPiece)))


def test_the_length_of_the_prompt_is_told_at_the_beginning() -> None:
    usage = Usage(prompt_tokens=7, completion_tokens=2, cached_tokens=3)
    assert next(iter(pieces(Reply((), usage)))) == Begin(7, 3)
    assert next(iter(pieces(Reply(())))) == Begin(None, None)


def test_arguments_go_to_their_call_even_when_something_else_came_between() -> None:
    stream: list[Piece] = [
        ToolBegin(0, "a", "f"),
        ArgumentsPiece(0, "{"),
        ToolBegin(1, "b", "g"),
        TextPiece("t"),
        ArgumentsPiece(0, "}"),
        ArgumentsPiece(1, "x"),
        Finished("tool_calls"),
        Final(None),
    ]
    assert fold(stream).choices[0].parts == (ToolUse("a", "f", "{}"), ToolUse("b", "g", "x"), Text("t"))


def test_a_kind_that_comes_again_is_another_part() -> None:
    stream: list[Piece] = [ThinkingPiece("1"), TextPiece("2"), ThinkingPiece("3"), ThinkingPiece("4"), Final(None)]
    assert fold(stream).choices[0].parts == (Thinking("1"), Text("2"), Thinking("34"))


@pytest.mark.parametrize("stream", [[TextPiece("x"), Final(None)], [TextPiece("x")]])
def test_a_choice_that_never_ended_was_aborted(stream: list[Piece]) -> None:
    assert fold(stream) == Reply((Choice(0, (Text("x"),), "abort"),))


def test_choices_stand_in_the_order_of_their_numbers() -> None:
    stream: list[Piece] = [Finished("stop", index=2), TextPiece("x", 1), Finished("length", index=1), Final(None)]
    assert [choice.index for choice in fold(stream).choices] == [1, 2]

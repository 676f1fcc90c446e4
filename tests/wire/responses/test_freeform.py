"""The text inside the arguments of a freeform tool, and the action of the local shell."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polarproxy.wire.responses.calls import action_of, arguments_of_action
from polarproxy.wire.responses.freeform import FreeformInput, arguments_of
from tests.wire.neutral.strategies import argument_texts, texts


def unescaped(*pieces: str) -> tuple[str, str | None]:
    input = FreeformInput()
    known = "".join(input.feed(piece) for piece in pieces)
    rest, wrong = input.close()
    return known + rest, wrong


@settings(max_examples=60)
@given(texts())
def test_arguments_say_the_input_and_nothing_else(text: str) -> None:
    assert unescaped(arguments_of(text)) == (text, None)
    assert unescaped(json.dumps({"input": text})) == (text, None)
    assert unescaped(json.dumps({"input": text}, indent=2)) == (text, None)


_NASTY = (
    '{"input":"\\ud83d\\ude42 \\u00fc\\n\\"\\\\"}',
    '{"input":"\\ud83d x"}',
    '{"input":"\\ud83d"}',
    '{"input":"\\u12"}',
    '{"input":"a\\',
    '{"input":"a\\ud83d\\u',
    '{"input":"\\q\\/"}',
    '{"input":"raw\nbreak"}',
    '{"input":"a","more":1}',
    '{"more":1,"input":"a"}',
    " " * 80 + '{"input":"a"}',
)


@settings(max_examples=60)
@given(st.sampled_from(_NASTY) | texts().map(json.dumps) | argument_texts(), st.data())
def test_any_cutting_gives_the_same_input(arguments: str, data: st.DataObject) -> None:
    places = sorted(data.draw(st.sets(st.integers(0, len(arguments)), max_size=6)) | {0, len(arguments)})
    pieces = [arguments[start:end] for start, end in pairwise(places)]
    assert unescaped(*pieces) == unescaped(arguments) == unescaped(*arguments)


@pytest.mark.parametrize(
    ("arguments", "input", "wrong"),
    [
        (_NASTY[0], '🙂 ü\n"\\', None),
        (_NASTY[1], "\ufffd x", None),
        (_NASTY[2], "\ufffd", None),
        (_NASTY[3], "\\u12", None),
        (_NASTY[6], "\\q/", None),
        (_NASTY[7], "raw\nbreak", None),
        ('{"input":"abc', "abc", "cut"),
        (_NASTY[4], "a\\", "cut"),
        (_NASTY[8], "a", "more"),
        (_NASTY[9], "a", "more"),
        ("*** Begin", "*** Begin", "whole text"),
        ('{"input": 5}', '{"input": 5}', "whole text"),
        ("", "", "whole text"),
    ],
)
def test_odd_arguments(arguments: str, input: str, wrong: str | None) -> None:
    said, why = unescaped(arguments)
    assert said == input
    assert (why is None) if wrong is None else wrong in str(why)


def test_the_input_is_known_while_it_arrives() -> None:
    input = FreeformInput()
    assert [input.feed(piece) for piece in ('{"in', 'put": "a', "\\", "nb\\ud83", "d\\ude42c", '"}')] == [
        "",
        "a",
        "",
        "\nb",
        "🙂c",
        "",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        '{"command":["ls","-l"]}',
        '{ "command": ["ls"], "timeout_ms": 1e3 }',
        '{"env":{},"command":["ls"]}',
        '{"command":[],"env":{"A":"b"},"working_directory":"/x"}',
    ],
)
def test_a_shell_command_keeps_its_bytes(arguments: str) -> None:
    action, wrong = action_of(arguments)
    said = json.loads(bytes(action))
    assert wrong is None
    assert said == {"type": "exec", "env": {}} | json.loads(arguments)
    assert arguments_of_action(bytes(action)) == arguments


@settings(max_examples=60)
@given(argument_texts())
def test_arguments_that_are_no_shell_command_are_wrapped(arguments: str) -> None:
    action, wrong = action_of(arguments)
    assert wrong is not None
    assert json.loads(bytes(action)) == {"type": "exec", "command": [], "env": {}, "_malformed_arguments": arguments}
    assert arguments_of_action(bytes(action)) == arguments


@pytest.mark.parametrize(
    "arguments", ['{"type":"x","command":[]}', '{"command":"ls"}', '{"command":["ls"],"env":null}']
)
def test_a_command_of_another_shape_is_wrapped(arguments: str) -> None:
    assert "_malformed_arguments" in json.loads(bytes(action_of(arguments)[0]))

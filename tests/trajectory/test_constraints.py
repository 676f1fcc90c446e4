"""A grammar, a forced call, a bias: told of the request in every dialect, and of nothing that bends nothing."""

import json
from dataclasses import replace
from typing import Any

import pytest

from polarproxy.batch.sample import build_samples
from polarproxy.model import CapturedCall, Session, Shape
from polarproxy.trajectory.branches import build_trajectory
from polarproxy.trajectory.constraints import constraints
from tests.trajectory.build import WHEN, Said, call

FORCED, FORM = "a tool that must be called", "a form of the output"
BENT: dict[str, tuple[dict[str, Any], str]] = {
    "chat, any tool": ({"tool_choice": "required"}, FORCED),
    "chat, one tool": ({"tool_choice": {"type": "function", "function": {"name": "look"}}}, FORCED),
    "responses, some tools": ({"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []}}, FORCED),
    "messages, any tool": ({"tool_choice": {"type": "any"}}, FORCED),
    "messages, one tool": ({"tool_choice": {"type": "tool", "name": "look"}}, FORCED),
    "gemini": ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, FORCED),
    "bedrock, any tool": ({"toolConfig": {"toolChoice": {"any": {}}}}, FORCED),
    "bedrock, one tool": ({"toolConfig": {"toolChoice": {"tool": {"name": "look"}}}}, FORCED),
    "a grammar": ({"structured_outputs": {"regex": "a+"}}, "`structured_outputs`"),
    "a bias": ({"logit_bias": {"7": -100}}, "`logit_bias`"),
    "words": ({"bad_words": ["no"]}, "`bad_words`"),
    "tokens": ({"allowed_token_ids": [1, 2]}, "`allowed_token_ids`"),
    "a least length": ({"min_tokens": 3}, "`min_tokens`"),
}
FREE: dict[str, bytes] = {
    "no body": b"",
    "no JSON": b"{",
    "half of UTF-8": b'{"a":"\xff"}',
    "a list": b"[1]",
    "deep": b"[" * 100_000,
    "nothing": b"{}",
    "nulls": b'{"tool_choice":null,"logit_bias":null,"min_tokens":null,"toolConfig":null}',
    "defaults": b'{"tool_choice":"auto","logit_bias":{},"min_tokens":0,"bad_words":[]}',
    "none": b'{"tool_choice":"none"}',
    "messages": b'{"tool_choice":{"type":"auto"}}',
    "some tools": b'{"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[]}}',
    "gemini": b'{"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}}',
    "bedrock": b'{"toolConfig":{"toolChoice":{"auto":{}},"tools":[]}}',
    "in a text": json.dumps({"messages": [{"role": "user", "content": '"tool_choice":"required"'}]}).encode(),
}


@pytest.mark.parametrize(("body", "said"), BENT.values(), ids=BENT)
def test_what_bends_is_told(body: dict[str, Any], said: str) -> None:
    made = replace(call(0, [1], Said([2])), request_body=json.dumps(body).encode())
    assert constraints(made) == (said,)


@pytest.mark.parametrize("body", FREE.values(), ids=FREE)
def test_what_bends_nothing_is_not(body: bytes) -> None:
    assert constraints(replace(call(0, [1], Said([2])), request_body=body)) == ()


def test_without_a_body_the_shape_tells_of_json() -> None:
    made = call(0, [1], Said([2]))
    assert constraints(replace(made, shape=Shape(1, (), wants_json=True))) == (FORM,)
    assert constraints(replace(made, shape=Shape(1, (), wants_json=False))) == ()


def test_a_row_says_so_of_what_it_trains() -> None:
    forced = replace(call(0, [1], Said([2])), request_body=b'{"tool_choice":"required"}')
    calls = [
        CapturedCall(one, delivered=True) for one in (forced, call(1, [1, 2, 3], Said([4])), call(2, [9], Said([5])))
    ]
    first, second = build_samples(build_trajectory("s", calls), Session("s", WHEN), None)
    assert (first.warnings, second.warnings) == (("constrained",), ())

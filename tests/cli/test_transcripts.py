"""What was said: from the requests that repeat it, and from the spelling of tokens where none does."""

import json
from dataclasses import replace
from typing import Any

from polarproxy.cli.transcripts import transcribe
from polarproxy.credit.transcript import ToolCall
from polarproxy.model import Call, CapturedCall, FinishReason
from polarproxy.trajectory.branches import build_trajectory
from tests.trajectory.build import Said, call

TEXTS = {
    10: b"<think>hm",
    11: b"</think>",
    12: b"Done.",
    13: b"<|im_end|>",
    14: b'<tool_call>{"name": "bash", "arguments": {"c": 1}}</tool_call>',
    15: b"<tool_call>{broken}</tool_call>",
}
USER = {"role": "user", "content": "How many?"}
TOOL_CALL = {"id": "t1", "type": "function", "function": {"name": "bash", "arguments": '{"c":  1}'}}
ASSISTANT = {"role": "assistant", "content": "I look.", "tool_calls": [TOOL_CALL]}
RESULT = {"role": "tool", "tool_call_id": "t1", "content": "3 passed"}


def asked(made: Call, *messages: dict[str, Any]) -> CapturedCall:
    body = json.dumps({"model": "m", "messages": [{"role": "system", "content": "Be good."}, *messages]}).encode()
    return CapturedCall(replace(made, request_body=body), delivered=True)


def test_a_turn_that_a_later_request_repeats_is_as_it_stands_there() -> None:
    calls = [
        asked(call(0, [1], Said([2, 3])), USER),
        asked(call(1, [1, 2, 3, 4], Said([10, 11, 12, 13])), USER, ASSISTANT, RESULT),
    ]
    said = transcribe(build_trajectory("s", calls), TEXTS)
    first, last = said.turns
    assert said.instruction == "How many?"
    assert (first.text, first.tools, first.tokens) == ("I look.", (ToolCall("bash", '{"c":  1}', "3 passed"),), 2)
    assert (last.text, last.thinking, last.tools, last.tokens) == ("Done.", "hm", (), 4)
    assert said.final_text == "Done."


def test_the_last_turn_is_spelled() -> None:
    said = transcribe(build_trajectory("s", [asked(call(0, [1], Said([12, 14, 15, 13])), USER)]), TEXTS)
    (only,) = said.turns
    assert only.text == "Done.<tool_call>{broken}</tool_call>"
    assert only.tools == (ToolCall("bash", '{"c": 1}'),)
    assert not only.well_formed


def test_without_bodies_and_spellings_something_is_said_all_the_same() -> None:
    made = call(0, [1], Said([99], finish=FinishReason.LENGTH))
    said = transcribe(build_trajectory("s", [CapturedCall(made, delivered=True)]), {})
    assert (said.instruction, said.turns[0].text, said.turns[0].cut) == ("", "⟨99⟩", True)
    assert transcribe(build_trajectory("s", []), {}).final_text == ""

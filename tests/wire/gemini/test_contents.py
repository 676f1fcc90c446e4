from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import pytest

from polarproxy.wire.gemini.request import decode_request, encode_request
from polarproxy.wire.gemini.signature import sign
from polarproxy.wire.neutral.request import Media, Message, Part, Text, Thinking, ToolResult, ToolUse
from polarproxy.wire.neutral.seal import seal
from tests.wire.gemini.bodies import (
    HELLO,
    decode_body,
    decoded,
    messages,
    request_of,
    wheres,
    written_and_read,
)

THOUGHT = "I look at the file first."
RUN: dict[str, Any] = {"functionCall": {"name": "run", "args": {"command": "ls"}}}
RAN: dict[str, Any] = {"functionResponse": {"name": "run", "response": {"output": "a.txt"}}}
RUN_ARGS = '{"command":"ls"}'


def call(name: str = "run", **members: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {"command": "ls"}} | members}


def result(name: str = "run", **members: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "a.txt"}} | members}


def model(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def said(*parts: dict[str, Any]) -> tuple[Part, ...]:
    """The parts of one turn of the model."""
    return messages(HELLO, model(*parts))[1].parts


PNG = {"mimeType": "image/png", "data": "/+8="}


@pytest.mark.parametrize(
    ("part", "meant"),
    [
        ({"text": ""}, Text("")),
        ({"inlineData": PNG}, Media("image/png", "data:image/png;base64,/+8=")),
        ({"inline_data": {"mime_type": "image/png", "data": "_-8"}}, Media("image/png", "data:image/png;base64,/+8=")),
        ({"inlineData": PNG | {"displayName": "a"}}, Media("image/png", "data:image/png;base64,/+8=", "a")),
        (
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://media.invalid/a"}},
            Media("video/mp4", "https://media.invalid/a"),
        ),
        ({"fileData": {"fileUri": "gs://b/a"}}, Media("application/octet-stream", "gs://b/a")),
    ],
)
def test_a_part_of_the_user(part: dict[str, Any], meant: Part) -> None:
    assert messages(user(part)) == (Message("user", (meant,)),)


def test_a_content_without_a_role_is_the_users_and_lists_of_one_need_no_brackets() -> None:
    assert messages({"parts": {"text": "hi"}}) == (Message("user", (Text("hi"),)),)


def test_contents_of_the_user_stay_apart_and_those_of_the_model_are_one() -> None:
    assert messages(user({"text": "a"}), user({"text": "b"}), model({"text": "c"}), model({"text": "d"}, RUN)) == (
        Message("user", (Text("a"),)),
        Message("user", (Text("b"),)),
        Message("assistant", (Text("cd"), ToolUse("call_0", "run", RUN_ARGS))),
    )


def test_an_empty_turn_of_the_model_is_none() -> None:
    assert [m.role for m in messages(HELLO, model(), model({"text": ""}), HELLO)] == ["user", "user"]


def test_results_stand_before_what_else_the_content_says() -> None:
    found = messages(HELLO, model(RUN, RUN), user({"text": "note"}, RAN), user(RAN, {"text": "more"}))
    assert [m.role for m in found] == ["user", "assistant", "tool", "user", "tool", "user"]
    found = messages(HELLO, model(RUN, RUN), user(RAN), {"role": "function", "parts": [RAN]})
    assert found[2] == Message(
        "tool",
        (ToolResult("call_0", (Text("a.txt"),), name="run"), ToolResult("call_1", (Text("a.txt"),), name="run")),
    )


def test_results_without_ids_find_their_calls_by_name_and_order() -> None:
    found = messages(
        HELLO, model(call("a"), call("b"), call("a")), user(result("a"), result("a"), result("b")), model(call("a"))
    )
    assert [part.id for part in found[1].parts if isinstance(part, ToolUse)] == ["call_0", "call_1", "call_2"]
    assert [part.id for part in found[2].parts if isinstance(part, ToolResult)] == ["call_0", "call_2", "call_1"]
    assert [part.id for part in found[3].parts if isinstance(part, ToolUse)] == ["call_3"]


@pytest.mark.parametrize(
    ("call_id", "result_id", "meant"),
    [("x", "x", "x"), ("x", None, "x"), (None, "x", "call_0"), (None, None, "call_0"), ("", "", "call_0")],
)
def test_a_result_finds_its_call(call_id: str | None, result_id: str | None, meant: str) -> None:
    found = messages(HELLO, model(call(id=call_id)), user(result(id=result_id)))
    assert found[1].parts == (ToolUse(meant, "run", RUN_ARGS),)
    assert found[2].parts == (ToolResult(meant, (Text("a.txt"),), name="run"),)


def test_made_ids_do_not_change_when_the_conversation_grows() -> None:
    start = (HELLO, model(RUN), user(RAN))
    assert messages(*start, model(RUN), user(RAN))[:3] == messages(*start)


def test_the_same_result_once_more_is_told_once() -> None:
    """As Gemini CLI resumes; otherwise the resumed conversation would not go on from the tokens of the one before."""
    found = decoded(contents=[HELLO, model(call(id="x")), user(result(id="x"), result(id="x"))])
    assert [part.id for part in found.request.messages[2].parts if isinstance(part, ToolResult)] == ["x"]
    assert wheres(found) == ["contents[2].parts[1].functionResponse"]


def test_another_result_of_the_same_call_still_answers_it() -> None:
    found = messages(HELLO, model(call(id="x")), user(result(id="x"), result(id="x", response={"output": "more"})))
    assert [part.id for part in found[2].parts if isinstance(part, ToolResult)] == ["x", "x"]


@pytest.mark.parametrize(
    ("orphan", "meant"), [(result(id="cut"), "cut"), (result(), "orphan_0"), (result("other"), "orphan_0")]
)
def test_a_result_without_a_call_is_kept_and_told(orphan: dict[str, Any], meant: str) -> None:
    found = decoded(contents=[HELLO, model(call(id="x")), user(result(id="x"), orphan)])
    assert wheres(found) == ["contents[2].parts[1].functionResponse"]
    kept = found.request.messages[2].parts[1]
    assert isinstance(kept, ToolResult)
    assert kept.id == meant


def test_a_call_of_an_earlier_turn_is_not_answered_by_name() -> None:
    found = decoded(contents=[HELLO, model(RUN), HELLO, model(call("other")), user(RAN)])
    assert wheres(found) == ["contents[4].parts[0].functionResponse"]


@pytest.mark.parametrize(
    ("response", "text", "is_error"),
    [
        ({"output": "two\nlines"}, "two\nlines", False),
        ({"output": ""}, "", False),
        ({"output": {"a": 1}}, '{"output":{"a":1}}', False),
        ({"output": "a", "exit": 0}, '{"output":"a","exit":0}', False),
        ({"result": "text"}, '{"result":"text"}', False),
        ({"name": "bash", "content": "(no output)"}, '{"name":"bash","content":"(no output)"}', False),
        ({"error": "no such file"}, "no such file", True),
        ({"error": ""}, "", True),
        ({"error": {"code": 2}}, '{"error":{"code":2}}', True),
        ({"output": "a", "error": None}, '{"output":"a","error":null}', False),
        ({"output": "a", "error": ""}, '{"output":"a","error":""}', False),
        ({"output": "a", "error": "b"}, '{"output":"a","error":"b"}', True),
    ],
)
def test_an_answer_is_told_as_text_and_written_back_as_it_was(
    response: dict[str, Any], text: str, is_error: bool
) -> None:
    found = decoded(contents=[HELLO, model(call(id="x")), user(result(id="x", response=response))])
    assert found.request.messages[2].parts == (ToolResult("x", (Text(text),), is_error, "run"),)
    body = decode_body(encode_request(found.request).body)
    assert body["contents"][2]["parts"][0]["functionResponse"]["response"] == response


@pytest.mark.parametrize("response", [{"response": {}}, {"response": None}])
def test_an_empty_answer_has_no_content(response: dict[str, Any]) -> None:
    assert messages(HELLO, model(RUN), user(result(**response)))[2].parts == (ToolResult("call_0", (), name="run"),)


def test_an_answer_may_hold_media() -> None:
    found = messages(HELLO, model(call(id="x")), user(result(id="x", parts=[{"inlineData": PNG}])))
    image = Media("image/png", "data:image/png;base64,/+8=")
    assert found[2].parts == (ToolResult("x", (Text("a.txt"), image), name="run"),)
    assert written_and_read(*found) == found


def test_bytes_of_arguments_and_answers_survive() -> None:
    body = (
        b'{"contents":[{"parts":[{"text":"a"}]},{"role":"model","parts":[{"functionCall":{"id":"x","name":"run",'
        b'"args":{ "b" : 1.0, "a":[1e3, "\\u00e9"] }}}]},{"parts":[{"functionResponse":{"id":"x","name":"run",'
        b'"response":{"n": 1.0,  "m":2}}}]}]}'
    )
    found = decode_request(body, model="m", stream=False).request
    assert found.messages[1].parts == (ToolUse("x", "run", '{ "b" : 1.0, "a":[1e3, "\\u00e9"] }'),)
    assert found.messages[2].parts == (ToolResult("x", (Text('{"n": 1.0,  "m":2}'),), name="run"),)
    assert b'"args":{ "b" : 1.0, "a":[1e3, "\\u00e9"] }' in encode_request(found).body
    assert b'"response":{"n": 1.0,  "m":2}' in encode_request(found).body


def test_a_call_without_arguments_has_none() -> None:
    assert said({"functionCall": {"name": "run"}}) == (ToolUse("call_0", "run", "{}"),)


def test_what_is_no_json_object_is_wrapped_told_and_unwrapped() -> None:
    for text in ('{"path": "a.t', "[1]", "null", '{"_malformed_arguments":"x"}'):
        conversation = (Message("user", (Text("hi"),)), Message("assistant", (ToolUse("x", "run", text),)))
        encoded = encode_request(request_of(*conversation))
        assert [loss.where for loss in encoded.losses] == ["messages[1].parts[0].arguments"]
        assert decode_request(encoded.body, model="m", stream=False).request.messages == conversation


@pytest.mark.parametrize(
    ("parts", "meant"),
    [
        ([{"text": THOUGHT, "thought": True}, {"text": "a"}], (Thinking(THOUGHT), Text("a"))),
        (
            [{"text": "I look ", "thought": True}, {"text": "there.", "thought": True}, {"text": "a"}],
            (Thinking("I look there."), Text("a")),
        ),
        ([{"text": "a", "thoughtSignature": sign(THOUGHT)}], (Thinking(THOUGHT), Text("a"))),
        ([{"text": "a", "thought_signature": sign(THOUGHT)}], (Thinking(THOUGHT), Text("a"))),
        (
            [RUN | {"thoughtSignature": sign(THOUGHT)}, RUN],
            (Thinking(THOUGHT), ToolUse("call_0", "run", RUN_ARGS), ToolUse("call_1", "run", RUN_ARGS)),
        ),
        (
            [{"text": THOUGHT, "thought": True}, RUN | {"thoughtSignature": sign(THOUGHT)}],
            (Thinking(THOUGHT), ToolUse("call_0", "run", RUN_ARGS)),
        ),
        (
            [{"text": "a summary", "thought": True}, {"text": "a", "thoughtSignature": sign(THOUGHT)}],
            (Thinking(THOUGHT), Text("a")),
        ),
        ([{"text": THOUGHT, "thought": True, "thoughtSignature": sign(THOUGHT)}], (Thinking(THOUGHT),)),
        ([{"text": "a"}, {"text": "", "thoughtSignature": sign(THOUGHT)}], (Text("a"), Thinking(THOUGHT))),
        ([{"text": "a", "thoughtSignature": seal(THOUGHT)}], (Thinking(THOUGHT), Text("a"))),
        ([{"text": "a", "thoughtSignature": "skip_thought_signature_validator"}], (Text("a"),)),
        ([{"text": "a", "thoughtSignature": "Y29udGV4dF9lbmdpbmVlcmluZ19pc190aGVfd2F5X3RvX2dv"}], (Text("a"),)),
        ([{"text": "a", "thoughtSignature": ""}], (Text("a"),)),
        ([{"text": "a", "thoughtSignature": "c2lnbmF0dXJl"}], (Thinking("", "c2lnbmF0dXJl"), Text("a"))),
        (
            [{"text": THOUGHT, "thought": True}, RUN | {"thoughtSignature": "c2ln"}],
            (Thinking(THOUGHT, "c2ln"), ToolUse("call_0", "run", RUN_ARGS)),
        ),
        ([{"text": "b", "thoughtSignature": "c2ln"}, {"text": "c"}], (Thinking("", "c2ln"), Text("bc"))),
    ],
)
def test_reasoning_comes_back_once(parts: list[dict[str, Any]], meant: tuple[Part, ...]) -> None:
    assert said(*parts) == meant


def test_a_signature_comes_back_in_either_alphabet() -> None:
    respelled = urlsafe_b64encode(seal(THOUGHT).encode()).decode().rstrip("=")
    assert said({"text": "a", "thoughtSignature": respelled}) == (Thinking(THOUGHT), Text("a"))


@pytest.mark.parametrize(
    ("content", "lost"),
    [
        (user({"executableCode": {"language": "PYTHON", "code": "1"}}), ["contents[1].parts[0].executableCode"]),
        (
            model({"codeExecutionResult": {"outcome": "OUTCOME_OK"}}),
            ["contents[1].parts[0].codeExecutionResult"],
        ),
        (model({"inlineData": PNG}), ["contents[1].parts[0].inlineData"]),
        (model({}), ["contents[1].parts[0]"]),
        (model({"functionCall": {"args": {}}}), ["contents[1].parts[0].functionCall"]),
        (
            user({"text": "a", "videoMetadata": {"fps": 1}, "thought": True}),
            ["contents[1].parts[0].thought", "contents[1].parts[0].videoMetadata"],
        ),
        ({"role": "critic", "parts": [{"text": "a"}]}, ["contents[1].role"]),
        ({"role": "user", "parts": [], "ttl": 1}, ["contents[1].ttl"]),
    ],
)
def test_what_the_engine_has_no_place_for_is_told(content: dict[str, Any], lost: list[str]) -> None:
    assert sorted(wheres(decoded(contents=[HELLO, content]))) == lost


def test_instructions_in_the_middle_are_said_by_the_user() -> None:
    conversation = (Message("user", (Text("a"),)), Message("system", (Text("b"),)))
    encoded = encode_request(request_of(*conversation))
    assert [loss.where for loss in encoded.losses] == ["messages[1]"]
    again = decode_request(encoded.body, model="m", stream=False).request
    assert again.messages == (Message("user", (Text("a"),)), Message("user", (Text("b"),)))
    assert messages(user({"text": "a"}), {"role": "system", "parts": [{"text": "b"}]}) == conversation

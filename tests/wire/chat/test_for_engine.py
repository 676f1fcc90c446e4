"""What an engine is told of a conversation, and what is reported since it is not."""

import json

import pytest

from polarproxy.model import Loss
from polarproxy.wire.chat.request import encode_request
from polarproxy.wire.neutral.request import (
    Media,
    Message,
    Reasoning,
    Request,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from tests.wire.chat.asking import HI, PNG, engine, losses, sent


class TestEngine:
    def test_is_told_the_developer_as_the_system(self) -> None:
        said = Message("developer", (Text("x"),))
        assert sent(said) == [{"role": "system", "content": "x"}]
        assert json.loads(encode_request(Request(None, (said,)), keep_unknown=True).body)["messages"] == [
            {"role": "developer", "content": "x"}
        ]

    def test_gets_one_text_as_a_string_and_several_as_a_list(self) -> None:
        two = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        assert sent(Message("user", (Text("a"),)))[0]["content"] == "a"
        assert sent(Message("user", (Text("a"), Text("b"))))[0]["content"] == two
        assert sent(Message("user", ()))[0]["content"] == ""

    def test_gets_the_texts_of_an_assistant_as_one_string(self) -> None:
        said = Message("assistant", (Thinking("t"), Text("a"), Text("b"), ToolUse("c", "f", '{"x": 1}')))
        assert sent(said) == [
            {
                "role": "assistant",
                "content": "ab",
                "reasoning": "t",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
            }
        ]

    def test_gets_no_content_beside_calls_alone(self) -> None:
        assert sent(Message("assistant", (ToolUse("c", "f", ""),)))[0]["content"] is None
        assert sent(Message("assistant", (Thinking("t"),)))[0]["content"] == ""

    @pytest.mark.parametrize(
        "parts",
        [
            (ToolUse("c", "f", ""), Text("after")),
            (Thinking("a"), Text("b"), Thinking("c")),
            (Text("b"), Thinking("c")),
        ],
    )
    def test_gets_parts_in_its_own_order_which_is_reported(self, parts: tuple[Thinking | Text | ToolUse, ...]) -> None:
        assert losses(Message("assistant", parts)) == ["messages[0].content"]

    def test_gets_each_result_as_a_message_and_its_images_behind_them(self) -> None:
        image = Media("image/png", PNG)
        results = (ToolResult("a", (Text("1"), image, Text("2"))), ToolResult("b", (Text("3"),), is_error=True))
        assert sent(Message("tool", results)) == [
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": t} for t in "12"]},
            {"role": "tool", "tool_call_id": "b", "content": "3"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG}}]},
        ]
        assert losses(Message("tool", results)) == [
            "messages[0].content[0].content[1]",
            "messages[0].content[1].is_error",
        ]

    def test_is_given_ids_for_calls_that_have_none(self) -> None:
        uses = Message("assistant", (ToolUse("", "f", "1"), ToolUse("", "g", "2")))
        results = Message("tool", (ToolResult("", (Text("x"),)), ToolResult("", (Text("y"),))))
        told = sent(uses, results, uses, results)
        ids = [call["id"] for each in told for call in each.get("tool_calls", ())]
        assert ids == ["call_0", "call_1", "call_2", "call_3"]
        assert [each["tool_call_id"] for each in told if each["role"] == "tool"] == ids

    def test_is_not_told_of_documents_that_it_cannot_read(self) -> None:
        said = Message("user", (Media("application/pdf", "data:application/pdf;base64,AA=="),))
        assert sent(said) == [{"role": "user", "content": ""}]
        assert losses(said) == ["messages[0].content[0]"]

    def test_is_not_told_what_it_does_not_know(self) -> None:
        request = Request(None, HI, extra={"min_p": b"0.10", "prompt_cache_key": b'"k"', "top_logprobs": b"5"})
        encoded = encode_request(request)
        assert b'"min_p":0.10' in encoded.body
        assert encoded.losses == (
            Loss("prompt_cache_key", "not a member that the engine knows; left out"),
            Loss("top_logprobs", "not a member that the engine knows; left out"),
        )

    def test_is_not_told_of_a_stream_that_nobody_wants(self) -> None:
        request = Request(None, HI, stream_usage=True, extra={"stream_options": b'{"x":1}'})
        assert "stream_options" not in engine(request)

    def test_is_told_how_to_think(self) -> None:
        told = engine(Request(None, HI, reasoning=Reasoning(enabled=False, effort="high", budget=7)))
        assert told["chat_template_kwargs"] == {"enable_thinking": False}
        assert (told["reasoning_effort"], told["thinking_token_budget"]) == ("high", 7)

    def test_never_hides_reasoning_which_would_hide_its_ids(self) -> None:
        assert "include_reasoning" not in engine(Request(None, HI, reasoning=Reasoning(shown=False)))

    def test_believes_a_client_that_speaks_to_the_template_itself(self) -> None:
        extra = {"chat_template_kwargs": b'{"enable_thinking": true}'}
        told = engine(Request(None, HI, reasoning=Reasoning(enabled=False), extra=extra))
        assert told["chat_template_kwargs"] == {"enable_thinking": True}

    def test_is_not_told_the_tokens_of_foreign_reasoning(self) -> None:
        assert losses(Message("assistant", (Thinking("", "sealed"),))) == ["messages[0].content[0].seal"]

"""Chat requests: each member read and written, and that nothing is lost in silence."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from openai.types.chat import completion_create_params as sdk
from pydantic import TypeAdapter

from polarproxy.errors import BadRequest
from polarproxy.wire.chat.request import decode_request, encode_request
from polarproxy.wire.neutral.request import (
    Loss,
    Media,
    Message,
    OutputFormat,
    Reasoning,
    Request,
    Text,
    Thinking,
    Tool,
    ToolChoice,
    ToolResult,
    ToolUse,
)
from tests.wire.chat.strategies import CHAT_REQUESTS, ENGINE_REQUESTS
from tests.wire.neutral.strategies import requests

HI = (Message("user", (Text("hi"),)),)
PNG = "data:image/png;base64,AAEC"


def body(**members: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "hi"}], **members}).encode()


def read(**members: Any) -> Request:
    decoded = decode_request(body(**members))
    assert decoded.losses == ()
    return decoded.request


def lost(**members: Any) -> list[str]:
    return [loss.where for loss in decode_request(body(**members)).losses]


def message(**members: Any) -> tuple[Message, ...]:
    return read(messages=[members]).messages


def engine(request: Request) -> Any:
    return json.loads(encode_request(request).body)


def sent(*messages: Message) -> Any:
    return engine(Request(None, messages))["messages"]


def losses(*messages: Message, **members: Any) -> list[str]:
    return [loss.where for loss in encode_request(Request(None, messages, **members)).losses]


@given(CHAT_REQUESTS)
def test_decoding_what_was_encoded_gives_the_request_back(request: Request) -> None:
    encoded = encode_request(request, keep_unknown=True)
    assert encoded.losses == ()
    decoded = decode_request(encoded.body)
    assert (decoded.losses, decoded.request) == ((), request)


@given(ENGINE_REQUESTS)
def test_an_engine_is_told_everything_that_it_understands(request: Request) -> None:
    encoded = encode_request(request)
    assert encoded.losses == ()
    assert decode_request(encoded.body).request == request


@settings(max_examples=50)
@given(requests())
def test_whatever_a_dialect_says_becomes_a_request_as_the_sdk_types_it(request: Request) -> None:
    told = json.loads(encode_request(request).body)
    TypeAdapter(sdk.CompletionCreateParams).validate_python({"model": "m", **told})


class TestMembers:
    @pytest.mark.parametrize(
        ("members", "expected"),
        [
            ({"model": "m"}, {"model": "m"}),
            ({"stream": True}, {"stream": True}),
            ({"stream": True, "stream_options": {"include_usage": True}}, {"stream": True, "stream_usage": True}),
            ({"stream_options": {"include_usage": False}}, {}),
            ({"max_tokens": 5}, {"max_tokens": 5}),
            ({"max_completion_tokens": 6, "max_tokens": 5}, {"max_tokens": 6}),
            ({"temperature": 1}, {"temperature": 1.0}),
            ({"top_p": 0.5, "top_k": 3, "seed": -1, "n": 2}, {"top_p": 0.5, "top_k": 3, "seed": -1, "n": 2}),
            ({"presence_penalty": 1, "frequency_penalty": -1}, {"presence_penalty": 1.0, "frequency_penalty": -1.0}),
            ({"stop": "x"}, {"stop": ("x",)}),
            ({"stop": ["x", "y"]}, {"stop": ("x", "y")}),
            ({"stop": [], "tools": [], "temperature": None}, {}),
            ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
            ({"user": "u", "metadata": {"a": "b"}}, {"user": "u", "metadata": {"a": "b"}}),
            ({"reasoning_effort": "low"}, {"reasoning": Reasoning(effort="low")}),
            ({"thinking_token_budget": 9}, {"reasoning": Reasoning(budget=9)}),
            ({"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning": Reasoning(enabled=False)}),
            ({"include_reasoning": False}, {"reasoning": Reasoning(shown=False)}),
            ({"response_format": {"type": "text"}}, {}),
            ({"response_format": {"type": "json_object"}}, {"output": OutputFormat(None)}),
            (
                {
                    "response_format": {
                        "type": "json_schema",
                        "json_schema": {"name": "o", "schema": {"type": "object"}},
                    }
                },
                {"output": OutputFormat(b'{"type": "object"}', "o")},
            ),
            ({"tool_choice": "required"}, {"tool_choice": ToolChoice("required")}),
            (
                {"tool_choice": {"type": "function", "function": {"name": "f"}}},
                {"tool_choice": ToolChoice("named", "f")},
            ),
        ],
    )
    def test_is_read(self, members: dict[str, Any], expected: dict[str, Any]) -> None:
        assert read(**members) == Request(**{"model": None, "messages": HI, **expected})

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("min_p", 0.1),
            ("service_tier", "auto"),
            ("metadata", {"a": 1}),
            ("reasoning_effort", "extreme"),
            ("tool_choice", {"type": "allowed_tools", "allowed_tools": {}}),
            ("response_format", {"type": "structural_tag", "format": {}}),
            ("stream_options", {"include_obfuscation": False}),
            ("chat_template_kwargs", {"enable_thinking": "maybe"}),
        ],
    )
    def test_that_is_not_understood_is_kept_as_it_came(self, name: str, value: Any) -> None:
        request = read(**{name: value})
        assert request == Request(None, HI, extra={name: json.dumps(value).encode()})
        assert json.loads(encode_request(request, keep_unknown=True).body)[name] == value

    def test_known_and_unknown_ones_of_an_object_find_each_other_again(self) -> None:
        kwargs = {"chat_template_kwargs": {"a": 1, "enable_thinking": True}}
        options = {"stream": True, "stream_options": {"b": 2, "include_usage": True}}
        request = read(**kwargs, **options)
        assert request.reasoning == Reasoning(enabled=True)
        assert request.extra == {"chat_template_kwargs": b'{"a":1}', "stream_options": b'{"b":2}'}
        told = engine(request)
        assert (told["chat_template_kwargs"], told["stream_options"]) == (
            kwargs["chat_template_kwargs"],
            options["stream_options"],
        )

    @pytest.mark.parametrize(
        ("raw", "named"),
        [
            (b"", "JSON object"),
            (b"[]", "JSON object"),
            (b'"\xff"', "JSON object"),
            (b"{}", "`messages`"),
            (b'{"messages":null}', "`messages`"),
            (b'{"messages":{}}', "`messages`"),
            (b'{"messages":[{}]}', r"`messages\[0\]`"),
            (b'{"messages":[{"role":"user","content":1}]}', r"`messages\[0\].content`"),
            (b'{"messages":[{"role":"user","content":[{"text":"x"}]}]}', r"`messages\[0\].content\[0\]`"),
            (b'{"messages":[],"model":1}', "`model`"),
            (b'{"messages":[],"temperature":"hot"}', "`temperature`"),
            (b'{"messages":[],"stop":1}', "`stop`"),
            (b'{"messages":[],"tools":{}}', "`tools`"),
            (b'{"messages":[],"tools":[{"function":{}}]}', r"`tools\[0\].function`"),
        ],
    )
    def test_that_cannot_be_read_is_named(self, raw: bytes, named: str) -> None:
        with pytest.raises(BadRequest, match=named):
            decode_request(raw)


class TestMessages:
    @pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
    def test_has_a_string_or_parts(self, role: Any) -> None:
        assert message(role=role, content="x", name="n") == (Message(role, (Text("x"),), "n"),)
        assert message(role=role, content=[{"type": "text", "text": "x"}, "y"]) == (
            Message(role, (Text("x"), Text("y"))),
        )
        assert message(role=role, content="") == message(role=role, content=None) == (Message(role, ()),)

    @pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
    def test_of_an_assistant_has_reasoning_and_calls(self, name: str) -> None:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1e3}'}}
        assert message(role="assistant", content=None, **{name: "why"}, tool_calls=[call]) == (
            Message("assistant", (Thinking("why"), ToolUse("c", "f", '{"a": 1e3}'))),
        )

    @pytest.mark.parametrize(("arguments", "text"), [('{"a":', '{"a":'), ({"a": 1}, '{"a": 1}'), (None, ""), ("", "")])
    def test_carries_arguments_as_they_are(self, arguments: Any, text: str) -> None:
        call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
        assert message(role="assistant", tool_calls=[call])[0].parts == (ToolUse("c", "f", text),)

    def test_of_tools_are_one_message_of_results(self) -> None:
        one = {"role": "tool", "tool_call_id": "a", "content": "1"}
        two = {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "2"}], "name": "f"}
        assert read(messages=[one, two]).messages == (
            Message("tool", (ToolResult("a", (Text("1"),)), ToolResult("b", (Text("2"),), name="f"))),
        )

    def test_of_the_deprecated_functions_are_tools_without_ids(self) -> None:
        asked = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
        answered = {"role": "function", "name": "f", "content": "1"}
        assert read(messages=[asked, answered]).messages == (
            Message("assistant", (ToolUse("", "f", "{}"),)),
            Message("tool", (ToolResult("", (Text("1"),), name="f"),)),
        )

    @pytest.mark.parametrize(
        ("part", "media"),
        [
            ({"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}, Media("image/png", PNG, detail="low")),
            ({"type": "image_url", "image_url": "https://h/i.png"}, Media("image/*", "https://h/i.png")),
            (
                {"type": "input_audio", "input_audio": {"data": "AAEC", "format": "mp3"}},
                Media("audio/mpeg", "data:audio/mpeg;base64,AAEC"),
            ),
            ({"type": "audio_url", "audio_url": {"url": "https://h/a"}}, Media("audio/*", "https://h/a")),
            ({"type": "video_url", "video_url": {"url": "https://h/v"}}, Media("video/*", "https://h/v")),
            (
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "f.pdf"}},
                Media("application/pdf", "data:application/pdf;base64,AA==", "f.pdf"),
            ),
        ],
    )
    def test_has_media(self, part: dict[str, Any], media: Media) -> None:
        assert message(role="user", content=[part]) == (Message("user", (media,)),)

    @pytest.mark.parametrize(
        ("members", "where"),
        [
            ({"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}, "messages[0].content[0]"),
            ({"role": "user", "content": [{"type": "new", "text": "x"}]}, "messages[0].content[0]"),
            ({"role": "user", "content": [{"type": "text", "text": "x", "new": 1}]}, "messages[0].content[0].new"),
            (
                {"role": "assistant", "content": "x", "provider_specific_fields": {}},
                "messages[0].provider_specific_fields",
            ),
            ({"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}, "messages[0].tool_calls[0]"),
            ({"role": "critic", "content": "x"}, "messages[0].role"),
        ],
    )
    def test_that_say_more_than_can_be_carried_are_reported(self, members: dict[str, Any], where: str) -> None:
        assert lost(messages=[members]) == [where]

    def test_are_not_reported_for_what_says_nothing(self) -> None:
        part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
        assert lost(messages=[{"role": "user", "content": [part], "refusal": None, "audio": None}]) == []


class TestTools:
    def test_keep_the_bytes_of_their_schemas(self) -> None:
        schema = b'{ "type": "object", "properties": {"z": {"minimum": 1.0}, "a": {}} }'
        raw = b'{"messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":%s,"strict":true}}]}'
        request = decode_request(raw % schema).request
        assert request.tools == (Tool("f", None, schema, strict=True),)
        assert schema in encode_request(request).body

    def test_of_other_types_and_unknown_members_are_reported(self) -> None:
        function = {"name": "f", "parameters": None, "defer": 1}
        tools = [{"type": "custom", "custom": {"name": "c"}}, {"type": "function", "function": function, "x": 2}]
        decoded = decode_request(body(tools=tools))
        assert decoded.request.tools == (Tool("f"),)
        assert [loss.where for loss in decoded.losses] == ["tools[0]", "tools[1].x", "tools[1].function.defer"]

    def test_made_of_something_else_are_functions_to_an_engine_and_a_loss_to_others(self) -> None:
        request = Request(None, HI, tools=(Tool("n__f", namespace="n", own_name="f"), Tool("g", kind="custom")))
        assert encode_request(request).losses == ()
        assert [loss.where for loss in encode_request(request, keep_unknown=True).losses] == ["tools[0]", "tools[1]"]

    @pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("auto"), ToolChoice("named", "f")])
    def test_that_are_gone_take_the_choice_with_them(self, choice: ToolChoice) -> None:
        assert "tool_choice" not in engine(Request(None, HI, tool_choice=choice))
        assert losses(*HI, tool_choice=choice) == ["tool_choice"]

    def test_that_are_gone_can_still_be_forbidden(self) -> None:
        assert engine(Request(None, HI, tool_choice=ToolChoice("none")))["tool_choice"] == "none"


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

    def test_without_budgets_is_not_told_one(self) -> None:
        encoded = encode_request(Request(None, HI, reasoning=Reasoning(budget=7)), budgets=False)
        assert b"budget" not in encoded.body
        assert [loss.where for loss in encoded.losses] == ["reasoning.budget"]

    def test_is_not_told_the_tokens_of_foreign_reasoning(self) -> None:
        assert losses(Message("assistant", (Thinking("", "sealed"),))) == ["messages[0].content[0].seal"]

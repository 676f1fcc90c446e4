"""Chat requests: each member read and written, and that nothing is lost in silence."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from openai.types.chat import completion_create_params as sdk
from pydantic import TypeAdapter

from polarproxy.errors import BadRequest
from polarproxy.wire.chat.request import decode_request, encode_request
from polarproxy.wire.neutral.request import (
    OutputFormat,
    Reasoning,
    Request,
    Tool,
    ToolChoice,
)
from tests.wire.chat.asking import HI, body, engine, losses, read
from tests.wire.chat.strategies import CHAT_REQUESTS, ENGINE_REQUESTS
from tests.wire.neutral.strategies import requests


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
            (b'"\xff"', "^the request body: not UTF-8"),
            (b"{}", "`messages`"),
            (b'{"messages":null}', "`messages`"),
            (b'{"messages":{}}', "^messages: "),
            (b'{"messages":[{}]}', r"^messages\[0\]: "),
            (b'{"messages":[{"role":"user","content":1}]}', r"^messages\[0\].content: "),
            (b'{"messages":[{"role":"user","content":[{"text":"x"}]}]}', r"^messages\[0\].content\[0\]: "),
            (b'{"messages":[],"model":1}', "^model: "),
            (b'{"messages":[],"temperature":"hot"}', "^temperature: "),
            (b'{"messages":[],"stop":1}', "^stop: "),
            (b'{"messages":[],"tools":{}}', "^tools: "),
            (b'{"messages":[],"tools":[{"function":{}}]}', r"^tools\[0\].function: "),
        ],
    )
    def test_that_cannot_be_read_is_named(self, raw: bytes, named: str) -> None:
        with pytest.raises(BadRequest, match=named):
            decode_request(raw)


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


@pytest.mark.parametrize("name", ["stream_options", "chat_template_kwargs"])
def test_what_cannot_be_put_into_a_member_is_refused_by_its_name(name: str) -> None:
    asked = Request("m", (), stream=True, stream_usage=True, reasoning=Reasoning(enabled=True))
    with pytest.raises(BadRequest, match=f"`{name}`"):
        encode_request(replace(asked, extra={name: b'"x"'}))
    written = json.loads(encode_request(replace(asked, extra={name: b"null"})).body)
    assert written["stream_options"] == {"include_usage": True}
    assert written["chat_template_kwargs"] == {"enable_thinking": True}

"""Every member of a request, as the API documents it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
import pytest

from polarproxy.errors import BadRequest
from polarproxy.model import Loss
from polarproxy.wire.bedrock.request import decode_request
from polarproxy.wire.neutral.request import (
    Decoded,
    Media,
    Message,
    OutputFormat,
    Part,
    Reasoning,
    Request,
    Text,
    Thinking,
    Tool,
    ToolChoice,
    ToolResult,
    ToolUse,
)
from polarproxy.wire.neutral.seal import seal

HELLO: dict[str, Any] = {"role": "user", "content": [{"text": "hello"}]}


def decode(**members: Any) -> Decoded:
    body = {"messages": [HELLO]} | members
    return decode_request(msgspec.json.encode(body), model="m", stream=False)


def kept(**members: Any) -> Request:
    """The request of a body of which nothing is lost."""
    decoded = decode(**members)
    assert decoded.losses == ()
    return decoded.request


def messages(*shapes: dict[str, Any]) -> tuple[Message, ...]:
    return kept(messages=list(shapes)).messages


def said(role: str, *blocks: dict[str, Any]) -> Decoded:
    return decode(messages=[{"role": role, "content": list(blocks)}])


def test_a_whole_turn_of_an_agent() -> None:
    request = kept(
        system=[{"text": "Be brief."}, {"cachePoint": {"type": "default"}}],
        messages=[
            {"role": "user", "content": [{"text": "What is in a.txt?"}, {"cachePoint": {"type": "default"}}]},
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Look.", "signature": seal("Look.")}}},
                    {"text": "I shall look."},
                    {"toolUse": {"toolUseId": "call_1", "name": "read", "input": {"path": "a.txt"}}},
                    {"toolUse": {"toolUseId": "call_2", "name": "read", "input": {}}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "call_1", "content": [{"text": "words"}], "status": "success"}},
                    {"toolResult": {"toolUseId": "call_2", "content": [{"text": "no path"}], "status": "error"}},
                    {"text": "And now?"},
                ],
            },
        ],
        inferenceConfig={"maxTokens": 100, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"]},
        toolConfig={
            "tools": [
                {
                    "toolSpec": {
                        "name": "read",
                        "description": "Reads.",
                        "inputSchema": {"json": {"type": "object"}},
                        "strict": True,
                    }
                },
                {"cachePoint": {"type": "default"}},
            ],
            "toolChoice": {"auto": {}},
        },
        requestMetadata={"team": "blue"},
    )
    assert request == Request(
        model="m",
        messages=(
            Message("system", (Text("Be brief."),)),
            Message("user", (Text("What is in a.txt?"),)),
            Message(
                "assistant",
                (
                    Thinking("Look."),
                    Text("I shall look."),
                    ToolUse("call_1", "read", '{"path":"a.txt"}'),
                    ToolUse("call_2", "read", "{}"),
                ),
            ),
            Message("tool", (ToolResult("call_1", (Text("words"),)), ToolResult("call_2", (Text("no path"),), True))),
            Message("user", (Text("And now?"),)),
        ),
        tools=(Tool("read", "Reads.", b'{"type":"object"}', True),),
        tool_choice=ToolChoice("auto"),
        max_tokens=100,
        temperature=0.5,
        top_p=0.9,
        stop=("END",),
        metadata={"team": "blue"},
    )


def test_results_are_cut_out_of_a_message_where_they_stand_and_joined_with_their_neighbours() -> None:
    def result(number: int) -> dict[str, Any]:
        return {"toolResult": {"toolUseId": f"c{number}", "content": []}}

    cut = messages(
        {"role": "user", "content": [{"text": "a"}, result(1), {"text": "b"}]},
        {"role": "user", "content": [result(2)]},
        {"role": "user", "content": [result(3), {"text": "c"}]},
    )
    assert [message.role for message in cut] == ["user", "tool", "user", "tool", "user"]
    assert cut[3].parts == (ToolResult("c2", ()), ToolResult("c3", ()))


def test_results_of_tools_that_the_provider_ran_stand_in_an_assistants_message() -> None:
    use = {"toolUseId": "s1", "name": "grounding", "input": {}, "type": "server_tool_use"}
    decoded = said(
        "assistant", {"toolUse": use}, {"toolResult": {"toolUseId": "s1", "content": [{"json": {"n": 1.0}}]}}
    )
    assert decoded.request.messages == (
        Message("assistant", (ToolUse("s1", "grounding", "{}"),)),
        Message("tool", (ToolResult("s1", (Text('{"n":1.0}'),)),)),
    )
    assert [loss.where for loss in decoded.losses] == ["messages[0].content[0].toolUse.type"]


def test_a_system_message_may_stand_between_others() -> None:
    between = {"role": "system", "content": [{"text": "new rule"}]}
    assert messages(HELLO, between)[1] == Message("system", (Text("new rule"),))


DATA = b64encode(b"bytes").decode()
NESTED = {"toolResult": {"toolUseId": "c", "content": [{"toolResult": {"toolUseId": "c", "content": []}}]}}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"image": {"format": "jpeg", "source": {"bytes": DATA}}},
            Media("image/jpeg", f"data:image/jpeg;base64,{DATA}"),
        ),
        (
            {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://b/k.png"}}}},
            Media("image/png", "s3://b/k.png"),
        ),
        (
            {"video": {"format": "three_gp", "source": {"bytes": DATA}}},
            Media("video/3gpp", f"data:video/3gpp;base64,{DATA}"),
        ),
        (
            {"audio": {"format": "mp3", "source": {"bytes": DATA}}},
            Media("audio/mpeg", f"data:audio/mpeg;base64,{DATA}"),
        ),
        (
            {"document": {"format": "pdf", "name": "plan", "source": {"bytes": DATA}}},
            Media("application/pdf", f"data:application/pdf;base64,{DATA}", "plan"),
        ),
        (
            {"document": {"name": "x", "source": {"bytes": DATA}}},
            Media("application/octet-stream", f"data:application/octet-stream;base64,{DATA}", "x"),
        ),
        (
            {"image": {"format": "heic", "source": {"bytes": DATA}}},
            Media("image/heic", f"data:image/heic;base64,{DATA}"),
        ),
        (
            {"document": {"format": "txt", "name": "x", "source": {"bytes": "//8="}}},
            Media("text/plain", "data:text/plain;base64,//8=", "x"),
        ),
        (
            {"guardContent": {"image": {"format": "png", "source": {"bytes": DATA}}}},
            Media("image/png", f"data:image/png;base64,{DATA}"),
        ),
        ({"guardContent": {"text": {"text": "guard me"}}}, Text("guard me")),
        ({"citationsContent": {"content": [{"text": "it is so"}]}}, Text("it is so")),
        ({"text": "x", "image": None}, Text("x")),
    ],
)
def test_blocks_of_a_user(block: dict[str, Any], part: Part) -> None:
    decoded = said("user", block)
    assert decoded.request.messages == (Message("user", (part,)),)
    assert decoded.losses == ()


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ({"text": "all of it"}, ["all of it"]),
        ({"content": [{"text": "one"}, {"text": "two"}]}, ["one", "two"]),
        ({"bytes": b64encode("ü".encode()).decode()}, ["ü"]),
    ],
)
def test_a_document_of_text_becomes_text(source: dict[str, Any], texts: list[str]) -> None:
    document = {"format": "md", "name": "notes", "source": source, "context": "read with care"}
    decoded = said("user", {"document": document})
    (message,) = decoded.request.messages
    assert message.parts == tuple(Text(text) for text in ["notes\nread with care\n", *texts])
    assert decoded.losses == (
        Loss("messages[0].content[0].document", "a document; written into the prompt as plain text"),
    )


def test_a_search_result_becomes_text() -> None:
    found = {"source": "https://a.invalid", "title": "A", "content": [{"text": "b"}], "citations": {"enabled": True}}
    decoded = said("user", {"toolResult": {"toolUseId": "c", "content": [{"searchResult": found}]}})
    assert decoded.request.messages[0].parts == (ToolResult("c", (Text("A\nhttps://a.invalid\n"), Text("b"))),)
    at = "messages[0].content[0].toolResult.content[0].searchResult"
    assert [loss.where for loss in decoded.losses] == [f"{at}.citations", at]


def test_the_context_of_a_file_goes_before_it() -> None:
    document = {"format": "pdf", "name": "p", "context": "a contract", "source": {"bytes": DATA}}
    (message,) = messages({"role": "user", "content": [{"document": document}]})
    assert message.parts[0] == Text("a contract\n")
    assert isinstance(message.parts[1], Media)


def test_what_a_tool_may_answer() -> None:
    content = [
        {"text": "t"},
        {"json": {"b": 1.0, "a": [1e3]}},
        {"image": {"format": "png", "source": {"bytes": DATA}}},
        {"document": {"format": "pdf", "name": "d", "source": {"bytes": DATA}}},
        {"video": {"format": "mp4", "source": {"bytes": DATA}}},
        {"json": None, "text": "u"},
    ]
    (message,) = messages({"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": content}}]})
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    assert [part.mime if isinstance(part, Media) else part.text for part in result.content] == [
        "t",
        '{"b":1.0,"a":[1000.0]}',
        "image/png",
        "application/pdf",
        "video/mp4",
        "u",
    ]


@pytest.mark.parametrize(
    ("reasoning", "parts"),
    [
        ({"reasoningText": {"text": "why", "signature": "theirs"}}, (Thinking("why", "theirs"),)),
        ({"reasoningText": {"text": "why"}}, (Thinking("why"),)),
        ({"reasoningText": {"text": "", "signature": seal("all of it")}}, (Thinking("all of it"),)),
        ({"reasoningText": {"signature": seal("all of it")}}, (Thinking("all of it"),)),
        ({"reasoningText": {"text": "cut sh", "signature": seal("cut short")}}, (Thinking("cut short"),)),
        ({"reasoningText": {"text": "", "signature": "theirs"}}, (Thinking("", "theirs"),)),
        ({"reasoningText": {"text": ""}}, ()),
        ({"redactedContent": DATA}, (Thinking("", DATA),)),
    ],
)
def test_reasoning_comes_back(reasoning: dict[str, Any], parts: tuple[Part, ...]) -> None:
    decoded = said("assistant", {"reasoningContent": reasoning})
    assert decoded.request.messages == (Message("assistant", parts),)
    assert decoded.losses == ()


def test_arguments_keep_their_spelling() -> None:
    body = b"""{"messages": [{"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "t",
        "input": { "b": 1.0, "a":[1e3 ,null], "u": "\\u00fc" }}}]}]}"""
    (message,) = decode_request(body, model="m", stream=True).request.messages
    assert message.parts == (ToolUse("c", "t", '{ "b": 1.0, "a":[1e3 ,null], "u": "\\u00fc" }'),)


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        ({"auto": {}}, ToolChoice("auto")),
        ({"any": {}}, ToolChoice("required")),
        ({"tool": {"name": "read"}}, ToolChoice("named", "read")),
        ({"auto": None, "any": {}}, ToolChoice("required")),
        (None, None),
    ],
)
def test_choice_of_tools(choice: dict[str, Any] | None, chosen: ToolChoice | None) -> None:
    tool = {"toolSpec": {"name": "read", "inputSchema": {"json": {}}}}
    request = kept(toolConfig={"tools": [tool], "toolChoice": choice})
    assert (request.tools, request.tool_choice) == ((Tool("read", None, b"{}"),), chosen)


def test_tools_that_are_no_functions_are_left_out() -> None:
    spec = {"toolSpec": {"name": "read", "inputSchema": {}}}
    decoded = decode(toolConfig={"tools": [{"systemTool": {"name": "nova_grounding"}}, spec, spec, {"newTool": {}}]})
    assert decoded.request.tools == (Tool("read"),)
    assert [loss.where for loss in decoded.losses] == [
        "toolConfig.tools[0].systemTool",
        "toolConfig.tools[2].toolSpec",
        "toolConfig.tools[3].newTool",
    ]


@pytest.mark.parametrize(
    ("members", "reasoning"),
    [
        ({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}}, Reasoning(True, "low")),
        ({"inferenceConfig": {"reasoningConfig": {"type": "disabled"}}}, Reasoning(False)),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, Reasoning(True, None, 2048)),
        ({"reasoning_config": {"type": "enabled", "budget_tokens": 1024}}, Reasoning(True, None, 1024)),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, Reasoning(True, "max")),
        ({"reasoning_config": "high"}, Reasoning(None, "high")),
        ({"reasoning_effort": "minimal"}, Reasoning(None, "minimal")),
        ({"thinking": {}}, None),
    ],
)
def test_spellings_of_reasoning(members: dict[str, Any], reasoning: Reasoning | None) -> None:
    request = kept(additionalModelRequestFields=members)
    assert request.reasoning == reasoning
    assert request.extra == {}


def test_an_effort_and_a_type_that_nobody_knows_are_lost() -> None:
    fields = {"thinking": {"type": "deep"}, "reasoning_effort": "heroic"}
    decoded = decode(additionalModelRequestFields=fields, outputConfig={"effort": "low"})
    assert decoded.request.reasoning == Reasoning(None, "low")
    assert [loss.why for loss in decoded.losses] == [
        "unknown effort of reasoning 'heroic'; left out",
        "unknown type of reasoning 'deep'; left out",
    ]


def test_fields_of_models() -> None:
    fields = {
        "top_k": 40,
        "seed": 7,
        "presence_penalty": 0.5,
        "frequency_penalty": 1,
        "user": "u",
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "min_p": 0.1,
        "anthropic_beta": ["x"],
    }
    request = kept(additionalModelRequestFields=fields)
    assert (request.top_k, request.seed, request.user) == (40, 7, "u")
    assert (request.presence_penalty, request.frequency_penalty) == (0.5, 1.0)
    assert request.parallel_tool_calls is False
    assert request.extra == {"min_p": b"0.1", "anthropic_beta": b'["x"]'}
    nova = kept(additionalModelRequestFields={"inferenceConfig": {"topK": 20}, "parallel_tool_calls": True})
    assert (nova.top_k, nova.parallel_tool_calls) == (20, True)
    claude = kept(additionalModelRequestFields={"tool_choice": {"type": "none"}})
    assert claude.tool_choice == ToolChoice("none")
    assert claude.parallel_tool_calls is None


def test_structured_output_keeps_the_bytes_of_its_schema() -> None:
    schema = '{"type": "object",  "properties": {"z": {}, "a": {}}}'
    form = {"type": "json_schema", "structure": {"jsonSchema": {"schema": schema, "name": "n", "description": "d"}}}
    assert kept(outputConfig={"textFormat": form}).output == OutputFormat(schema.encode(), "n", "d")
    del form["structure"]
    decoded = decode(outputConfig={"textFormat": form})
    assert decoded.request.output is None
    assert [loss.where for loss in decoded.losses] == ["outputConfig.textFormat"]


def test_members_without_a_place_are_kept_by_their_names() -> None:
    members: dict[str, Any] = {
        "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
        "performanceConfig": {"latency": "optimized"},
        "serviceTier": {"type": "flex"},
        "promptVariables": {"a": {"text": "b"}},
        "projectIdentifier": "p",
        "additionalModelResponseFieldPaths": ["/stop_sequence"],
    }
    assert kept(**members).extra == {name: msgspec.json.encode(value) for name, value in members.items()}


def test_null_is_the_same_as_nothing() -> None:
    nothing = {"system": None, "inferenceConfig": None, "toolConfig": None, "outputConfig": None, "newMember": None}
    fields = {"thinking": None, "min_p": None, "inferenceConfig": None}
    assert kept(**nothing, additionalModelRequestFields=fields, requestMetadata=None) == kept()


def test_a_name_in_two_places_is_taken_from_the_body() -> None:
    decoded = decode(serviceTier={"type": "flex"}, additionalModelRequestFields={"serviceTier": 1})
    assert decoded.request.extra == {"serviceTier": b'{"type":"flex"}'}
    assert [loss.where for loss in decoded.losses] == ["additionalModelRequestFields.serviceTier"]


@pytest.mark.parametrize(
    ("members", "where"),
    [
        ({"inferenceConfig": {"maxTokens": 1, "topK": 3}}, "inferenceConfig.topK"),
        ({"toolConfig": {"tools": [], "cache": 1}}, "toolConfig.cache"),
        ({"messages": [HELLO | {"id": "1"}]}, "messages[0].id"),
        ({"messages": [{"role": "user", "content": [{"hologram": {}}]}]}, "messages[0].content[0].hologram"),
        ({"messages": [{"role": "system", "content": [{"toolAddition": {}}]}]}, "messages[0].content[0].toolAddition"),
        (
            {"messages": [{"role": "assistant", "content": [{"image": {"source": {}}}]}]},
            "messages[0].content[0].image.source",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [{"image": {"format": "png", "source": {"bytes": DATA}}}]},
                ]
            },
            "messages[0].content[0]",
        ),
        (
            {"messages": [{"role": "user", "content": [{"toolUse": {"toolUseId": "c", "name": "t", "input": {}}}]}]},
            "messages[0].content[0]",
        ),
        (
            {"system": [{"guardContent": {"text": {"text": "x", "qualifiers": []}}}]},
            "system[0].guardContent.text.qualifiers",
        ),
        (
            {"messages": [{"role": "user", "content": [NESTED]}]},
            "messages[0].content[0].toolResult.content[0].toolResult",
        ),
    ],
)
def test_what_is_lost_is_told_by_its_place(members: dict[str, Any], where: str) -> None:
    assert [loss.where for loss in decode(**members).losses] == [where]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (b"{}", "messages"),
        (b'{"messages": 1}', r"\$\.messages"),
        (b'{"messages": [{"content": []}]}', r"messages\[0\].*role"),
        (b'{"messages": [{"role": "user", "content": "text"}]}', r"messages\[0\].*content"),
        (b'{"messages": [{"role": "robot", "content": []}]}', r"messages\[0\]\.role: .*'robot'"),
        (b'{"messages": [{"role": "user", "content": [{"text": 1}]}]}', r"messages\[0\]\.content\[0\]\.text"),
        (b'{"messages": [{"role": "user", "content": [{"image": {}}]}]}', r"content\[0\]\.image.*source"),
        (b'{"messages": [], "inferenceConfig": {"maxTokens": "1"}}', r"inferenceConfig.*maxTokens"),
        (b'{"messages": [], "toolConfig": {"tools": [{"toolSpec": {}}]}}', r"toolConfig\.tools\[0\]\.toolSpec.*name"),
        (b'{"messages": [], "additionalModelRequestFields": 1}', "additionalModelRequestFields"),
        (b'{"messages": [], "additionalModelRequestFields": {"seed": "a"}}', r"additionalModelRequestFields.*seed"),
        (b'{"messages": [{"role": "user", "content": [{"text": "\xff"}]}]}', "^the request body: not UTF-8"),
        (
            b'{"messages": [{"role": "assistant", "content": '
            b'[{"toolUse": {"toolUseId": "t", "name": "n", "input": {"a": "\xff"}}}]}]}',
            "^the request body: not UTF-8",
        ),
        (b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}", "body"),
    ],
)
def test_what_cannot_be_understood_is_named(body: bytes, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        decode_request(body, model="m", stream=False)


def test_a_schema_must_be_json() -> None:
    form = {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{"}}}
    with pytest.raises(BadRequest, match=r"textFormat\.structure\.jsonSchema\.schema"):
        decode(outputConfig={"textFormat": form})

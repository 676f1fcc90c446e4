from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polarproxy.errors import BadRequest
from polarproxy.wire.gemini.request import decode_request, encode_request
from polarproxy.wire.neutral.request import Message, OutputFormat, Reasoning, Request, Text
from tests.wire.gemini.bodies import HELLO, decoded, read, wheres

SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"temperature": 1}, {"temperature": 1.0}),
    ({"topP": 0.95, "topK": 64.0}, {"top_p": 0.95, "top_k": 64}),
    ({"top_p": 0.95, "top_k": 64}, {"top_p": 0.95, "top_k": 64}),
    ({"maxOutputTokens": "8192"}, {"max_tokens": 8192}),
    ({"candidateCount": 2}, {"n": 2}),
    ({"stopSequences": ["END", "\n\n"]}, {"stop": ("END", "\n\n")}),
    ({"presencePenalty": 0.5, "frequencyPenalty": -0.5}, {"presence_penalty": 0.5, "frequency_penalty": -0.5}),
    ({"seed": 9007199254740993}, {"seed": 9007199254740993}),
    ({"seed": None}, {"seed": None}),
    ({"responseModalities": ["TEXT"]}, {}),
    ({"responseMimeType": "text/plain"}, {"output": None}),
    ({"responseMimeType": "application/json"}, {"output": OutputFormat(None)}),
    (
        {"responseMimeType": "application/json", "responseSchema": {"type": "STRING"}},
        {"output": OutputFormat(b'{"type":"string"}')},
    ),
    (
        {"response_mime_type": "application/json", "response_json_schema": {"type": "OBJECT"}},
        {"output": OutputFormat(b'{"type":"object"}')},
    ),
    ({"_responseJsonSchema": {"type": "object"}}, {"output": OutputFormat(b'{"type":"object"}')}),
    (
        {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["yes", "no"]}},
        {"output": None, "extra": {"structured_outputs": b'{"choice":["yes","no"]}'}},
    ),
    ({"thinkingConfig": {}}, {"reasoning": None}),
    ({"thinkingConfig": {"includeThoughts": True}}, {"reasoning": Reasoning(shown=True)}),
    ({"thinkingConfig": {"thinkingBudget": 0}}, {"reasoning": Reasoning(enabled=False)}),
    ({"thinkingConfig": {"thinkingBudget": -1}}, {"reasoning": Reasoning(enabled=True)}),
    ({"thinking_config": {"thinking_budget": 512}}, {"reasoning": Reasoning(enabled=True, budget=512)}),
    ({"thinkingConfig": {"thinkingLevel": "high"}}, {"reasoning": Reasoning(enabled=True, effort="high")}),
    ({"thinkingConfig": {"thinkingLevel": "MINIMAL"}}, {"reasoning": Reasoning(enabled=True, effort="minimal")}),
    ({"thinkingConfig": {"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}}, {"reasoning": None}),
    ({"responseLogprobs": True}, {"extra": {"generationConfig.responseLogprobs": b"true"}}),
    ({"thinkingConfig": {"newFlag": 1}}, {"extra": {"generationConfig.thinkingConfig.newFlag": b"1"}}),
]


@pytest.mark.parametrize(("config", "meant"), SETTINGS)
def test_a_setting_is_read(config: dict[str, Any], meant: dict[str, Any]) -> None:
    request = read(generationConfig=config)
    assert {name: getattr(request, name) for name in meant} == meant


@pytest.mark.parametrize(("config", "meant"), SETTINGS)
def test_what_is_written_of_a_setting_is_read_the_same(config: dict[str, Any], meant: dict[str, Any]) -> None:
    request = read(generationConfig=config)
    again = encode_request(request)
    assert again.losses == ()
    assert decode_request(again.body, model="gemini-3.8-flash", stream=True).request == request


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ({"responseModalities": ["TEXT", "IMAGE"]}, "generationConfig.responseModalities"),
        ({"responseMimeType": "text/csv"}, "generationConfig.responseMimeType"),
        ({"thinkingConfig": {"thinkingLevel": "ENORMOUS"}}, "generationConfig.thinkingConfig.thinkingLevel"),
    ],
)
def test_a_setting_that_the_engine_cannot_follow_is_a_loss(config: dict[str, Any], where: str) -> None:
    assert wheres(decoded(generationConfig=config)) == [where]


def test_the_path_names_the_model() -> None:
    assert read(model="models/gemini-3.8-flash").model == "gemini-3.8-flash"
    assert wheres(decoded(model="models/another")) == ["model"]


@pytest.mark.parametrize(
    "system",
    [
        "be brief",
        {"parts": [{"text": "be brief"}]},
        {"role": "user", "parts": [{"text": "be brief"}]},
        {"role": "system", "parts": {"text": "be brief"}},
    ],
)
@pytest.mark.parametrize("name", ["systemInstruction", "system_instruction"])
def test_a_system_instruction_has_many_forms(name: str, system: object) -> None:
    request = read(**{name: system})
    assert request.messages == (Message("system", (Text("be brief"),)), Message("user", (Text("hello"),)))


def test_no_system_instruction_is_no_message() -> None:
    assert read(systemInstruction=None).messages == read(systemInstruction={"parts": []}).messages
    assert len(read().messages) == 1


def test_labels_are_metadata_and_unknown_members_survive() -> None:
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    request = read(labels={"team": "a"}, safetySettings=safety, chat_template_kwargs={"x": 1})
    assert request.metadata == {"team": "a"}
    assert request.extra == {"safetySettings": msgspec.json.encode(safety), "chat_template_kwargs": b'{"x":1}'}
    body = msgspec.json.decode(encode_request(request).body)
    assert body["labels"] == {"team": "a"}
    assert body["safetySettings"] == safety
    assert body["chat_template_kwargs"] == {"x": 1}


def test_unknown_members_of_settings_go_back_to_their_place() -> None:
    config = {"speechConfig": {"languageCode": "de"}, "thinkingConfig": {"newFlag": 1}}
    tools = {"retrievalConfig": {"languageCode": "de"}, "functionCallingConfig": {"mode": "AUTO", "newFlag": 2}}
    body = msgspec.json.decode(encode_request(read(generationConfig=config, toolConfig=tools)).body)
    assert body["generationConfig"] == config
    assert body["toolConfig"] == tools


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"contents": []}, "contents is missing"),
        ({"contents": None}, "contents is missing"),
        ({"contents": "hello"}, "contents must be a list of objects"),
        ({"contents": ["hello"]}, r"contents\[0\] must be an object"),
        ({"contents": [{"parts": ["hello"]}]}, r"contents\[0\]\.parts\[0\] must be an object"),
        ({"contents": [{"parts": [{"text": 1}]}]}, r"contents\[0\]\.parts\[0\]\.text must be a string"),
        ({"contents": [{"role": 1}]}, r"contents\[0\]\.role must be a string"),
        ({"generationConfig": []}, "generationConfig must be an object"),
        ({"generationConfig": {"temperature": "hot"}}, r"generationConfig\.temperature must be a number"),
        ({"generationConfig": {"temperature": "NaN"}}, r"generationConfig\.temperature must be a number"),
        ({"generationConfig": {"topK": "Infinity"}}, r"generationConfig\.topK must be an integer"),
        ({"generationConfig": {"topK": 1.5}}, r"generationConfig\.topK must be an integer"),
        ({"generationConfig": {"stopSequences": [1]}}, r"stopSequences\[0\] must be a string"),
        ({"generationConfig": {"thinkingConfig": {"includeThoughts": 1}}}, "includeThoughts must be true or false"),
        ({"labels": {"a": 1}}, "labels must be an object of strings"),
        ({"cachedContent": "cachedContents/abc"}, "cachedContent"),
        ({"cached_content": "cachedContents/abc"}, "cachedContent"),
    ],
)
def test_a_member_of_the_wrong_type_is_refused_by_name(members: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        decoded(**members)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'{"contents": "\xff"}', b'{"a":' + b"[" * 10**5])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="not a JSON object"):
        decode_request(body, model="m", stream=False)


def test_the_caller_says_whether_the_reply_is_streamed() -> None:
    body = msgspec.json.encode({"contents": [HELLO]})
    assert not decode_request(body, model="m", stream=False).request.stream
    assert decode_request(body, model="m", stream=True).request.stream


def test_what_has_no_place_is_reported_when_written() -> None:
    request = Request(
        "m",
        (Message("user", (Text("x"),), name="ann"),),
        parallel_tool_calls=False,
        user="u",
        output=OutputFormat(b"{}", name="answer"),
        reasoning=Reasoning(enabled=True, effort="max"),
    )
    assert sorted(loss.where for loss in encode_request(request).losses) == [
        "messages[0].name",
        "output",
        "parallel_tool_calls",
        "reasoning.effort",
        "user",
    ]

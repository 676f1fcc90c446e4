"""What the members of a request become, on bodies as harnesses send them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from polarproxy.errors import BadRequest
from polarproxy.model import Loss
from polarproxy.wire.messages.errors import NO_THREADS
from polarproxy.wire.messages.request import decode_request, encode_request
from polarproxy.wire.neutral.request import (
    Message,
    OutputFormat,
    Reasoning,
    Request,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)
from tests.wire.messages.bodies import BILLING, SCHEMA, claude_code, decode, small


def test_a_request_of_claude_code() -> None:
    decoded = decode(claude_code())
    assert decoded.request == Request(
        model="mock-model",
        messages=(
            Message("system", (Text("You help with code."), Text("\nUse tools."))),
            Message(
                "user",
                (
                    Text("<reminder>\nThis machine is a sandbox.\n</reminder>\n"),
                    Text("create out.txt containing hello"),
                ),
            ),
            Message("system", (Text("# Environment\nThe shell is bash."),)),
            Message(
                "assistant",
                (
                    Thinking("A shell can do that.", "c2lnbmF0dXJl"),
                    Text("I will run a command."),
                    ToolUse("toolu_01", "Bash", '{"command":"echo hello > out.txt"}'),
                ),
            ),
            Message("tool", (ToolResult("toolu_01", (Text("(no output)"),)),)),
        ),
        stream=True,
        tools=(Tool("Bash", "Runs a command.", msgspec.json.encode(SCHEMA)),),
        max_tokens=32000,
        reasoning=Reasoning(enabled=True, effort="high"),
        user='{"device_id":"ab","account_uuid":"","session_id":"6f0e"}',
    )
    assert [loss.where for loss in decoded.losses] == ["system[0]", "tools[1]"]


def test_cache_control_and_the_form_of_content_say_nothing() -> None:
    marked = claude_code()
    marked["messages"][1]["content"] = [
        {"type": "text", "text": marked["messages"][1]["content"], "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    ]
    marked["messages"][3]["content"][0]["content"] = [{"type": "text", "text": "(no output)"}]
    marked["tools"][0]["cache_control"] = {"type": "ephemeral"}
    marked["cache_control"] = {"type": "ephemeral"}
    assert decode(marked) == decode(claude_code())


@pytest.mark.parametrize(
    ("system", "messages", "lost"),
    [
        (BILLING, (), ["system[0]"]),
        (f"{BILLING}\nYou help.", (Message("system", (Text("You help."),)),), ["system[0]"]),
        (
            [{"type": "text", "text": f"{BILLING}\n\nYou help."}],
            (Message("system", (Text("\nYou help."),)),),
            ["system[0]"],
        ),
        (
            [{"type": "text", "text": "a"}, {"type": "text", "text": BILLING}],
            (Message("system", (Text("a"),)),),
            ["system[1]"],
        ),
        (f"About {BILLING}", (Message("system", (Text(f"About {BILLING}"),)),), []),
        ("X-Anthropic-Billing-Header: x", (Message("system", (Text("X-Anthropic-Billing-Header: x"),)),), []),
        ("", (), []),
        ([], (), []),
        (None, (), []),
    ],
)
def test_the_billing_line_is_taken_off_the_system_prompt(
    system: object, messages: tuple[Message, ...], lost: list[str]
) -> None:
    decoded = decode(small(system=system))
    assert decoded.request.messages == (*messages, Message("user", (Text("hi"),)))
    assert [loss.where for loss in decoded.losses] == lost


def test_the_billing_line_is_not_looked_for_outside_system_prompts() -> None:
    decoded = decode(small(messages=[{"role": "user", "content": BILLING}]))
    assert decoded.request.messages == (Message("user", (Text(BILLING),)),)
    assert decoded.losses == ()


@pytest.mark.parametrize(
    ("thinking", "effort", "reasoning", "lost"),
    [
        (None, None, None, []),
        ({"type": "enabled", "budget_tokens": 2048}, None, Reasoning(True, None, 2048), []),
        ({"type": "adaptive", "display": "updates"}, None, Reasoning(True), []),
        ({"type": "adaptive", "display": "omitted"}, None, Reasoning(True, shown=False), []),
        ({"type": "enabled", "budget_tokens": 1, "display": "summarized"}, None, Reasoning(True, None, 1, True), []),
        ({"type": "disabled", "display": "omitted"}, None, Reasoning(False), []),
        ({"type": "disabled"}, "low", Reasoning(False, "low"), []),
        (None, "xhigh", Reasoning(effort="xhigh"), []),
        (None, "max", Reasoning(effort="max"), []),
        (None, "frantic", None, ["output_config.effort"]),
        ({"type": "between_tools"}, None, None, ["thinking"]),
        ({"type": "adaptive", "new": 1}, None, Reasoning(True), ["thinking.new"]),
    ],
)
def test_thinking_and_effort(thinking: object, effort: object, reasoning: Reasoning | None, lost: list[str]) -> None:
    decoded = decode(small(thinking=thinking, output_config={"effort": effort}))
    assert decoded.request.reasoning == reasoning
    assert [loss.where for loss in decoded.losses] == lost


@pytest.mark.parametrize(
    ("members", "output", "lost"),
    [
        ({"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, SCHEMA, []),
        ({"output_format": {"type": "json_schema", "schema": SCHEMA}}, SCHEMA, []),
        ({"output_config": {"format": {"type": "grammar"}}}, None, ["output_config.format"]),
        ({"output_config": {"task_budget": {"type": "tokens", "total": 9}}}, None, ["output_config.task_budget"]),
    ],
)
def test_structured_output(members: dict[str, object], output: object, lost: list[str]) -> None:
    decoded = decode(small(**members))
    assert decoded.request.output == (None if output is None else OutputFormat(msgspec.json.encode(output)))
    assert [loss.where for loss in decoded.losses] == lost


def test_schemas_keep_their_spelling() -> None:
    schema = b'{ "type":"object",  "properties": {"z":{"minimum":1.0}, "a":{}} }'
    body = (
        b'{"max_tokens":1,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"t","input_schema":%b}]}' % schema
    )
    assert decode_request(body).request.tools[0].parameters == schema


def test_numbers_and_stop_sequences() -> None:
    request = decode(small(temperature=1, top_p=0.5, top_k=40, stop_sequences=["a", "b"])).request
    assert (request.temperature, request.top_p, request.top_k, request.stop) == (1.0, 0.5, 40, ("a", "b"))
    assert request.stream is False


@pytest.mark.parametrize(
    ("effort", "lost"), [("high", []), ("medium", ["messages[1].output_config.effort"]), (None, [])]
)
def test_an_effort_of_one_message_is_reported_unless_it_is_that_of_the_request(
    effort: str | None, lost: list[str]
) -> None:
    body = claude_code(tools=[], system="s")
    body["messages"][1]["output_config"] = {"effort": effort}
    decoded = decode(body)
    assert decoded.request == decode(claude_code(tools=[], system="s")).request
    assert [loss.where for loss in decoded.losses] == lost


def test_system_messages_without_text_or_for_a_turn_that_passed_are_not_shown() -> None:
    hidden = {"role": "system", "content": "only now", "clear_at": "next_user_message"}
    decoded = decode(
        small(
            messages=[
                {"role": "user", "content": "one"},
                hidden,
                {"role": "assistant", "content": "two"},
                {"role": "user", "content": "three"},
                hidden,
                {"role": "system", "output_config": {}},
            ]
        )
    )
    assert decoded.request.messages == (
        Message("user", (Text("one"),)),
        Message("assistant", (Text("two"),)),
        Message("user", (Text("three"),)),
        Message("system", (Text("only now"),)),
    )
    assert decoded.losses == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mcp_servers", [{"type": "url", "name": "a", "url": "https://mcp.invalid"}]),
        ("container", "c1"),
        ("fallbacks", []),
        ("compaction", {"type": "summarize"}),
        ("context_management", {"edits": [{"type": "clear_tool_uses_20250919"}]}),
        (
            "context_management",
            {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]},
        ),
        ("context_management", "x"),
    ],
)
def test_what_only_the_provider_can_do_is_reported(name: str, value: object) -> None:
    decoded = decode(small(**{name: value}))
    assert decoded.request == decode(small()).request
    assert [loss.where for loss in decoded.losses] == [name]


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
def test_a_history_that_is_with_the_provider_is_missed(thread: dict[str, str]) -> None:
    with pytest.raises(BadRequest) as caught:
        decode(small(thread=thread))
    assert str(caught.value) == NO_THREADS
    assert decode(small(thread=None)) == decode(small())


def test_what_is_about_accounts_and_hardware_is_ignored() -> None:
    silent = {"service_tier": "auto", "speed": "fast", "inference_geo": "eu", "betas": ["x"], "diagnostics": {}}
    assert decode(small(**silent)) == decode(small())


def test_other_metadata_is_reported() -> None:
    decoded = decode(small(metadata={"user_id": None, "team": "a"}))
    assert decoded.request.user is None
    assert [loss.where for loss in decoded.losses] == ["metadata.team"]


def test_unknown_members_survive() -> None:
    body = b'{"max_tokens":1,"messages":[{"role":"user","content":"x"}],"min_p":0.10,"x_new":{"b": 1.0, "a":[]}}'
    request = decode_request(body).request
    assert request.extra == {"min_p": b"0.10", "x_new": b'{"b": 1.0, "a":[]}'}
    written = encode_request(request).body
    assert decode_request(written).request.extra == request.extra


def test_a_body_of_count_tokens_has_no_limit() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "foo"}]}
    assert decode(body, counting=True).request == Request("m", (Message("user", (Text("foo"),)),))
    with pytest.raises(BadRequest, match=r"^max_tokens: Field required$"):
        decode(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "the request body: Expected `object`, got `array`"),
        (b"{", "the request body: Input data was truncated"),
        (b'{"a":"\xff"}', "the request body: not UTF-8"),
        (b'{"max_tokens":"many"}', "max_tokens: Expected `int`, got `str`"),
        (b'{"max_tokens":1}', "messages: Field required"),
        (b'{"max_tokens":1,"messages":{}}', "messages: Expected `array`, got `object`"),
        (b'{"max_tokens":1,"messages":[]}', "messages: at least one message is required"),
    ],
)
def test_a_body_that_is_no_request_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        decode_request(body)
    assert str(caught.value).startswith(message)


def _says(*content: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": list(content)}]}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"messages": [{"content": "x"}]}, "messages[0].role: Field required"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role: Invalid enum value 'tool'"),
        ({"messages": [{"role": "user"}]}, "messages[0].content: Field required"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content: Expected `str | array`, got `int`"),
        ({"messages": [3]}, "messages[0]: Expected `object`, got `int`"),
        (_says({}), "messages[0].content[0].type: Field required"),
        (_says({"type": "text", "text": 1}), "messages[0].content[0].text: Expected `str`, got `int`"),
        (_says({"type": "tool_result"}), "messages[0].content[0].tool_use_id: Field required"),
        (
            _says({"type": "tool_use", "id": "i", "name": "n", "input": "x"}),
            "messages[0].content[0].input: Expected `object`, got `str`",
        ),
        (_says({"type": "image"}), "messages[0].content[0].source: Field required"),
        ({"tools": [{"name": "t"}]}, "tools[0].input_schema: Field required"),
        ({"tool_choice": "auto"}, "tool_choice: Expected `object`, got `str`"),
        ({"stop_sequences": [1]}, "stop_sequences: Expected `str`, got `int` - at `$[0]`"),
        ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, "thinking.budget_tokens: Expected `int`, got `str`"),
    ],
)
def test_a_member_that_cannot_be_understood_is_named(members: dict[str, object], message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        decode(small(**members))
    assert str(caught.value) == message or str(caught.value).startswith(f"{message} ")


def test_deeply_nested_bodies_are_refused() -> None:
    with pytest.raises(BadRequest):
        decode_request(b'{"a":' * 100_000)


def test_what_this_dialect_cannot_say_is_reported() -> None:
    request = Request(
        "m",
        (Message("developer", (Text("d"),), name="n"),),
        max_tokens=1,
        seed=1,
        n=2,
        presence_penalty=0.1,
        frequency_penalty=0.1,
        metadata={"a": "b"},
        output=OutputFormat(b"{}", "named"),
        reasoning=Reasoning(effort="minimal"),
    )
    encoded = encode_request(request)
    assert [loss.where for loss in encoded.losses] == [
        "thinking",
        "messages[0]",
        "messages[0]",
        "output_config.format",
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "n",
        "metadata",
    ]
    assert decode_request(encoded.body).request.messages == (Message("system", (Text("d"),)),)


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (Reasoning(effort="none"), Reasoning(False)),
        (Reasoning(effort="minimal"), Reasoning(effort="low")),
        (Reasoning(budget=100), Reasoning(True, None, 100)),
        (Reasoning(False, "low", 100, True), Reasoning(False, "low")),
        (Reasoning(shown=True), None),
        (Reasoning(True, "none", None, False), Reasoning(True, shown=False)),
    ],
)
def test_reasoning_that_cannot_be_said_is_reported(said: Reasoning, heard: Reasoning | None) -> None:
    encoded = encode_request(Request("m", (Message("user", (Text("x"),)),), max_tokens=1, reasoning=said))
    assert decode_request(encoded.body).request.reasoning == heard
    assert [loss.where for loss in encoded.losses] == ["thinking"]


def test_losses_are_for_people_to_read() -> None:
    assert (
        Loss("tools[1]", "left out: the tool DeferredToolPlaceholder is deferred, and nothing has loaded it yet")
        in decode(claude_code()).losses
    )


def test_a_request_is_written_as_the_api_documents_it() -> None:
    request = decode(claude_code(tool_choice={"type": "any", "disable_parallel_tool_use": True})).request
    request = replace(request, messages=(*request.messages, Message("user", (Text("go on"),))))
    encoded = encode_request(request)
    expected = claude_code(tool_choice={"type": "any", "disable_parallel_tool_use": True})
    del expected["context_management"], expected["tools"][1], expected["system"][0]
    del expected["thinking"]["display"], expected["system"][0]["cache_control"], expected["system"][1]["cache_control"]
    # Results of tools and what the user says after them are one turn of the user.
    expected["messages"][3]["content"] = [
        {"type": "tool_result", "tool_use_id": "toolu_01", "content": "(no output)"},
        {"type": "text", "text": "go on"},
    ]
    assert msgspec.json.decode(encoded.body) == expected
    assert encoded.losses == ()

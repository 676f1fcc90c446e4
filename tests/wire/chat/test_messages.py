"""Messages of chat requests, read."""

from typing import Any

import pytest

from polarproxy.wire.neutral.request import (
    Media,
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from tests.wire.chat.asking import PNG, lost, message, read


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

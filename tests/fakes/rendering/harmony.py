"""gpt-oss: its prompts are made by openai-harmony, of which vLLM feeds the messages of a chat request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncoding,
    HarmonyEncodingName,
    Message,
    RenderConversationConfig,
    Role,
    SystemContent,
    ToolDescription,
    load_harmony_encoding,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.fakes.rendering.renderer import Json


def _encoding(folder: Path) -> HarmonyEncoding:
    # The only way to tell it where the vocabulary is; read once, when it is loaded.
    before = os.environ.get("TIKTOKEN_ENCODINGS_BASE")
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder)
    try:
        return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    finally:
        if before is None:
            del os.environ["TIKTOKEN_ENCODINGS_BASE"]
        else:
            os.environ["TIKTOKEN_ENCODINGS_BASE"] = before


def _flat(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part if isinstance(part, str) else str(part["text"]) for part in content)


def _assistant(message: Json) -> Iterator[Message]:
    text, reasoning = _flat(message.get("content")), message.get("reasoning")
    calls = message.get("tool_calls") or ()
    said = [Message.from_role_and_content(Role.ASSISTANT, text)] if text or not calls else []
    thought = [Message.from_role_and_content(Role.ASSISTANT, reasoning).with_channel("analysis")] if reasoning else []
    if not calls:
        yield from (*thought, *(each.with_channel("final") for each in said))
        return
    yield from (*(each.with_channel("commentary") for each in said), *thought)
    for call in calls:
        function = call["function"]
        yield (
            Message.from_role_and_content(Role.ASSISTANT, function.get("arguments") or "")
            .with_channel("commentary")
            .with_recipient(f"functions.{function['name']}")
            .with_content_type("json")
        )


def _message(message: Json, names: dict[str, str]) -> Iterator[Message]:
    text = _flat(message.get("content"))
    match message["role"]:
        case "assistant":
            yield from _assistant(message)
        case "tool":
            author = Author.new(Role.TOOL, f"functions.{names.get(message.get('tool_call_id', ''), '')}")
            yield Message.from_author_and_content(author, text).with_channel("commentary").with_recipient("assistant")
        case "system" | "developer":
            content = DeveloperContent.new().with_instructions(text)
            yield Message.from_role_and_content(Role.DEVELOPER, content)
        case _:
            yield Message.from_role_and_content(Role.USER, text)


def _preamble(instructions: str | None, tools: Sequence[Json]) -> Iterator[Message]:
    system = SystemContent.new().with_conversation_start_date("2026-01-01")
    yield Message.from_role_and_content(Role.SYSTEM, system)
    if instructions or tools:
        content = DeveloperContent.new()
        if instructions is not None:
            content = content.with_instructions(instructions)
        if tools:
            functions = [tool["function"] for tool in tools]
            content = content.with_function_tools(
                [
                    ToolDescription.new(function["name"], function.get("description") or "", function.get("parameters"))
                    for function in functions
                ]
            )
        yield Message.from_role_and_content(Role.DEVELOPER, content)


def _without_old_analysis(messages: list[Message]) -> list[Message]:
    final = [place for place, each in enumerate(messages) if each.channel == "final"]
    last = final[-1] if final else -1
    return [each for place, each in enumerate(messages) if place >= last or each.channel != "analysis"]


class Harmony:
    """gpt-oss."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self._encoding = _encoding(folder)

    def ids(self, body: Json) -> list[int]:
        messages = list(body["messages"])
        leads = messages[0]["role"] in ("system", "developer")
        instructions = _flat(messages.pop(0).get("content")) if leads else None
        names = {call["id"]: call["function"]["name"] for each in messages for call in each.get("tool_calls") or ()}
        said = [part for each in messages for part in _message(each, names)]
        whole = _without_old_analysis([*_preamble(instructions, body.get("tools") or ()), *said])
        return list(
            self._encoding.render_conversation_for_completion(
                Conversation.from_messages(whole), Role.ASSISTANT, RenderConversationConfig(auto_drop_analysis=False)
            )
        )

    def encode(self, text: str) -> list[int]:
        return list(self._encoding.encode(text, allowed_special="all"))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._encoding.decode(list(ids)))

    def plain(self, text: str) -> list[int]:
        """The ids of a text in which nothing is a marker, as contents of messages are."""
        return list(self._encoding.encode(text, disallowed_special=()))

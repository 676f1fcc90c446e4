"""How four model families write turns, by their published formats: written here by hand, independently of any template.

A text is a list of pieces; a `Mark` is one token of the model's own (a marker of turns), any other piece is ordinary text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Json = dict[str, Any]


@dataclass(frozen=True)
class Mark:
    """A marker of turns."""

    text: str


Piece: TypeAlias = Mark | str


@dataclass(frozen=True)
class Said:
    """What the model means to say."""

    text: str
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Names and arguments, as sampled."""


class Family(Protocol):
    """A model family's format."""

    name: str
    calls: bool
    """Whether its template shows tool calls."""
    stray: Mark
    """A marker that a model may sample in the middle of a text; engines leave it out of the text."""

    def sampled(self, said: Said) -> list[Piece]:
        """What the model samples after the generation prompt, its end token included."""
        ...

    def closed(self, *, called: bool) -> Mark:
        """The token by which the template ends a turn in the history."""
        ...

    def follows(self, messages: Sequence[Json], names: dict[str, str]) -> list[Piece]:
        """What the prompt holds after the end token of a turn that these messages follow. `names`: of tools, by call id."""
        ...

    def parsed(self, text: str) -> tuple[str, str]:
        """Text and reasoning of a turn that may have been cut anywhere, from its text with markers."""
        ...


def words(content: Any) -> str:
    """The text of a message's content."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content)
    return content or ""


class Qwen3:
    stray = Mark("<|im_start|>")
    name, calls = "qwen3", True
    end = Mark("<|im_end|>")

    def sampled(self, said: Said) -> list[Piece]:
        thought: list[Piece] = (
            [Mark("<think>"), f"\n{said.reasoning}\n", Mark("</think>"), "\n\n"] if said.reasoning else []
        )
        called: list[Piece] = []
        for place, (name, arguments) in enumerate(said.calls):
            line = "\n" if said.text or place else ""
            called += [
                line,
                Mark("<tool_call>"),
                f'\n{{"name": "{name}", "arguments": {arguments}}}\n',
                Mark("</tool_call>"),
            ]
        return [*thought, said.text, *called, self.end]

    def closed(self, *, called: bool) -> Mark:
        return self.end

    def follows(self, messages: Sequence[Json], names: dict[str, str]) -> list[Piece]:
        text = "\n"
        for place, message in enumerate(messages):
            before = messages[place - 1]["role"] if place else None
            after = messages[place + 1]["role"] if place + 1 < len(messages) else None
            match message["role"]:
                case "tool":
                    text += "" if before == "tool" else "<|im_start|>user"
                    text += f"\n<tool_response>\n{words(message['content'])}\n</tool_response>"
                    text += "" if after == "tool" else "<|im_end|>\n"
                case "assistant":
                    asked_later = any(each["role"] == "user" for each in messages[place:])
                    text += "<|im_start|>assistant\n" + self._told(message, show=not asked_later) + "<|im_end|>\n"
                case role:
                    text += f"<|im_start|>{role}\n{words(message['content'])}<|im_end|>\n"
        return [text + "<|im_start|>assistant\n"]

    def _told(self, message: Json, *, show: bool) -> str:
        text, reasoning = words(message.get("content")), message.get("reasoning")
        called = ""
        for place, call in enumerate(message.get("tool_calls", ())):
            arguments = json.dumps(json.loads(call["function"]["arguments"]), ensure_ascii=False)
            called += "\n" if text or place else ""
            called += f'<tool_call>\n{{"name": "{call["function"]["name"]}", "arguments": {arguments}}}\n</tool_call>'
        if show and reasoning:
            told = reasoning.strip("\n")
            text = f"<think>\n{told}\n</think>\n\n" + text.lstrip("\n")
        return text + called

    def parsed(self, text: str) -> tuple[str, str]:
        if not text.startswith("<think>"):
            return text, ""
        reasoning, _, rest = text.removeprefix("<think>").partition("</think>")
        return rest, reasoning


class Llama:
    stray = Mark("<|start_header_id|>")
    name, calls = "llama3_1", False
    end = Mark("<|eot_id|>")

    def sampled(self, said: Said) -> list[Piece]:
        return [said.text, self.end]

    def closed(self, *, called: bool) -> Mark:
        return self.end

    def follows(self, messages: Sequence[Json], names: dict[str, str]) -> list[Piece]:
        def block(role: str, text: str) -> str:
            return f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}"

        said = [block(each["role"], words(each["content"]).strip()) + "<|eot_id|>" for each in messages]
        return ["".join(said) + block("assistant", "")]

    def parsed(self, text: str) -> tuple[str, str]:
        return text, ""


class DeepSeek:
    stray = Mark("<｜User｜>")
    name, calls = "deepseek_v3", False
    end = Mark("<｜end▁of▁sentence｜>")

    def sampled(self, said: Said) -> list[Piece]:
        return [said.text, self.end]

    def closed(self, *, called: bool) -> Mark:
        return self.end

    def follows(self, messages: Sequence[Json], names: dict[str, str]) -> list[Piece]:
        text = ""
        for message in messages:
            said = words(message["content"])
            text += f"<｜User｜>{said}" if message["role"] == "user" else f"<｜Assistant｜>{said}{self.end.text}"
        return [text + "<｜Assistant｜>"]

    def parsed(self, text: str) -> tuple[str, str]:
        return text, ""


class GptOss:
    stray = Mark("<|constrain|>")
    name, calls = "gptoss", True

    def sampled(self, said: Said) -> list[Piece]:
        pieces = list(self._message("analysis", said.reasoning)) if said.reasoning else []
        begun: list[Piece] = [*pieces, Mark("<|end|>"), Mark("<|start|>"), "assistant"] if pieces else []
        if not said.calls:
            return [*begun, *self._message("final", said.text), Mark("<|return|>")]
        if said.text:
            begun += [*self._message("commentary", said.text), Mark("<|end|>"), Mark("<|start|>"), "assistant"]
        name, arguments = said.calls[0]
        kind: list[Piece] = [f"commentary to=functions.{name} ", Mark("<|constrain|>"), "json"]
        return [*begun, Mark("<|channel|>"), *kind, Mark("<|message|>"), arguments, Mark("<|call|>")]

    def _message(self, channel: str, text: str) -> Iterator[Piece]:
        yield from (Mark("<|channel|>"), channel, Mark("<|message|>"), text)

    def closed(self, *, called: bool) -> Mark:
        return Mark("<|call|>" if called else "<|end|>")

    def follows(self, messages: Sequence[Json], names: dict[str, str]) -> list[Piece]:
        pieces: list[Piece] = []
        for message in messages:
            pieces += self._block(message, names)
        return [*pieces, Mark("<|start|>"), "assistant"]

    def _block(self, message: Json, names: dict[str, str]) -> list[Piece]:
        said = "".join(part["text"] for part in content) if isinstance(content := message["content"], list) else content
        end: list[Piece] = [Mark("<|message|>"), said or "", Mark("<|end|>")]
        match message["role"]:
            case "tool":
                author = f"functions.{names[message['tool_call_id']]} to=assistant"
                return [Mark("<|start|>"), author, Mark("<|channel|>"), "commentary", *end]
            case "assistant" if message.get("tool_calls"):
                spoken = [Mark("<|start|>"), "assistant", Mark("<|channel|>"), "commentary", *end] if said else []
                return spoken + [piece for call in message["tool_calls"] for piece in self._call(call["function"])]
            case "assistant":
                return [Mark("<|start|>"), "assistant", Mark("<|channel|>"), "final", *end]
            case "system":
                return [
                    Mark("<|start|>"),
                    "developer",
                    Mark("<|message|>"),
                    f"# Instructions\n\n{said}",
                    Mark("<|end|>"),
                ]
        return [Mark("<|start|>"), "user", *end]

    def _call(self, function: Json) -> list[Piece]:
        to = [Mark("<|start|>"), f"assistant to=functions.{function['name']}", Mark("<|channel|>"), "commentary json"]
        return [*to, Mark("<|message|>"), function["arguments"], Mark("<|call|>")]

    def parsed(self, text: str) -> tuple[str, str]:
        told = {"analysis": "", "final": ""}
        for block in text.split("<|channel|>"):
            channel, _, said = block.partition("<|message|>")
            if channel in told:
                told[channel] += said.partition("<|end|>")[0]
        return told["final"], told["analysis"]


FAMILIES: tuple[Family, ...] = (Qwen3(), Llama(), DeepSeek(), GptOss())

"""What a model wrote, as plain text, read as reasoning, text and tool calls.

Engines read this with a parser for each model; here is the markup that most open models share (`<think>` and Hermes'
`<tool_call>` around JSON). What is written in another markup is marked as foreign, and never guessed at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from polarproxy.errors import UNREADABLE
from polarproxy.wire.neutral.request import ToolUse

_MARK = re.compile(r"<\|[^|<>]{1,40}\|>|</?s>|<(?:eos|bos|pad|end_of_turn|start_of_turn)>")
_FOREIGN = re.compile(
    r"<\|[^|<>]{1,40}\|>|<｜[^<>]{1,60}｜>|\[TOOL_CALLS\]|<function=|</?(?:think|tool_call|tool_calls|function_calls)>"
)
_ENDS = re.compile(rf"(?:{_MARK.pattern})+\s*\Z")
_THINKING = re.compile(r"\A(?:\s*<think>)?(.*?)</think>", re.DOTALL)
_UNENDED = re.compile(r"\A\s*<think>(.*)\Z", re.DOTALL)
_TOOL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


class _Spelled(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


@dataclass(frozen=True, slots=True)
class Written:
    """A reply as it was written."""

    text: str
    """Without reasoning, tool calls and marks of the template; markup that cannot be read stays in it."""
    thinking: str = ""
    tools: tuple[ToolUse, ...] = ()
    """Without ids, which nobody samples; arguments byte for byte."""
    foreign: bool = False
    """Whether it holds markup that is not understood, so that `text` is not what a client was told."""


def without_end(text: str) -> str:
    """Without the marks that end a turn, where they were sampled."""
    return _ENDS.sub("", text)


def read_written(text: str, *, tools: bool = True) -> Written:
    """Reads a whole reply. `tools` False: none were offered, and what looks like a call is text."""
    found: list[ToolUse] = []
    text, thinking = without_end(text), ""
    ended = _THINKING.match(text) or _UNENDED.match(text)
    if ended is not None:
        thinking, text = ended[1].strip(), text[ended.end() :]

    def take(markup: re.Match[str]) -> str:
        try:
            tool = msgspec.json.decode(markup[1].encode("utf-8", "replace"), type=_Spelled)
        except UNREADABLE:
            return markup[0]
        found.append(ToolUse("", tool.name, bytes(tool.arguments).decode()))
        return ""

    rest = _TOOL.sub(take, text) if tools else text
    foreign = (_FOREIGN if tools else _MARK).search(rest) is not None
    rest = _MARK.sub("", rest)
    return Written(rest.strip() if found or ended else rest, thinking, tuple(found), foreign)

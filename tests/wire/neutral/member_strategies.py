"""What a neutral request says besides its messages: tools, the choice of one, output, reasoning, members that are one value."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from hypothesis import strategies as st

from polarproxy.wire.neutral.request import Effort, OutputFormat, Reasoning, Tool, ToolChoice
from tests.wire.neutral.reply_strategies import texts

if TYPE_CHECKING:
    from collections.abc import Sequence

Member: TypeAlias = Literal[
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "n",
    "stop",
    "user",
    "metadata",
    "stream_usage",
    "parallel_tool_calls",
]
"""Members of a request that are one value each, and that not every dialect has."""
EVERY_MEMBER: tuple[Member, ...] = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "n",
    "stop",
    "user",
    "metadata",
    "stream_usage",
    "parallel_tool_calls",
)
ReasoningMember: TypeAlias = Literal["enabled", "effort", "budget", "shown"]
EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
NAMES = st.sampled_from(("a", "bash", "read_file", "x9", "list_dir_2", "mcp_tool", "longer_name_of_a_tool"))
FLAGS = st.sampled_from((None, True, False))
FLOATS = st.sampled_from((0.0, 0.25, 0.7, 1.0))
COUNTS = st.integers(1, 2**20)
NAME_OR_NONE = st.none() | NAMES
TEXT_OR_NONE = st.none() | texts()
_SCHEMAS = (
    '{"type":"object","properties":{}}',
    '{"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "number"}}, "required": ["z"]}',
    '{"type":"object","properties":{"ünï":{"type":"string","description":"für 🙂"}},"additionalProperties":false}',
    '{"type":"object","properties":{"n":{"type":"number","minimum":1.0,"maximum":1e3}}}',
)


@cache
def schemas() -> st.SearchStrategy[bytes]:
    """JSON schemas of objects as bytes; spacing, order of keys and spelling of numbers differ and must survive."""
    return st.sampled_from([schema.encode() for schema in _SCHEMAS])


@cache
def json_objects() -> st.SearchStrategy[bytes]:
    """Small JSON objects as bytes, compact or spaced."""
    values = st.none() | st.booleans() | st.integers(-(2**31), 2**31) | texts() | st.lists(texts(), max_size=2)
    return st.builds(
        lambda value, spaced: json.dumps(value, separators=None if spaced else (",", ":")).encode(),
        st.dictionaries(texts(), values, max_size=3),
        st.booleans(),
    )


EXTRA = st.dictionaries(
    st.sampled_from(("x_first", "x_second")),
    json_objects() | st.sampled_from((b"1", b"1.0", b'"w\\u00f6rd"', b"[1, 2]")),
    max_size=2,
)


@st.composite
def tools_of(
    draw: st.DrawFn, *, namespaces: bool = False, strict: bool = True, parameters: Literal["any", "always"] = "any"
) -> tuple[Tool, ...]:
    """Up to three functions with different names."""
    tools = []
    for own in draw(st.lists(NAMES, max_size=3, unique=True)):
        space = draw(NAME_OR_NONE) if namespaces else None
        schema = draw(schemas() if parameters == "always" else st.none() | schemas())
        tools.append(
            Tool(
                name=own if space is None else f"{space}__{own}",
                description=draw(TEXT_OR_NONE),
                parameters=schema,
                strict=draw(FLAGS) if strict else None,
                namespace=space,
                own_name=None if space is None else own,
            )
        )
    return tuple(tools)


@st.composite
def tool_choices_of(draw: st.DrawFn, tools: tuple[Tool, ...], modes: Sequence[str]) -> ToolChoice | None:
    if not tools or not modes:
        return None
    match draw(st.none() | st.sampled_from(modes)):
        case "named":
            return ToolChoice("named", draw(st.sampled_from([tool.name for tool in tools])))
        case "auto":
            return ToolChoice("auto")
        case "none":
            return ToolChoice("none")
        case "required":
            return ToolChoice("required")
    return None


@st.composite
def outputs_of(draw: st.DrawFn, kinds: Sequence[Literal["schema", "object"]], details: bool) -> OutputFormat:
    if draw(st.sampled_from(kinds)) == "object":
        return OutputFormat(None)
    if not details:
        return OutputFormat(draw(schemas()))
    return OutputFormat(draw(schemas()), draw(NAMES), draw(TEXT_OR_NONE), draw(FLAGS))


@st.composite
def reasonings(draw: st.DrawFn, members: Sequence[ReasoningMember], efforts: Sequence[Effort]) -> Reasoning | None:
    """None, or one with at least one member."""
    drawn = Reasoning(
        enabled=draw(FLAGS) if "enabled" in members else None,
        effort=draw(st.none() | st.sampled_from(efforts)) if "effort" in members else None,
        budget=draw(st.none() | COUNTS) if "budget" in members else None,
        shown=draw(FLAGS) if "shown" in members else None,
    )
    return None if drawn == Reasoning() else drawn

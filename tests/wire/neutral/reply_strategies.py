"""Neutral replies, and the many ways in which a stream may tell each of them."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias

from hypothesis import strategies as st

from polarproxy.model import Usage
from polarproxy.wire.neutral.reply import (
    ArgumentsPiece,
    Begin,
    Choice,
    Envelope,
    Final,
    Finish,
    Finished,
    Piece,
    Reply,
    TextPiece,
    ThinkingPiece,
    ToolBegin,
)
from polarproxy.wire.neutral.request import Request, Text, Thinking, ToolUse

if TYPE_CHECKING:
    from collections.abc import Sequence

Arguments: TypeAlias = Literal["object", "any"]
"""Texts of arguments: `object`: JSON objects in any spelling; `any`: also what is no JSON object, and the empty text."""
Order: TypeAlias = Literal["any", "chat"]
"""Order of an assistant's parts; `chat`: one `Thinking`, then one `Text`, then tool calls, each of them optional."""

FINISHES: tuple[Finish, ...] = ("stop", "stop_sequence", "length", "tool_calls", "content_filter", "abort")
_WHOLE = ("{}", '{"path":"a.txt"}', '{"b": 1.0, "a": [1e3, null], "b2": "ü🙂\\u00e9"}', '{ "x" : {"y": -0} }')
_BROKEN = ("", '{"path": "a.t', '{"a":1}}', "[1,2]", '"text"', "not json 🙂", "null", '{"a": NaN}')


@cache
def texts() -> st.SearchStrategy[str]:
    """Short texts, never empty, with line breaks, quotes, controls, combining characters and emoji among them."""
    hard = st.sampled_from(
        ("🙂", "👩‍👩‍👧‍👦", "e\u0301", "\n\n", "data: x\n\n", '"\\', "\u2028", "\x00\x1f", "</think>", "a b")
    )
    return hard | st.text(min_size=1, max_size=8)


@cache
def seals() -> st.SearchStrategy[str]:
    """Opaque tokens that are none of ours."""
    return st.sampled_from(("EqQBCgIYAhIM1g==", "foreign", "gAAAAABo_x-y"))


def ids(start: int = 0) -> st.SearchStrategy[str]:
    """Ids of tool calls; different `start`s never give the same."""
    return st.sampled_from(("call_", "toolu_01", "chatcmpl-tool-")).map(lambda prefix: f"{prefix}{start:04d}")


@cache
def argument_texts(kind: Arguments = "any") -> st.SearchStrategy[str]:
    """Texts of arguments of a tool call."""
    drawn = st.dictionaries(texts(), texts() | st.integers() | st.booleans(), max_size=2).map(json.dumps)
    whole = st.sampled_from(_WHOLE) | drawn
    return whole if kind == "object" else whole | st.sampled_from(_BROKEN)


@st.composite
def assistant_parts(
    draw: st.DrawFn,
    *,
    tool_names: Sequence[str],
    tool_ids: bool = True,
    arguments: Arguments = "any",
    thinking: bool = True,
    foreign_seals: bool = False,
    order: Order = "any",
    taken: int = 0,
    one_text: bool = True,
    least: int = 1,
) -> tuple[Thinking | Text | ToolUse, ...]:
    """What an assistant said, in at least `least` parts. No `tool_names`: no calls. `taken` keeps ids apart."""
    kinds = ["text"] + ["thinking"] * thinking + ["tool"] * bool(tool_names)
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=least, max_size=4))
    if order == "chat":
        calls = chosen.count("tool")
        chosen = ["thinking"] * ("thinking" in chosen) + ["text"] * ("text" in chosen) + ["tool"] * calls
    parts: list[Thinking | Text | ToolUse] = []
    for place, kind in enumerate(chosen):
        if one_text and place and chosen[place - 1] == kind != "tool":
            continue
        match kind:
            case "text":
                parts.append(Text(draw(texts())))
            case "thinking":
                parts.append(Thinking(draw(texts()), draw(st.none() | seals()) if foreign_seals else None))
            case _:
                call = draw(ids(taken * 10 + place)) if tool_ids else ""
                parts.append(ToolUse(call, draw(st.sampled_from(tool_names)), draw(argument_texts(arguments))))
    return tuple(parts)


@st.composite
def replies(
    draw: st.DrawFn,
    *,
    several_choices: bool = True,
    tool_names: Sequence[str] = ("read_file", "run"),
    tool_ids: bool = True,
    arguments: Arguments = "any",
    thinking: bool = True,
    order: Order = "any",
    finishes: Sequence[Finish] = FINISHES,
    stop_texts: bool = True,
    empty: bool = True,
    usage: Literal["any", "always"] = "any",
    cached: bool = True,
    reasoning_tokens: bool = True,
) -> Reply:
    """A reply. `tool_calls` ends only choices with calls, and choices with calls never end with `stop` or `stop_sequence`.

    `stop_texts`: a `stop_sequence` comes with its text. `empty`: choices without parts are drawn too.
    """
    choices = []
    for index in range(draw(st.integers(1, 3)) if several_choices else 1):
        parts = draw(
            assistant_parts(
                tool_names=tool_names,
                tool_ids=tool_ids,
                arguments=arguments,
                thinking=thinking,
                order=order,
                taken=index,
                least=0 if empty else 1,
            )
        )
        calls = any(isinstance(part, ToolUse) for part in parts)
        unfit = ("stop", "stop_sequence") if calls else ("tool_calls",)
        finish = draw(st.sampled_from([finish for finish in finishes if finish not in unfit]))
        stop = draw(texts()) if finish == "stop_sequence" and stop_texts else None
        choices.append(Choice(index, parts, finish, stop))
    counts = st.integers(0, 10_000)
    counted = st.builds(
        Usage,
        counts,
        counts,
        st.none() | st.integers(1, 100) if cached else st.none(),
        st.none() | st.integers(1, 100) if reasoning_tokens else st.none(),
    )
    return Reply(tuple(choices), draw(counted if usage == "always" else st.none() | counted))


@st.composite
def cut_pieces(draw: st.DrawFn, reply: Reply) -> list[Piece]:
    """The reply as a stream: texts and arguments in pieces cut anywhere, choices interleaved; folding gives it back."""
    lanes = [draw(_lane(choice)) for choice in reply.choices]
    usage = reply.usage
    stream: list[Piece] = [Begin(usage.prompt_tokens if usage else None, usage.cached_tokens if usage else None)]
    while lanes:
        lane = draw(st.sampled_from(lanes)) if len(lanes) > 1 else lanes[0]
        stream.append(lane.pop(0))
        lanes = [lane for lane in lanes if lane]
    stream.append(Final(usage))
    return stream


@st.composite
def _lane(draw: st.DrawFn, choice: Choice) -> list[Piece]:
    lane: list[Piece] = []
    call = 0
    for part in choice.parts:
        match part:
            case Text():
                lane.extend(TextPiece(cut, choice.index) for cut in draw(_cuts(part.text)))
            case Thinking():
                lane.extend(ThinkingPiece(cut, choice.index) for cut in draw(_cuts(part.text)))
            case ToolUse():
                lane.append(ToolBegin(call, part.id, part.name, choice.index))
                lane.extend(ArgumentsPiece(call, cut, choice.index) for cut in draw(_cuts(part.arguments)))
                call += 1
    lane.append(Finished(choice.finish, choice.stop_sequence, choice.index))
    return lane


@st.composite
def _cuts(draw: st.DrawFn, text: str) -> list[str]:
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=3)) | {0, len(text)})
    return [text[start:end] for start, end in pairwise(places)]


def envelope(request: Request | None = None) -> Envelope:
    """An envelope around the answer to a request."""
    return Envelope(
        "0123456789abcdef0123456789abcdef", 1_760_000_000, "asked-model", request or Request("asked-model", ())
    )

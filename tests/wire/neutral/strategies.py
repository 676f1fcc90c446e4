"""Neutral requests in canonical form, drawn for the laws of every dialect.

`requests()` draws everything that the neutral form can say; each keyword takes away what a dialect cannot.
Replies and their pieces: `reply_strategies.py`, importable from here too.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from hypothesis import strategies as st

from polarproxy.wire.neutral.request import (
    Effort,
    Media,
    Message,
    Part,
    Request,
    Text,
    ToolResult,
    ToolUse,
)
from tests.wire.neutral.member_strategies import (
    COUNTS,
    EFFORTS,
    EVERY_MEMBER,
    EXTRA,
    FLOATS,
    NAME_OR_NONE,
    Member,
    ReasoningMember,
    json_objects,
    outputs_of,
    reasonings,
    schemas,
    tool_choices_of,
    tools_of,
)
from tests.wire.neutral.reply_strategies import (
    Arguments,
    Order,
    argument_texts,
    assistant_parts,
    cut_pieces,
    envelope,
    ids,
    replies,
    seals,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "EFFORTS",
    "EVERY_MEMBER",
    "MEDIA_KINDS",
    "Arguments",
    "Order",
    "argument_texts",
    "cut_pieces",
    "envelope",
    "ids",
    "json_objects",
    "media_parts",
    "replies",
    "requests",
    "schemas",
    "seals",
    "texts",
    "tools_of",
]

Systems: TypeAlias = Literal["anywhere", "first", "none"]
"""Where a message of the role `system` may stand; `first`: at most one, at the head."""
MEDIA_KINDS = ("image", "audio", "video", "document")
_MIMES = {
    "image": ("image/png", "image/jpeg", "image/webp"),
    "audio": ("audio/wav", "audio/mpeg"),
    "video": ("video/mp4",),
    "document": ("application/pdf",),
}
_MODELS = ("model-a", "vendor/model-b:latest", "m")
_TEXT = st.builds(Text, texts())


def media_parts(
    kinds: Sequence[str] = MEDIA_KINDS,
    *,
    urls: bool = True,
    wildcard: bool = False,
    names: bool = False,
    details: bool = False,
) -> st.SearchStrategy[Media]:
    """Media of the given kinds: as data URLs; with `urls` also as addresses (of mime `image/*` with `wildcard`)."""

    @st.composite
    def draw_media(draw: st.DrawFn) -> Media:
        kind = draw(st.sampled_from(kinds))
        mime = draw(st.sampled_from(_MIMES[kind]))
        name = draw(st.none() | st.just("file.bin")) if names else None
        detail = draw(st.sampled_from((None, "low", "high", "auto"))) if details and kind == "image" else None
        if urls and draw(st.booleans()):
            return Media(f"{kind}/*" if wildcard else mime, "https://media.invalid/a.bin", name, detail)
        return Media(mime, f"data:{mime};base64," + draw(st.sampled_from(("AAEC", "aGVsbG8=", "/+8="))), name, detail)

    return draw_media()


_MEDIA = media_parts()


@st.composite
def requests(
    draw: st.DrawFn,
    *,
    model: bool = True,
    streams: bool = True,
    systems: Systems = "anywhere",
    developers: bool = True,
    users: st.SearchStrategy[Text | Media] | None = None,
    message_names: bool = True,
    media: st.SearchStrategy[Media] | bool = True,
    media_in_results: bool = True,
    results: bool = True,
    result_errors: bool = True,
    result_names: bool = False,
    one_text: bool = False,
    tools: bool = True,
    namespaces: bool = True,
    strict: bool = True,
    parameters: Literal["any", "always"] = "any",
    tool_ids: bool = True,
    tool_choices: Sequence[str] = ("auto", "none", "required", "named"),
    arguments: Arguments = "any",
    thinking: bool = True,
    seals: bool = True,
    order: Order = "any",
    outputs: Sequence[Literal["schema", "object"]] = ("schema", "object"),
    output_details: bool = True,
    reasoning: Sequence[ReasoningMember] = ("enabled", "effort", "budget"),
    efforts: Sequence[Effort] = EFFORTS,
    members: Sequence[Member] = EVERY_MEMBER,
    several_choices: bool = True,
    extra: st.SearchStrategy[dict[str, bytes]] | bool = True,
) -> Request:
    """A request; messages end anywhere, and each tool message answers the calls of the assistant's before it.

    `model`: whether a model is named (False: it is None, for dialects that name it in the path).
    `one_text`: no two `Text`s in a row in one message. `arguments`, `order`: see `reply_strategies`.
    `tool_ids` False: ids are empty; then `result_names` should be True. `output_details`: name, description and strict of
    an `OutputFormat`. `extra` True: members named `x_…`.
    """
    declared = draw(tools_of(namespaces=namespaces, strict=strict, parameters=parameters)) if tools else ()
    media_part = media if isinstance(media, st.SearchStrategy) else _MEDIA if media else None
    given = draw(st.sets(st.sampled_from(members))) if members else set()
    messages: list[Message] = []
    if systems != "none" and draw(st.booleans()):
        messages.append(Message("system", draw(_texts_of(one_text))))
    turns = ["user", "assistant"] + ["system"] * (systems == "anywhere") + ["developer"] * developers
    for turn in draw(st.lists(st.sampled_from(turns), min_size=1, max_size=5)):
        name = draw(NAME_OR_NONE) if message_names else None
        match turn:
            case "system" | "developer":
                messages.append(Message(turn, draw(_texts_of(one_text)), name))
            case "user":
                part = users if users is not None else _content(media_part)
                parts = tuple(draw(st.lists(part, min_size=1, max_size=3)))
                messages.append(Message("user", _joined(parts) if one_text else parts, name))
            case _:
                said = draw(
                    assistant_parts(
                        tool_names=[tool.name for tool in declared] if tools else (),
                        tool_ids=tool_ids,
                        arguments=arguments,
                        thinking=thinking,
                        foreign_seals=seals,
                        order=order,
                        taken=len(messages),
                        one_text=one_text,
                    )
                )
                messages.append(Message("assistant", said, name))
                uses = [part for part in said if isinstance(part, ToolUse)]
                if uses and results:
                    content = media_part if media_in_results else None
                    messages.append(
                        Message("tool", draw(_results(uses, content, result_errors, result_names, one_text)))
                    )
    return Request(
        model=draw(st.sampled_from(_MODELS)) if model else None,
        messages=tuple(messages),
        stream=draw(st.booleans()) if streams else False,
        tools=declared,
        tool_choice=draw(tool_choices_of(declared, tool_choices)),
        parallel_tool_calls=draw(st.booleans()) if declared and "parallel_tool_calls" in given else None,
        max_tokens=draw(COUNTS) if "max_tokens" in given else None,
        temperature=draw(FLOATS) if "temperature" in given else None,
        top_p=draw(FLOATS) if "top_p" in given else None,
        top_k=draw(st.integers(1, 500)) if "top_k" in given else None,
        presence_penalty=draw(FLOATS) if "presence_penalty" in given else None,
        frequency_penalty=draw(FLOATS) if "frequency_penalty" in given else None,
        seed=draw(st.integers(0, 2**31 - 1)) if "seed" in given else None,
        n=draw(st.integers(1, 4)) if several_choices and "n" in given else None,
        stop=tuple(draw(st.lists(texts(), min_size=1, max_size=3, unique=True))) if "stop" in given else (),
        output=draw(st.none() | outputs_of(outputs, output_details)) if outputs else None,
        reasoning=draw(reasonings(reasoning, efforts)),
        stream_usage=draw(st.booleans()) if "stream_usage" in given else False,
        user=draw(texts()) if "user" in given else None,
        metadata=draw(st.dictionaries(texts(), texts(), min_size=1, max_size=2)) if "metadata" in given else {},
        extra=draw(EXTRA if extra is True else st.just({}) if extra is False else extra),
    )


@cache
def _content(media: st.SearchStrategy[Media] | None) -> st.SearchStrategy[Text | Media]:
    return _TEXT if media is None else _TEXT | media


def _joined(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts without a `Text` that follows a `Text`."""
    kept: list[Part] = []
    for part in parts:
        if not (kept and isinstance(part, Text) and isinstance(kept[-1], Text)):
            kept.append(part)
    return tuple(kept)


@cache
def _texts_of(one: bool) -> st.SearchStrategy[tuple[Part, ...]]:
    return st.lists(_TEXT, min_size=1, max_size=1 if one else 3).map(tuple)


@st.composite
def _results(
    draw: st.DrawFn,
    uses: list[ToolUse],
    media: st.SearchStrategy[Media] | None,
    errors: bool,
    names: bool,
    one_text: bool,
) -> tuple[Part, ...]:
    parts: list[Part] = []
    for use in uses:
        content = tuple(draw(st.lists(_content(media), min_size=1, max_size=3)))
        parts.append(
            ToolResult(
                use.id,
                tuple(part for part in _joined(content) if isinstance(part, (Text, Media))) if one_text else content,
                draw(st.booleans()) if errors else False,
                use.name if names else None,
            )
        )
    return tuple(parts)

"""Finding out whether the engine takes thoughts of earlier turns for those of the turn that it is to sample.

A reasoning parser of vLLM looks at the ids of a prompt: where thinking is over, all of a stream is text and a grammar holds
from the first token. Some parsers look no further back than the turn's beginning, others find the end of a thought that is
many turns old. Templates drop such thoughts and exact prompts keep them, so with a parser of the other kind a client would
get other replies. Source: vLLM 0.32, `is_reasoning_end` of `vllm/reasoning/basic_parsers.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from polarproxy.engine.probe import PROBE_PROMPT
from polarproxy.errors import BadReply
from polarproxy.wire.chat.stream import decode_stream
from polarproxy.wire.neutral.reply import TextPiece, ThinkingPiece

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    _Ask: TypeAlias = Callable[[Mapping[str, str], str, bytes], Awaitable[tuple[int, bytes]]]

ROUTE = "/v1/chat/completions"
MARKS = ("</think>", "</seed:think>", "</mm:think>", "<|END_THINKING|>", "<channel|>", "[/THINK]", "◁/think▷")
"""By which the models that vLLM 0.32 has parsers for end a thought."""
_WORD = "zebra"
"""The only word that the grammar allows."""
_REFUSED = (400, 422)


@dataclass(frozen=True, slots=True)
class _Heard:
    """What became of the first few tokens of a reply."""

    constrained: bool
    """Whether they follow the grammar: the engine held the turn's thinking to be over."""
    as_text: bool
    """Whether they came as text, not as a thought."""


async def why_thoughts_mislead(ask: _Ask, settings: Mapping[str, msgspec.Raw], head: Mapping[str, str]) -> str | None:
    """Why old thoughts in a prompt change how the engine reads a reply, for a person to read. None: they do not.

    `settings`: what of a chat request a template reads. Raises `BadReply`, `EngineTimeout`, `EngineUnreachable`.
    """
    replies = await asyncio.gather(*(ask(head, ROUTE, _request(settings, old)) for old in ("", " ".join(MARKS))))
    for status, _ in replies:
        if status in _REFUSED:
            return f"it cannot be found out how the reasoning parser reads old thoughts: {ROUTE} answers {status}"
        if status != 200:
            raise BadReply(f"{ROUTE} answers {status}")
    plain, marked = (_heard(reply) for _, reply in replies)
    if plain == marked:
        return None
    return (
        "the engine's --reasoning-parser takes the end of a thought in an earlier turn for the end of the new one: replies "
        "to exact prompts would be split wrongly; use a parser that stops at the turn's beginning (as qwen3 does)"
    )


def _request(settings: Mapping[str, msgspec.Raw], old: str) -> bytes:
    """A few tokens under a grammar, after a conversation with `old` in its first message."""
    messages = [
        {"role": "user", "content": f"{PROBE_PROMPT} {old}"},
        {"role": "assistant", "content": PROBE_PROMPT},
        {"role": "user", "content": PROBE_PROMPT},
    ]
    asked = {"stream": True, "max_tokens": 3, "temperature": 0, "structured_outputs": {"choice": [_WORD]}}
    # Without tools: the parser does not read them, and their choice may be refused.
    given = {name: value for name, value in settings.items() if name != "tools"}
    return msgspec.json.encode({**given, "messages": messages, **asked})


def _heard(reply: bytes) -> _Heard:
    pieces = decode_stream(event + b"\n\n" for event in reply.replace(b"\r\n", b"\n").split(b"\n\n") if event)
    said = [piece for piece in pieces if isinstance(piece, (TextPiece, ThinkingPiece))]
    text = "".join(piece.text for piece in said)
    constrained = bool(text) and _WORD.startswith(text)
    # What is sampled freely after other prompts differs, so it tells nothing.
    return _Heard(constrained, constrained and isinstance(said[0], TextPiece))

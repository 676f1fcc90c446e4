"""Recognising the assistant's turns in a request as turns that were recorded, by what was said and not by its bytes.

A turn is known by its key: a digest of the tools, the settings of the template and all messages up to and including it,
by their meaning (`meaning`). The reply to a request gets its key when it is recorded; when a later request repeats the
conversation, the turn there has the same key. An edited or compacted history has other keys and is never matched.

Several recorded turns may share a key: retries, choices of n, answers that differ only in their reasoning. `fit` tells how
well each is what came back. Two that nothing distinguishes are both what the policy sampled after these messages, so that
either is a true context; the one that was delivered, then the later one, is meant.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.wire.neutral.meaning import Meanings, encoded, head_meaning, reasoning_text, said_text, tool_uses
from polarproxy.wire.neutral.request import Media, Message, ToolResult

if TYPE_CHECKING:
    from polarproxy.wire.neutral.reply import Choice, Reply
    from polarproxy.wire.neutral.request import Request

_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Turn:
    """An assistant's message, where a conversation may go on from."""

    key: bytes
    """Digest (16 bytes) of all that was said up to and including it, by meaning."""
    chat_messages: int
    """How many messages of chat that is, where every tool result is a message of its own."""
    reasoning: bytes | None
    """Digest of its reasoning. None: it has none, or none was sent back."""
    spelling: bytes
    """Digest of its text and arguments exactly as written."""
    ids: tuple[str, ...]
    """The ids of its tool calls."""


@dataclass(frozen=True, slots=True, order=True)
class Fit:
    """How well a recorded turn is the one that came back; the greater one is meant."""

    same_reasoning: bool
    same_spelling: bool
    same_ids: bool


def turns(request: Request) -> tuple[Turn, ...]:
    """The assistant's turns of a request, in order: the last one is the longest history. One pass over the messages.

    A turn that another message of the assistant follows directly is none: templates may make one turn of the two.
    """
    chain, meanings = _chain(request), Meanings()
    found: list[Turn] = []
    count = 0
    followers = (*request.messages[1:], None)
    for message, following in zip(request.messages, followers, strict=True):
        chain.update(meanings.message(message))
        count += _chat_messages(message)
        alone = following is None or following.role != "assistant"
        if message.role == "assistant" and alone:
            found.append(_turn(chain.digest(), count, message))
    return tuple(found)


def reply_turns(request: Request, reply: Reply) -> dict[int, Turn]:
    """For each choice of a reply: the turn that it is once a later request repeats it. Empty after a prefill."""
    if request.messages and request.messages[-1].role == "assistant":
        return {}
    chain, meanings = _chain(request), Meanings()
    count = 0
    for message in request.messages:
        chain.update(meanings.message(message))
        count += _chat_messages(message)
    return {choice.index: _reply_turn(chain.copy(), count + 1, choice) for choice in reply.choices}


def fit(sent: Turn, recorded: Turn) -> Fit | None:
    """How well a recorded turn of the same key is the one that was sent back; None: other reasoning came back, so it is not.

    Reasoning that was dropped on the way fits any.
    """
    if sent.reasoning is not None and sent.reasoning != recorded.reasoning:
        return None
    return Fit(
        same_reasoning=sent.reasoning == recorded.reasoning,
        same_spelling=sent.spelling == recorded.spelling,
        same_ids=sent.ids == recorded.ids,
    )


def has_media(request: Request) -> bool:
    """Whether any message holds an image, a sound, a film or a document."""
    return any(
        isinstance(part, Media)
        or (isinstance(part, ToolResult) and any(isinstance(inner, Media) for inner in part.content))
        for message in request.messages
        for part in message.parts
    )


def _chain(request: Request) -> hashlib.blake2b:
    return hashlib.blake2b(head_meaning(request), digest_size=_KEY_BYTES)


def _chat_messages(message: Message) -> int:
    return len(message.parts) if message.role == "tool" else 1


def _reply_turn(chain: hashlib.blake2b, count: int, choice: Choice) -> Turn:
    # What the ids of its calls are does not matter for the key: places are counted, so a fresh reader of meanings will do.
    message = Message("assistant", choice.parts)
    chain.update(Meanings().message(message))
    return _turn(chain.digest(), count, message)


def _turn(key: bytes, count: int, message: Message) -> Turn:
    reasoning, uses = reasoning_text(message.parts), tool_uses(message.parts)
    return Turn(
        key=key,
        chat_messages=count,
        reasoning=_digest(encoded(reasoning)) if reasoning else None,
        spelling=_digest(encoded([said_text(message.parts), [[use.name, use.arguments] for use in uses]])),
        ids=tuple(use.id for use in uses),
    )


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_KEY_BYTES).digest()

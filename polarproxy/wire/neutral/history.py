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
_REASONING_BYTES = 4
_NO_REASONING = bytes(_REASONING_BYTES)


@dataclass(frozen=True, slots=True)
class Turn:
    """An assistant's message, where a conversation may go on from."""

    key: bytes
    """Digest (16 bytes) of all that was said up to and including it, by meaning."""
    chat_messages: int
    """How many messages of chat that is, where every tool result is a message of its own."""
    reasoning: bytes | None
    """Digests (4 bytes each) of the reasoning of every turn of the assistant up to and including it, in order; zeros for one
    that has none, or of which none was sent back. None: there is none at all."""
    spelling: bytes
    """Digest of its text and arguments exactly as written."""
    ids: tuple[str, ...]
    """The ids of its tool calls, after a digest of those of all calls before, if there are any."""


@dataclass(frozen=True, slots=True)
class _Past:
    """What the assistant's messages so far say beyond their meaning."""

    reasoning: bytes = b""
    """As in `Turn`."""
    ids: bytes = b""
    """Digest of the ids of all calls. Empty: no call."""

    def then(self, message: Message) -> _Past:
        """With this message too; only the assistant's matter."""
        if message.role != "assistant":
            return self
        reasoning, ids = reasoning_text(message.parts), [use.id for use in tool_uses(message.parts)]
        said = _digest(encoded(reasoning))[:_REASONING_BYTES] if reasoning else _NO_REASONING
        return _Past(self.reasoning + said, _digest(self.ids + encoded([*ids])) if ids else self.ids)


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
    count, past = 0, _Past()
    followers = (*request.messages[1:], None)
    for message, following in zip(request.messages, followers, strict=True):
        chain.update(meanings.message(message))
        count += _chat_messages(message)
        alone = following is None or following.role != "assistant"
        if message.role == "assistant" and alone:
            found.append(_turn(chain.digest(), count, message, past))
        past = past.then(message)
    return tuple(found)


def reply_turns(request: Request, reply: Reply) -> dict[int, Turn]:
    """For each choice of a reply: the turn that it is once a later request repeats it. Empty after a prefill."""
    if request.messages and request.messages[-1].role == "assistant":
        return {}
    chain, meanings = _chain(request), Meanings()
    count, past = 0, _Past()
    for message in request.messages:
        chain.update(meanings.message(message))
        count += _chat_messages(message)
        past = past.then(message)
    return {choice.index: _reply_turn(chain.copy(), count + 1, choice, past) for choice in reply.choices}


def fit(sent: Turn, recorded: Turn) -> Fit | None:
    """How well a recorded turn of the same key is the one that was sent back; None: other reasoning came back, so it is not.

    Reasoning that was dropped on the way fits any, of this turn and of those before it.
    """
    if sent.reasoning is not None and not _came_back(sent.reasoning, recorded.reasoning or b""):
        return None
    return Fit(
        same_reasoning=sent.reasoning == recorded.reasoning,
        same_spelling=sent.spelling == recorded.spelling,
        same_ids=sent.ids == recorded.ids,
    )


def _came_back(sent: bytes, recorded: bytes) -> bool:
    """Whether every reasoning that was sent is the one that stands in the same place in what was recorded."""
    places = range(0, len(sent), _REASONING_BYTES)
    pairs = ((sent[at : at + _REASONING_BYTES], recorded[at : at + _REASONING_BYTES]) for at in places)
    return all(one in (_NO_REASONING, other) for one, other in pairs)


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


def _reply_turn(chain: hashlib.blake2b, count: int, choice: Choice, past: _Past) -> Turn:
    # What the ids of its calls are does not matter for the key: places are counted, so a fresh reader of meanings will do.
    message = Message("assistant", choice.parts)
    chain.update(Meanings().message(message))
    return _turn(chain.digest(), count, message, past)


def _turn(key: bytes, count: int, message: Message, past: _Past) -> Turn:
    reasoning, uses = past.then(message).reasoning, tool_uses(message.parts)
    return Turn(
        key=key,
        chat_messages=count,
        reasoning=reasoning if any(reasoning) else None,
        spelling=_digest(encoded([said_text(message.parts), [[use.name, use.arguments] for use in uses]])),
        ids=(*((past.ids.hex(),) if past.ids else ()), *(use.id for use in uses)),
    )


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_KEY_BYTES).digest()

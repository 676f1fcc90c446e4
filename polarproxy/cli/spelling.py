"""Tokens as text, for people: spelled as the engine spelled them when it sampled them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polarproxy.model import Call
    from polarproxy.store.repository import Repository

TRAINED = "bold green"
CONTEXT = "dim"


def spellings(repository: Repository, calls: Iterable[Call]) -> dict[int, bytes]:
    """The known spellings of the token ids of these calls' models."""
    texts: dict[int, bytes] = {}
    for model in {call.served_model for call in calls if call.served_model is not None}:
        texts |= repository.token_texts(model)
    return texts


def spell(ids: Iterable[int], texts: Mapping[int, bytes]) -> str:
    """The ids as text; one whose spelling is not known is shown as ⟨id⟩."""
    parts = [texts.get(token, f"⟨{token}⟩".encode()) for token in ids]
    return b"".join(parts).decode("utf-8", "replace")


def marked(text: str, *, trained: bool) -> Text:
    """Trained text between « and », so that it also shows where there are no colours."""
    return Text(f"«{text}»" if trained else text, style=TRAINED if trained else CONTEXT)


def request_text(body: bytes) -> list[tuple[str, str]]:
    """Role and content of each message of a stored request, as far as it can be read."""
    try:
        request = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    messages = request.get("messages") if isinstance(request, dict) else None
    if not isinstance(messages, list):
        return []
    return [_message(message) for message in messages if isinstance(message, dict)]


def _message(message: dict[str, object]) -> tuple[str, str]:
    content = message.get("content")
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode() if content is not None else ""
    calls = message.get("tool_calls")
    if calls:
        text = f"{text}{msgspec.json.encode(calls).decode()}"
    return str(message.get("role", "?")), text

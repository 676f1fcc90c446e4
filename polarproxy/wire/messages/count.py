"""The reply to `count_tokens`. Source: Anthropic API reference, "Count tokens in a message"."""

from __future__ import annotations

import msgspec


class _Count(msgspec.Struct):
    input_tokens: int


def encode_count(tokens: int) -> bytes:
    """The length of a prompt in tokens."""
    return msgspec.json.encode(_Count(tokens))

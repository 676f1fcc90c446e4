"""`countTokens`: a prompt in, its length out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.wire.gemini.members import read_body
from polarproxy.wire.gemini.request import decode_members

if TYPE_CHECKING:
    from polarproxy.wire.neutral.request import Decoded


def decode_count(body: bytes, *, model: str) -> Decoded:
    """The request whose prompt is to be counted: the body itself, or its `generateContentRequest`; raises `BadRequest`."""
    members = read_body(body)
    return decode_members(members.message("generateContentRequest") or members, model=model, stream=False)


def encode_count(tokens: int) -> bytes:
    """The answer: the length of the prompt in tokens."""
    return msgspec.json.encode({"totalTokens": tokens})

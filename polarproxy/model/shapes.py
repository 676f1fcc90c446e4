"""The shape of a request: what tells a side call from work without its words."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

OPENING_WORDS = 5


FAR_ENOUGH = 1024
"""Characters of a text in which its first words stand."""


def opening(text: str) -> str | None:
    """Digest of the first five words of a text, as 16 hexadecimal digits. None: it has fewer."""
    words = text[:FAR_ENOUGH].split(None, OPENING_WORDS)[:OPENING_WORDS]
    if len(words) < OPENING_WORDS:
        return None
    return xxhash.xxh3_64_hexdigest(" ".join(words).encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class Shape:
    """What a request looks like, without its prose. Kept also where request bodies are not."""

    messages: int
    """How many messages it holds, as the client's dialect counts them."""
    tools: tuple[str, ...]
    """Names of the tools it offers, in its order; at most 512 names of at most 128 characters."""
    wants_json: bool
    """Whether the reply is to be JSON, of a schema or not."""
    system_opening: str | None = None
    """Digest of the first five words of the system prompt (`opening`). None: it has none, or fewer words."""
    last_opening: str | None = None
    """The same of the last text of the last message."""

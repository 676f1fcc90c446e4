"""The members of JSON objects, kept as the bytes that came in."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from polarproxy.wire.neutral.reading import is_given

Members: TypeAlias = dict[str, msgspec.Raw]
"""The members of a JSON object, each value as the bytes that came in."""

NONE = msgspec.Raw(b"")
"""Default of a member that is kept as its bytes: it was absent."""

members = msgspec.json.Decoder(Members)


def given(raw: msgspec.Raw) -> bytes | None:
    """The bytes of a member; None when it is absent or null."""
    return bytes(raw) if is_given(raw) else None

"""`thoughtSignature`: the reasoning before a part, as an opaque token on that part.

The member is of the type `bytes`, so SDKs expect base64 and may spell it in either alphabet: a seal of ours travels as the
base64 of its text. Harnesses that got no signature send one of two documented words instead, which mean nothing.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from dataclasses import dataclass

from polarproxy.wire.neutral.seal import seal, unseal

_PLACEHOLDERS = frozenset({"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"})


@dataclass(frozen=True, slots=True)
class Signature:
    """What a signature says."""

    text: str | None = None
    """The reasoning. None: the signature is not ours, or says nothing."""
    foreign: str | None = None
    """The signature itself, when another provider made it."""


def sign(text: str) -> str:
    """The signature of a piece of reasoning."""
    return b64encode(seal(text).encode()).decode()


def standard_base64(data: str) -> str:
    """Base64 of either alphabet, with or without padding, in the one that data URLs use."""
    data = data.rstrip("=").replace("-", "+").replace("_", "/")
    return data + "=" * (-len(data) % 4)


def read_signature(signature: str) -> Signature:
    """What a signature says, whoever made it."""
    if not signature or signature in _PLACEHOLDERS:
        return Signature()
    inner = _inner(signature)
    if inner in _PLACEHOLDERS:
        return Signature()
    text = unseal(inner)
    return Signature(foreign=signature) if text is None else Signature(text)


def _inner(signature: str) -> str:
    """The text in the base64; the signature itself when there is none."""
    try:
        return b64decode(standard_base64(signature), validate=True).decode()
    except (binascii.Error, ValueError):
        return signature

"""Session keys: `sk-polar-<session_id>-<signature>`. Whoever holds one may call models as that session, and nothing else."""

from __future__ import annotations

import hmac
import re
from functools import lru_cache

from polarproxy.errors import BadKey

PREFIX = "sk-polar-"
_ADMIN = "sk-polar-admin-"
_SIGNATURE_CHARS = 32
_REMEMBERED = 16_384
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_session_id(text: str) -> bool:
    """Whether a text can name a session: up to 128 letters, digits, `.`, `_` and `-`."""
    return _SESSION_ID.fullmatch(text) is not None and not text.startswith(PREFIX)


def is_session_key(text: str) -> bool:
    """Whether a text claims to be a session key."""
    return text.startswith(PREFIX)


def _equal(left: str, right: str) -> bool:
    """In constant time; a header may hold bytes that are no text."""
    return hmac.compare_digest(left.encode("utf-8", "surrogateescape"), right.encode("utf-8", "surrogateescape"))


class Signer:
    """Makes and checks keys with one secret (HMAC-SHA256, 128 bits kept)."""

    def __init__(self, secret: bytes, admin_key: str | None = None) -> None:
        self._secret = secret
        # A harness sends the same key with every call; only keys that were found right are remembered.
        self._session_of = lru_cache(_REMEMBERED)(self._check)
        self.admin_key = admin_key or _ADMIN + self._signature("admin", "")
        """Opens the control routes."""

    def key(self, session_id: str) -> str:
        """The key of a session."""
        return f"{PREFIX}{session_id}-{self._signature('session', session_id)}"

    def session_of(self, key: str) -> str:
        """The session that a key was made for; raises `BadKey`."""
        return self._session_of(key)

    def _check(self, key: str) -> str:
        session_id, _, signature = key.removeprefix(PREFIX).rpartition("-")
        if not is_session_id(session_id) or not _equal(signature, self._signature("session", session_id)):
            raise BadKey(
                "this session key was not made by this proxy (or its signing key has changed);"
                " make a session with POST /api/sessions and use the key it returns"
            )
        return session_id

    def is_admin(self, key: str) -> bool:
        """Whether a key opens the control routes."""
        return _equal(key, self.admin_key)

    def _signature(self, purpose: str, text: str) -> str:
        message = f"{purpose}:{text}".encode()
        return hmac.digest(self._secret, message, "sha256").hex()[:_SIGNATURE_CHARS]

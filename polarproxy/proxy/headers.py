"""Which headers go where: to the engine, to the client, into the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polarproxy.proxy.keys import is_session_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NOT_TO_ENGINE = _HOP_BY_HOP | {"host", "content-length", "content-encoding", "accept-encoding", "expect"}
_NOT_TO_CLIENT = _HOP_BY_HOP | {"content-length", "content-encoding"}
_RECORDED = frozenset(
    {"user-agent", "content-type", "originator", "session-id", "session_id", "thread-id", "thread_id", "accept"}
)
_RECORDED_PREFIXES = ("x-", "anthropic-", "openai-")
_SECRET_WORDS = ("key", "token", "secret", "auth", "cookie", "password", "credential")

_KEY_HEADERS = frozenset({"authorization", "x-api-key", "x-goog-api-key"})


def to_engine(headers: Iterable[tuple[str, str]], upstream_key: str | None) -> dict[str, str]:
    """The client's headers for the engine. Our session keys never leave; `upstream_key` replaces any other."""
    sent: dict[str, str] = {}
    for name, value in headers:
        lower = name.lower()
        if lower in _NOT_TO_ENGINE or lower == "x-polarproxy-session":
            continue
        if lower in _KEY_HEADERS and (upstream_key or is_session_key(value.removeprefix("Bearer ").strip())):
            continue
        sent[name] = value
    sent["Accept-Encoding"] = "identity"
    if upstream_key:
        sent["Authorization"] = f"Bearer {upstream_key}"
    return sent


def to_client(headers: Mapping[str, str]) -> dict[str, str]:
    """The engine's headers for the client."""
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_TO_CLIENT}


def to_record(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The headers that are kept with a call: those that tell client, session and lineage, and no secrets."""
    return tuple((lower, value) for name, value in headers if _is_recorded(lower := name.lower()))


def _is_recorded(name: str) -> bool:
    if any(word in name for word in _SECRET_WORDS):
        return False
    return name in _RECORDED or name.startswith(_RECORDED_PREFIXES)

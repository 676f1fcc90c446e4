"""Which headers go where: to the engine, to the client, into the record."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import unquote

from multidict import CIMultiDict

from polarproxy.proxy.address import offered_keys
from polarproxy.proxy.keys import PREFIX

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
_OURS = {"x-polarproxy-session", "x-polarproxy-prompts"}
_NOT_TO_ENGINE = _HOP_BY_HOP | {"host", "content-length", "content-encoding", "accept-encoding", "expect"} | _OURS
_NOT_TO_CLIENT = _HOP_BY_HOP | {"content-length"}
_RECORDED = frozenset(
    {"user-agent", "content-type", "originator", "session-id", "session_id", "thread-id", "thread_id", "accept"}
)
_RECORDED_PREFIXES = ("x-", "anthropic-", "openai-")
_SECRET = re.compile("key|token|secret|auth|cookie|password|credential")

_KEY_HEADERS = frozenset({"authorization", "x-api-key", "x-goog-api-key"})
_NAMES = 1024
"""Of headers, that are remembered: clients send the same ones again and again."""


def to_engine(headers: Iterable[tuple[str, str]], upstream_key: str | None) -> CIMultiDict[str]:
    """The client's headers for the engine. Our session keys never leave; `upstream_key` replaces any other."""
    sent: CIMultiDict[str] = CIMultiDict()
    for name, value in headers:
        lower = name.lower()
        if lower in _NOT_TO_ENGINE or PREFIX in value:
            continue
        if lower not in _KEY_HEADERS or upstream_key is None:
            sent.add(name, _text(value))
    sent["Accept-Encoding"] = "identity"
    if upstream_key:
        sent["Authorization"] = f"Bearer {upstream_key}"
    return sent


def of_translation(headers: Mapping[str, str], query: Mapping[str, str], upstream_key: str | None) -> Mapping[str, str]:
    """The headers of a request that was translated: the engine's own, and nothing of a dialect it does not speak."""
    sent = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    key = upstream_key or next(filter(_can_be_sent, offered_keys(headers, query)), None)
    if key is not None:
        sent["Authorization"] = f"Bearer {_text(key)}"
    if (request_id := headers.get("x-request-id")) is not None:
        sent["X-Request-Id"] = _text(request_id)
    return sent


def _can_be_sent(key: str) -> bool:
    """Not a key of ours, and nothing that would end the header."""
    return PREFIX not in key and key.isprintable()


def query_to_engine(raw_query: str, upstream_key: str | None) -> str:
    """The query string for the engine, as it was sent, with its question mark; without keys that must not leave."""
    kept = [part for part in raw_query.split("&") if part and not _is_key(part, upstream_key)]
    return "?" + "&".join(kept) if kept else ""


def _is_key(part: str, upstream_key: str | None) -> bool:
    name, _, value = part.partition("=")
    return PREFIX in unquote(value) or (upstream_key is not None and unquote(name) == "key")


def to_client(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """The engine's headers for the client."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _NOT_TO_CLIENT)


def to_record(
    headers: Iterable[tuple[str, str]], inside: tuple[tuple[str, str], ...] = ()
) -> tuple[tuple[str, str], ...]:
    """The headers that are kept with a call: those that tell client, session and lineage, and no secrets.

    `inside`: headers that the message itself carries, which stand for those of the connection.
    """
    said = {name.lower() for name, _ in inside}
    sent = chain(((name, value) for name, value in headers if name.lower() not in said), inside) if said else headers
    return tuple((lower, _text(value)) for name, value in sent if (lower := _recorded_as(name)) and PREFIX not in value)


@lru_cache(_NAMES)
def _recorded_as(name: str) -> str | None:
    """The header's name in the record. None: it is not kept."""
    lower = name.lower()
    kept = lower in _RECORDED or lower.startswith(_RECORDED_PREFIXES)
    return lower if kept and _SECRET.search(lower) is None else None


def _text(value: str) -> str:
    """A header's value as text that can be written; bytes that are none become U+FFFD."""
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

"""Which session does a request belong to? First match wins: path, signed key, header; otherwise the conversation itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from polarproxy.errors import BadKey
from polarproxy.proxy.keys import is_session_id, is_session_key
from polarproxy.wire.bedrock.signature import access_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.proxy.keys import Signer

SESSION_HEADER = "x-polarproxy-session"
_KEY_HEADERS = ("x-api-key", "x-goog-api-key")
_HARNESS_HEADERS = (
    "x-claude-code-session-id",
    "x-parent-session-id",
    "x-session-id",
    "session-id",
    "session_id",
    "x-deepseek-harness-session-id",
)
"""The session headers of harnesses, in this order: a sub-agent that names its parent's session belongs to it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a request goes."""

    route: str
    """The path without our prefix, as it was sent: percent-encoding and all."""
    session_id: str | None
    """None: the client named no session; the conversation is recognised by its messages."""
    origin: str
    """`path`, `key`, `header`, `harness` or `root`."""
    signed: bool
    """Whether a valid session key came with it."""

    @property
    def path(self) -> str:
        """The path for the record, where a key in it is written as the session that it names."""
        return f"/s/{self.session_id}{self.route}" if self.origin == "path" else self.route


def offered_keys(headers: Mapping[str, str], query: Mapping[str, str]) -> list[str]:
    """The API keys of a request, from every place where a dialect puts one."""
    authorization = headers.get("authorization", "")
    scheme, _, token = authorization.partition(" ")
    named = token.strip() if scheme.lower() == "bearer" else access_key(authorization)
    offered = (named, *(headers.get(name) for name in _KEY_HEADERS), query.get("key"))
    return [key for key in offered if key]


def _split_path(path: str) -> tuple[str | None, str]:
    if not path.startswith("/s/"):
        return None, path
    name, slash, rest = path.removeprefix("/s/").partition("/")
    return unquote(name), slash + rest


def without_prefix(path: str) -> str:
    """The route that a path means, whoever it belongs to."""
    return _split_path(path)[1]


def locate(path: str, headers: Mapping[str, str], query: Mapping[str, str], signer: Signer) -> Address:
    """`path` as it was sent, not decoded. Among several keys the session key counts, whatever else a harness sends along.

    Raises `BadKey` for a wrong signature, for a key used on another session's path, and for a malformed session id.
    """
    named, route = _split_path(path)
    key = next(filter(is_session_key, offered_keys(headers, query)), None)
    signed = None if key is None else signer.session_of(key)
    if named is not None and is_session_key(named):
        named = signed = signer.session_of(named)
    if named is not None:
        if not is_session_id(named):
            raise BadKey(f"{named!r} cannot name a session; use up to 128 letters, digits, '.', '_' and '-'")
        if signed is not None and signed != named:
            raise BadKey(f"the key is that of session {signed}, the path names session {named}")
        return Address(route, named, "path", signed is not None)
    if signed is not None:
        return Address(route, signed, "key", signed=True)
    header = headers.get(SESSION_HEADER)
    if header is None:
        named_by_harness = (headers.get(name, "") for name in _HARNESS_HEADERS)
        own = next((value for value in named_by_harness if is_session_id(value)), None)
        return Address(route, own, "root" if own is None else "harness", signed=False)
    if not is_session_id(header):
        raise BadKey(f"{SESSION_HEADER}: {header!r} cannot name a session")
    return Address(route, header, "header", signed=False)


def admit(
    path: str, headers: Mapping[str, str], query: Mapping[str, str], signer: Signer, *, signed_only: bool
) -> Address:
    """Where a request goes; raises `BadKey` for who may not come in."""
    address = locate(path, headers, query, signer)
    if signed_only and not address.signed:
        raise BadKey("this proxy serves signed session keys only; POST /api/sessions returns one")
    return address

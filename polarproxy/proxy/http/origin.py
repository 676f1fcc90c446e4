"""Where an engine is, read from its base URL, and the head of a request to it."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from polarproxy.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

_NO_BODY = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "DELETE"})
"""Methods whose requests need not say that they carry none (RFC 9110 §8.6)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One server."""

    host: str
    """A name or an address, an IPv6 one without brackets."""
    port: int
    secure: bool
    prefix: str
    """What stands before the path of every request; empty in most cases."""
    authority: str
    """The `Host` header."""
    authorization: str | None
    """From a user and a password in the URL. None: it names none."""

    @classmethod
    def of(cls, base: str) -> Origin:
        """Raises `BadSettings` when `base` is no http(s) URL with a host."""
        try:
            url = urlsplit(base)
            host, port = url.hostname, url.port
            name = "" if host is None else host if ":" in host else host.encode("idna").decode()
        except ValueError as error:
            raise BadSettings(f"upstream {base!r} is not a URL: {error}") from error
        if url.scheme not in ("http", "https") or not name:
            raise BadSettings(f"upstream {base!r} names no host; use http://HOST:PORT")
        secure = url.scheme == "https"
        shown = f"[{name}]" if ":" in name else name
        usual = 443 if secure else 80
        return cls(
            host=name,
            port=port or usual,
            secure=secure,
            prefix=url.path.rstrip("/"),
            authority=shown if port in (None, usual) else f"{shown}:{port}",
            authorization=_basic(url),
        )

    def __str__(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.authority}"

    def head(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """The request line and all headers, with the empty line. `path` is percent-encoded, with its query.

        Raises `ValueError` when a header or the path holds a line break, which would begin a header of its own.
        """
        lines = [f"{method} {self.prefix}{path} HTTP/1.1\r\nHost: {self.authority}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in headers.items()]
        if self.authorization is not None and "Authorization" not in headers:
            lines.append(f"Authorization: {self.authorization}\r\n")
        if body is not None or method not in _NO_BODY:
            lines.append(f"Content-Length: {len(body or b'')}\r\n")
        lines.append("\r\n")
        head = "".join(lines)
        if head.count("\n") != len(lines) + 1 or head.count("\r") != len(lines) + 1:
            raise ValueError("a header of the request holds a line break")
        return head.encode("utf-8", "surrogateescape")


def _basic(url: SplitResult) -> str | None:
    if url.username is None:
        return None
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return "Basic " + b64encode(pair.encode()).decode()

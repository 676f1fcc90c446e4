"""Answers in one piece, and the head of any answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http.client import responses as phrases
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_CONTENT = (204, 304)


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer that a handler returns."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @classmethod
    def of_json(cls, body: bytes, status: int = 200) -> Response:
        """JSON text, encoded already."""
        return cls(status, {"Content-Type": "application/json"}, body)


@dataclass(frozen=True, slots=True)
class Framing:
    """How the client is to know where the answer's body ends."""

    has_body: bool
    length: int | None
    """Bytes. None: it is not known before, or is nothing that may be said."""
    chunked: bool
    keep_alive: bool
    """Without a length and without chunks the body ends with the connection."""

    @classmethod
    def of(cls, method: str, version: str, status: int, length: int | None, *, keep_alive: bool) -> Framing:
        """Source: RFC 9112 §6.3."""
        has_body = method != "HEAD" and status >= 200 and status not in _NO_CONTENT
        if length is not None or not has_body:
            return cls(has_body, None if status in _NO_CONTENT else length, chunked=False, keep_alive=keep_alive)
        chunked = version == "1.1"
        return cls(has_body, None, chunked, keep_alive and chunked)


def head_of(status: int, headers: Mapping[str, str], framing: Framing, version: str) -> bytes:
    """The status line and all headers, with the empty line.

    Raises `ValueError` when a header holds a line break, which would begin a header of its own.
    """
    lines = [f"HTTP/1.1 {status} {phrases.get(status, '')}\r\n"]
    lines += [f"{name}: {value}\r\n" for name, value in headers.items()]
    if framing.length is not None:
        lines.append(f"Content-Length: {framing.length}\r\n")
    elif framing.chunked:
        lines.append("Transfer-Encoding: chunked\r\n")
    if "Date" not in headers and "date" not in headers:
        lines.append(_date(int(time.time())))
    if not framing.keep_alive:
        lines.append("Connection: close\r\n")
    elif version == "1.0":
        lines.append("Connection: keep-alive\r\n")
    lines.append("\r\n")
    text = "".join(lines)
    if text.count("\n") != len(lines) or text.count("\r") != len(lines):
        raise ValueError("a header of the answer holds a line break")
    return text.encode("utf-8", "surrogateescape")


@lru_cache(1)
def _date(second: int) -> str:
    return f"Date: {formatdate(second, usegmt=True)}\r\n"

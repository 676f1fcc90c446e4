"""The one way out of a sandbox: a Unix socket whose connections go to the proxy and nowhere else."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from polarproxy.errors import RuntimeFailed

if TYPE_CHECKING:
    from pathlib import Path

_MOST = 256
"""Connections at a time; a program that opens more sees those closed, and this process keeps its descriptors."""
_CONNECT_S = 10.0
_PIECE = 1 << 16


class Gate:
    """Passes bytes on as they come; what a session key may do there is the proxy's to know."""

    def __init__(self, path: Path, proxy: str) -> None:
        parts = urlsplit(proxy)
        if parts.hostname is None or parts.scheme not in ("http", "https"):
            raise RuntimeFailed(f"the proxy's address must be an http:// or https:// URL, not {proxy!r}")
        self._path = path
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listens; whoever can see the socket may connect."""
        self._server = await asyncio.start_unix_server(self._accept, self._path)
        self._path.chmod(0o666)

    async def stop(self) -> None:
        """Closes the socket and every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= _MOST:
            writer.close()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_CONNECT_S):
                there, back = await asyncio.open_connection(self._host, self._port, ssl=self._ssl)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            back.close()
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()
    except OSError:
        # The other direction sees its end of this connection closed, and ends.
        writer.close()

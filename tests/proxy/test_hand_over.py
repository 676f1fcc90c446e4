"""One connection, two servers: what aiohttp serves is handed over, and what comes after it is not served unguarded."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.proxy.rig import BODY, CHAT, Rig, Starter
from tests.proxy.server.raw_client import Peer, post

UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"


@asynccontextmanager
async def connected(rig: Rig) -> AsyncIterator[Peer]:
    host, port = rig.base.removeprefix("http://").split(":")
    peer = Peer(*await asyncio.open_connection(host, int(port)))
    try:
        yield peer
    finally:
        peer.writer.close()


def chat(session: str = "s1") -> bytes:
    return post(json.dumps(BODY).encode(), f"/s/{session}{CHAT}", b"Content-Type: application/json\r\n")


async def test_a_control_request_ends_its_connection(start: Starter) -> None:
    rig = await start()
    async with connected(rig) as peer:
        await peer.say(chat() + post(b'{"session_id":"new"}', "/api/sessions"), chat("after"))
        assert (await peer.answer()).status == 200
        made = await peer.answer()
        assert (made.status, made.headers["connection"], json.loads(made.body)["session_id"]) == (201, "close", "new")
        assert await peer.rest() == b""
        assert rig.calls("after") == []


async def test_its_body_may_come_late_and_in_chunks(start: Starter) -> None:
    rig = await start()
    async with connected(rig) as peer:
        head = b"POST /api/sessions HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
        await peer.say(head)
        assert (await peer.answer()).status == 100
        await peer.say(b'7\r\n{"sessi', b'\r\nd\r\non_id":"new"}\r\n0\r\n\r\n')
        assert (await peer.answer()).status == 201


@pytest.mark.parametrize("path", ["/api/sessions", "/api/nothing", "/v1/responses", "/nothing"])
async def test_a_declined_upgrade_opens_no_control_route(start: Starter, path: str) -> None:
    rig = await start(auth="required")
    async with connected(rig) as peer:
        request = f"GET {path} HTTP/1.1\r\nHost: h\r\n".encode() + UPGRADE + b"\r\n"
        await peer.say(request + post(b"{}", "/api/sessions"), post(b"{}", "/api/sessions"))
        answers = [(await peer.answer()).status]
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            answers += [(await peer.answer()).status, (await peer.answer()).status]
        assert set(answers) <= {401, 404}
        assert rig.parts.repository.session_ids() == []


async def test_an_upgrade_with_a_body_is_no_upgrade(start: Starter) -> None:
    rig = await start()
    async with connected(rig) as peer:
        await peer.say(post(b'{"session_id":"new"}', "/api/sessions", UPGRADE))
        assert (await peer.answer()).status == 201


async def test_who_may_not_come_in_need_not_send_a_body(start: Starter) -> None:
    rig = await start(auth="required")
    async with connected(rig) as peer:
        await peer.say(post(b"x" * 100_000, "/api/sessions")[:1000])
        assert (await peer.answer()).status == 401


@pytest.mark.parametrize("method", ["HEAD", "GET"])
@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/readyz", 200), ("/api/hello", 200)])
async def test_some_routes_are_for_everybody(start: Starter, method: str, path: str, status: int) -> None:
    rig = await start(auth="required")
    answer = await rig.send(method, rig.base + path)
    assert answer.status == (401 if (method, path) == ("GET", "/api/hello") else status)


async def test_a_declined_upgrade_ends_its_connection(start: Starter) -> None:
    """What the client asks next is for the other server."""
    rig = await start(auth="required")
    async with connected(rig) as peer:
        await peer.say(b"GET /v1/responses HTTP/1.1\r\nHost: h\r\n" + UPGRADE + b"\r\n")
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"], await peer.rest()) == (401, "close", b"")

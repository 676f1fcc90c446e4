"""Every other `/v1` route goes through as it is, counted and not recorded; health says whether calls can be served."""

import socket

import aiohttp
import pytest

from tests.fakes import FakeEngine, always, compose
from tests.proxy.http.socket_engine import OK, Peer, socket_engine
from tests.proxy.raw_engine import raw_engine, says
from tests.proxy.rig import Starter

PASSED = [
    ("GET", "/v1/models", b""),
    ("POST", "/v1/embeddings", b'{"input": "a", "model":"fake"}'),
    ("GET", "/v1/nothing?x=%26&y=1", b""),
    ("GET", "/v1/chat/completions", b""),
]
SAME = {"X-Request-Id": "same", "Content-Type": "application/json"}


@pytest.mark.parametrize(("method", "path", "body"), PASSED)
@pytest.mark.parametrize("prefix", ["", "/s/s1"])
async def test_a_route_is_passed_through(start: Starter, method: str, path: str, body: bytes, prefix: str) -> None:
    rig = await start()
    data = body or None
    direct = await rig.send(method, rig.engine.url + path, data, SAME)
    proxied = await rig.send(method, rig.base + prefix + path, data, SAME)
    assert proxied.status == direct.status
    assert strip(proxied.body) == strip(direct.body)
    assert proxied.headers.get("Content-Type") == direct.headers.get("Content-Type")
    first, second = rig.engine.requests[0], rig.engine.requests[-1]
    assert (second.method, second.path, second.body) == (first.method, first.path, first.body)
    assert rig.parts.stats.passed_through == 1
    assert rig.parts.stats.calls == 0
    assert rig.parts.repository.session_ids() == []


def strip(body: bytes) -> bytes:
    """Without the second in which it was made."""
    return b"".join(part.lstrip(b"0123456789") for part in body.split(b'"created":'))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/chat/completions/batch"),
        ("POST", "/v1/audio/transcriptions"),
        ("POST", "/v1/nothing"),
        ("DELETE", "/v1/models"),
        ("POST", "/v1/load_lora_adapter"),
    ],
)
async def test_what_may_sample_and_cannot_be_recorded_is_not_offered(start: Starter, method: str, path: str) -> None:
    rig = await start()
    answer = await rig.send(method, rig.base + path, b"{}", SAME)
    assert (answer.status, "could not be recorded" in answer.error["message"]) == (501, True)
    assert rig.engine.requests == []


async def test_a_head_request_has_no_body(start: Starter) -> None:
    rig = await start()
    answer = await rig.send("HEAD", rig.base + "/v1/models")
    assert (answer.status, answer.body) == (200, b"")


async def test_what_else_the_engine_serves_is_not_for_clients(start: Starter) -> None:
    rig = await start()
    for path in ("/version", "/tokenize", "/", "/metrics", "/s/s1/version"):
        answer = await rig.send("POST", rig.base + path, b"{}")
        assert (answer.status, answer.error["type"]) == (404, "NotFoundError")
    assert rig.engine.requests == []


async def test_an_engine_that_is_not_there_is_a_bad_gateway(start: Starter) -> None:
    rig = await start(upstream=f"http://127.0.0.1:{free_port()}")
    answer = await rig.send("GET", rig.base + "/v1/models")
    assert (answer.status, answer.error["type"]) == (502, "UpstreamError")


async def test_an_answer_that_breaks_off_does_so_for_the_client_too(start: Starter) -> None:
    async def serve(peer: Peer) -> None:
        if "/v1/files" in (await peer.request()).line:
            await peer.say(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"4\r\nhalf\r\n")

    async with socket_engine(serve) as engine:
        rig = await start(upstream=engine.url)
        with pytest.raises(aiohttp.ClientError):
            await rig.send("GET", rig.base + "/v1/files")


async def test_a_redirect_is_the_clients_to_follow(start: Starter) -> None:
    async with raw_engine(says(b"", status=307)) as url:
        rig = await start(upstream=url)
        assert (await rig.ask()).status == 307


async def test_a_base_with_v1_in_it_is_the_same_base(start: Starter) -> None:
    async with raw_engine(says(b'{"choices":[]}')) as url:
        for suffix in ("/v1", "/v1/", "/"):
            rig = await start(upstream=url + suffix)
            assert (await rig.ask(prefix="/s/any")).status == 200


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


# Health


async def test_it_lives(start: Starter) -> None:
    rig = await start(auth="required")
    answer = await rig.send("GET", rig.base + "/healthz")
    assert (answer.status, answer.json) == (200, {"status": "ok"})


async def test_it_is_ready_when_the_engine_answers(start: Starter) -> None:
    rig = await start()
    answer = await rig.send("GET", rig.base + "/readyz")
    assert (answer.status, answer.json) == (200, {"engine": "vllm", "model": "fake", "problems": [], "warnings": []})


async def test_it_is_not_ready_without_an_engine_and_ready_when_one_comes(start: Starter) -> None:
    port = free_port()
    rig = await start(upstream=f"http://127.0.0.1:{port}")
    answer = await rig.send("GET", rig.base + "/readyz")
    assert answer.status == 503
    assert answer.json["problems"] == [f"the engine at http://127.0.0.1:{port} does not answer"]

    async with FakeEngine(always(compose("hi")), port=port):
        answer = await rig.send("GET", rig.base + "/readyz")
        assert (answer.status, answer.json["engine"]) == (200, "vllm")
        assert (await rig.ask()).status == 200
        assert (await rig.call()).call.engine == "vllm"


async def test_it_is_not_ready_while_the_store_cannot_commit(start: Starter) -> None:
    rig = await start()
    with rig.parts.repository._writing.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE bodies RENAME TO elsewhere")
    assert (await rig.ask()).status == 503
    answer = await rig.send("GET", rig.base + "/readyz")
    assert answer.status == 503
    assert "the store cannot commit: no such table" in answer.json["problems"][0]
    with rig.parts.repository._writing.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO bodies")
    assert (await rig.ask()).status == 200
    assert (await rig.send("GET", rig.base + "/readyz")).status == 200

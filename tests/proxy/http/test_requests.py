"""What goes out on the wire: the request line and headers as they were given, to the server that the URL names."""

import os
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from polarproxy.errors import BadSettings, EngineUnreachable
from polarproxy.proxy.headers import to_engine
from polarproxy.proxy.http.origin import Origin
from tests.proxy.http.socket_engine import OK, Peer, Request, always, socket_engine, upstream_of

EMPTY = OK + b"Content-Length: 0\r\n\r\n"


async def sent(method: str, path: str, headers: dict[str, str], body: bytes | None, suffix: str = "") -> Request:
    """What the engine received."""
    received = list[Request]()

    async def serve(peer: Peer) -> None:
        received.append(await peer.request())
        await peer.say(EMPTY)

    async with socket_engine(serve) as engine, upstream_of(engine.url + suffix) as upstream:
        async with await upstream.send(method, path, headers, body) as answer:
            assert answer.status == 200
        host = engine.url.removeprefix("http://")
    (request,) = received
    assert f"Host: {host}" in request.headers
    return Request(request.line, [header for header in request.headers if header != f"Host: {host}"], request.body)


async def test_a_path_goes_out_as_it_is_given() -> None:
    request = await sent("GET", "/v1/a%2Fb%3Fc~d?x=%26&y=1+2", {}, None)
    assert request == Request("GET /v1/a%2Fb%3Fc~d?x=%26&y=1+2 HTTP/1.1", [], b"")


async def test_headers_go_out_as_they_are_given_and_no_others() -> None:
    request = await sent("POST", "/x", {"X-B": "2", "x-a": "1", "Content-Type": "a/b"}, b"{}")
    assert request.headers == ["X-B: 2", "x-a: 1", "Content-Type: a/b", "Content-Length: 2"]


async def test_repeated_headers_stay_repeated() -> None:
    request = await sent("GET", "/x", to_engine([("X-A", "1"), ("X-A", "2")], None), None)  # type: ignore[arg-type]
    assert request.headers[:2] == ["X-A: 1", "X-A: 2"]


async def test_bytes_that_are_no_text_go_out_as_they_came() -> None:
    request = await sent("GET", "/x", {"X-Odd": "\udcff\u00e9"}, None)
    assert request.headers == [b"X-Odd: \xff\xc3\xa9".decode("latin-1")]


@pytest.mark.parametrize(("method", "body", "line"), [("POST", None, True), ("POST", b"", True), ("GET", None, False)])
async def test_a_request_without_a_body_says_so_where_one_is_expected(
    method: str, body: bytes | None, line: bool
) -> None:
    assert (await sent(method, "/x", {}, body)).headers == ["Content-Length: 0"] * line


async def test_a_base_may_have_a_path_of_its_own() -> None:
    assert (await sent("GET", "/v1/models", {}, None, "/engine/v1/")).line == "GET /engine/v1/models HTTP/1.1"


@pytest.mark.parametrize("header", [{"X": "a\r\nY: b"}, {"X": "a\nY: b"}, {"X": "a\rb"}, {"X\r\nY": "a"}])
async def test_a_line_break_makes_no_header(header: dict[str, str]) -> None:
    async with socket_engine(always(EMPTY)) as engine, upstream_of(engine) as upstream:
        with pytest.raises(ValueError, match="line break"):
            await upstream.send("GET", "/x", header, None)
        with pytest.raises(ValueError, match="line break"):
            await upstream.send("GET", "/x HTTP/1.1\r\nY: b", {}, None)
        assert engine.opened == 0


async def test_a_user_and_a_password_in_the_url_are_sent() -> None:
    origin = Origin.of("http://me:p%40ss@host")
    assert b"\r\nAuthorization: Basic bWU6cEBzcw==\r\n" in origin.head("GET", "/", {}, None)
    given = origin.head("GET", "/", {"Authorization": "Bearer x"}, None)
    assert given.count(b"Authorization") == 1


URLS = {
    "http://host": ("host", 80, False, "host", ""),
    "https://host/": ("host", 443, True, "host", ""),
    "http://Host:80": ("host", 80, False, "host", ""),
    "http://host:8000/a/b/": ("host", 8000, False, "host:8000", "/a/b"),
    "http://[::1]:8000": ("::1", 8000, False, "[::1]:8000", ""),
    "https://[fd00::1]": ("fd00::1", 443, True, "[fd00::1]", ""),
    "http://schlüssel.example": ("xn--schlssel-95a.example", 80, False, "xn--schlssel-95a.example", ""),
}


@pytest.mark.parametrize("url", URLS)
def test_a_url_names_a_server(url: str) -> None:
    origin = Origin.of(url)
    assert (origin.host, origin.port, origin.secure, origin.authority, origin.prefix) == URLS[url]


@pytest.mark.parametrize(
    "url", ["http://", "http://:8000", "http://host:x", "http://host:99999", "http://[::1", "ftp://h"]
)
def test_a_url_that_names_none_is_refused(url: str) -> None:
    with pytest.raises(BadSettings, match="upstream"):
        Origin.of(url)


async def test_response_headers_keep_their_order_and_their_number() -> None:
    head = OK + b"X-B: 1\r\nx-a: 2\r\nX-B: 3\r\nContent-Length: 0\r\n\r\n"
    async with (
        socket_engine(always(head)) as engine,
        upstream_of(engine) as upstream,
        await upstream.send("GET", "/x", {}, None) as answer,
    ):
        assert list(answer.headers.items()) == [("X-B", "1"), ("x-a", "2"), ("X-B", "3"), ("Content-Length", "0")]
        assert answer.headers.getall("x-b") == ["1", "3"]


async def test_what_stands_behind_one_body_is_not_a_header_of_the_next_answer() -> None:
    answer = OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: 1\r\n\r\n"
    async with socket_engine(always(answer)) as engine, upstream_of(engine) as upstream:
        for _ in range(2):
            async with await upstream.send("GET", "/x", {}, None) as said:
                await said.read()
                assert list(said.headers.items()) == [("Transfer-Encoding", "chunked")]
        assert engine.opened == 1


async def test_a_redirect_is_not_followed() -> None:
    head = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n"
    async with socket_engine(always(head)) as engine, upstream_of(engine) as upstream:
        assert await upstream.ask("GET", "/x") == (307, b"")
        assert engine.opened == 1


async def test_the_answer_to_a_head_request_has_no_body() -> None:
    head = OK + b"Content-Length: 5\r\n\r\n"
    async with socket_engine(always(head)) as engine, upstream_of(engine) as upstream:
        for _ in range(2):
            assert await upstream.ask("HEAD", "/x") == (200, b"")


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address")
async def test_an_ipv6_address() -> None:
    async with socket_engine(always(EMPTY), host="::1") as engine, upstream_of(engine) as upstream:
        assert await upstream.ask("GET", "/x") == (200, b"")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1 that signs itself, with its key, made by openssl."""
    both = tmp_path / "localhost.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "-", "-out", "-"]
    try:
        made = subprocess.run(command, capture_output=True, check=True, env=os.environ | {"HOME": str(tmp_path)})
    except FileNotFoundError:
        pytest.skip("openssl is not installed: apt-get install openssl")
    both.write_bytes(made.stdout)
    return both


async def test_tls_to_an_engine_whose_certificate_is_trusted(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    body = b"x" * 300_000
    answer = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with socket_engine(always(answer), tls=tls) as engine, upstream_of(engine) as upstream:
        for _ in range(2):
            assert await upstream.ask("POST", "/x", b"y" * 600_000) == (200, body)
        assert engine.opened == 1


async def test_tls_to_an_engine_whose_certificate_is_not_trusted(certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    async with socket_engine(always(EMPTY), tls=tls) as engine, upstream_of(engine) as upstream:
        with pytest.raises(EngineUnreachable, match="certificate"):
            await upstream.ask("GET", "/x")

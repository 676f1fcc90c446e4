"""Requests of attackers and of careless harnesses: nothing gets past the record, and nothing stops it."""

import asyncio
import json
from typing import Any

import pytest

from polarproxy.model import CallStatus
from polarproxy.store.arrivals import OwnArrivals
from tests.fakes import Faults, always, compose
from tests.proxy.raw_engine import raw_engine, says, stream
from tests.proxy.rig import BODY, CHAT, Rig, Starter, until

STREAM = {**BODY, "stream": True}
JSON = json.dumps(BODY).encode()


async def raw(rig: Rig, target: str, headers: bytes = b"", body: bytes = JSON, method: str = "POST") -> int:
    """The status of a request whose target and headers are written as they are given."""
    host, port = rig.base.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode("latin-1") + headers + b"\r\n" + body)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1])


async def still_works(rig: Rig, session: str = "after") -> None:
    """After all that, an ordinary call is served and stored."""
    assert (await rig.ask(prefix=f"/s/{session}")).status == 200
    assert [captured.call.status for captured in rig.calls(session)] == [CallStatus.COMPLETED]
    assert rig.parts.writer.trouble is None


ESCAPES = [
    "/v1/../collective_rpc",
    "/v1/%2e%2e/collective_rpc",
    "/v1/.%2E/pause",
    "/v1/x/../../pause",
    "/v1/..%2fpause",
    "/v1/%2e%2e%2fpause",
    "/s/s1/v1/../../pause",
    "/s/s1/v1/%2e%2e/pause",
    "/v1/./models",
    "/pause",
    "/s/s1/pause",
    "/s/s1",
    "/s/",
    "//v1/models",
    "/s%2fs1/v1/models",
    "/V1/models",
]


@pytest.mark.parametrize("target", ESCAPES)
async def test_no_path_leads_to_the_engines_other_routes(start: Starter, target: str) -> None:
    rig = await start()
    for method in ("POST", "GET"):
        assert await raw(rig, target, method=method) in (400, 401, 404)
    assert {request.path for request in rig.engine.requests} <= {"/v1/models"} if "./" in target else True
    assert not any("pause" in request.path or "rpc" in request.path for request in rig.engine.requests)


CHAT_TARGETS = [
    "/s/s1/v1/chat/completions/",
    "/s/s1/v1/chat/completions//",
    "/s/s1/v1/chat%2Fcompletions",
    "/s/s1/v1/%63hat/completions",
    "/s/s%31/v1/chat/completions",
    "/s/s1/v1/chat/completions?",
    "/s/s1/v1/chat/completions?x=1#y",
]


@pytest.mark.parametrize("target", CHAT_TARGETS)
async def test_however_the_route_is_written_it_is_recorded(start: Starter, target: str) -> None:
    rig = await start()
    assert await raw(rig, target) == 200
    assert (await rig.call()).call.status is CallStatus.COMPLETED
    assert [request.path.split("?")[0] for request in rig.received] == [CHAT]


async def test_a_path_that_the_engine_decodes_is_sent_as_it_came(start: Starter) -> None:
    rig = await start()
    await raw(rig, "/v1/models/a%2Fb%3Fc%23d", method="GET", body=b"")
    assert rig.engine.requests[-1].path == "/v1/models/a%2Fb%3Fc%23d"


NO_SESSIONS = ["", "-a", ".hidden", "a" * 129, "a%20b", "a%2F..%2Fb", "%00", "%ff", "caf%C3%A9", "a;b", "a%0d%0aX:%201"]


@pytest.mark.parametrize("name", NO_SESSIONS)
async def test_a_name_that_can_name_no_session_is_refused(start: Starter, name: str) -> None:
    rig = await start()
    assert await raw(rig, f"/s/{name}/v1/chat/completions") in (400, 401, 404)
    assert rig.received == []
    assert rig.parts.repository.session_ids() == []


@pytest.mark.parametrize("value", [b"a b", b"../x", b"sk-polar-x", b"\xff", b"a" * 129, b"a,b"])
async def test_nor_does_a_header(start: Starter, value: bytes) -> None:
    rig = await start()
    assert await raw(rig, CHAT, b"x-polarproxy-session: " + value + b"\r\n") == 401
    assert rig.received == []


KEYS = [
    b"sk-polar-",
    b"sk-polar-s1",
    b"sk-polar-s1-",
    b"sk-polar-s1-\xff\xfe",
    "sk-polar-s1-é".encode(),
    b"sk-polar--x",
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
@pytest.mark.parametrize("header", [b"Authorization: Bearer ", b"x-api-key: ", b"x-goog-api-key: "])
async def test_a_key_that_is_none_is_refused_everywhere(start: Starter, key: bytes, header: bytes) -> None:
    rig = await start()
    line = header + key + b"\r\n"
    assert await raw(rig, CHAT, line) == 401
    assert await raw(rig, "/api/stats", line, method="GET", body=b"") == 403
    assert rig.received == []


async def test_a_key_of_odd_bytes_is_not_the_admin_key(start: Starter) -> None:
    rig = await start(admin_key="schlüssel")
    assert await raw(rig, "/api/stats", b"x-api-key: \xff\r\n", method="GET", body=b"") == 401
    line = "x-api-key: schlüssel\r\n".encode()
    assert await raw(rig, "/api/stats", line, method="GET", body=b"") == 200


async def test_bytes_in_a_header_that_are_no_text_cost_nothing(start: Starter) -> None:
    rig = await start()
    assert await raw(rig, "/s/s1" + CHAT, b"x-odd: \xff\xfe\r\nuser-agent: caf\xc3\xa9\r\n") == 200
    assert dict((await rig.call()).call.headers) == {"x-odd": "\ufffd\ufffd", "user-agent": "café"}
    await still_works(rig)


async def test_a_header_with_a_line_break_is_two_headers_or_none(start: Starter) -> None:
    rig = await start()
    await raw(rig, "/s/s1" + CHAT, b"x-a: 1\rx-b: 2\r\n")
    for request in rig.received:
        assert "\r" not in str(dict(request.headers))
    await still_works(rig)


BODIES: dict[str, bytes] = {
    "a limit that no column holds": b'{"model":"fake","messages":[{"role":"user","content":"x"}],"max_tokens":%s}'
    % (b"9" * 40),
    "as many choices": b'{"model":"fake","messages":[{"role":"user","content":"x"}],"n":%s}' % (b"9" * 40),
    "a seed of any length": b'{"model":"fake","messages":[{"role":"user","content":"x"}],"seed":%s}' % (b"9" * 40),
    "top_k of any length": b'{"model":"fake","messages":[{"role":"user","content":"x"}],"top_k":-%s}' % (b"9" * 40),
    "a temperature beyond floats": b'{"model":"fake","messages":[{"role":"user","content":"x"}],"temperature":1e999}',
    "messages that are none": b'{"model":"fake","messages":"hi"}',
    "messages of odd kinds": b'{"model":"fake","messages":[1,null,"x",[]]}',
    "half a character in a message": b'{"model":"fake","messages":[{"role":"user","content":"\\udfff"}]}',
    "no text in a message": b'{"model":"fake","messages":[{"role":"user","content":"\xff"}]}',
    "a zero byte in a name": b'{"model":"a\\u0000b","messages":[{"role":"user","content":"x"}]}',
    "flags that are none": b'{"messages":[{"role":"user","content":"x"}],"logprobs":"yes","return_token_ids":7}',
    "options that are none": b'{"model":"fake","messages":[{"role":"user","content":"x"}],"stream_options":5}',
    "a deep message": b'{"model":"fake","messages":[{"role":"user","content":%s}]}' % (b"[" * 900 + b"]" * 900),
}


TOO_LONG = ("a limit that no column holds", "as many choices", "top_k of any length")


@pytest.mark.parametrize("name", list(BODIES))
@pytest.mark.parametrize("prefix", ["/s/s1", ""], ids=["named", "unnamed"])
async def test_a_body_that_no_sdk_would_send_gets_the_engines_answer(start: Starter, name: str, prefix: str) -> None:
    """Here of an engine that answers everything: what it thinks of the body is its own business."""
    reply = b'{"id":"x","prompt_token_ids":[1],"choices":[{"index":0,"message":{"content":"x"},"token_ids":[2]}]}'
    async with raw_engine(says(reply)) as url:
        rig = await start(upstream=url)
        answer = await rig.ask(BODIES[name], prefix=prefix)
        assert (answer.status, answer.json["choices"][0]["message"]) == (200, {"content": "x"})
        await still_works(rig)


UNREADABLE: dict[str, bytes] = {
    "a very deep message": b'{"model":"fake","messages":[{"role":"user","content":%s}]}'
    % (b"[" * 100_000 + b"]" * 100_000),
    "a number that is none": b'{"model":"fake","messages":[{"role":"user","content":"x"}],"x":NaN}',
    "a byte order mark": b'\xef\xbb\xbf{"model":"fake","messages":[{"role":"user","content":"x"}]}',
    "UTF-16": '{"model":"fake","messages":[{"role":"user","content":"x"}]}'.encode("utf-16"),
}


@pytest.mark.parametrize("name", list(UNREADABLE))
async def test_what_cannot_be_recorded_is_not_answered(start: Starter, name: str) -> None:
    """An engine may read what we cannot; nobody gets to see what it samples then."""
    reply = b'{"id":"x","prompt_token_ids":[1],"choices":[{"index":0,"message":{"content":"x"},"token_ids":[2]}]}'
    async with raw_engine(says(reply)) as url:
        rig = await start(upstream=url)
        answer = await rig.ask(UNREADABLE[name])
        assert answer.status == 400
        assert "not a JSON object" in answer.error["message"]
        assert rig.parts.stats.unreadable == 1
        await still_works(rig)


async def test_half_a_character_in_chat_is_read_as_a_lenient_server_would(start: Starter) -> None:
    rig = await start()
    body = b'{"model":"fake","messages":[{"role":"user","content":"cut \\ud83d"}]}'
    assert (await rig.ask(body)).status == 200
    call = (await rig.call()).call
    assert call.request_body == body
    assert [loss.where for loss in call.losses] == ["body"]


async def test_a_stream_nobody_asked_for_is_a_stream(start: Starter) -> None:
    """Some engines take `"yes"` for true."""
    events = stream(
        b'{"choices":[{"index":0,"delta":{"role":"assistant"}}],"prompt_token_ids":[1]}',
        b'{"choices":[{"index":0,"delta":{"content":"x"},"token_ids":[2],"finish_reason":"stop"}]}',
    )
    async with raw_engine(says(events, "text/event-stream")) as url:
        rig = await start(upstream=url)
        answer = await rig.ask({**BODY, "stream": "yes"})
        assert answer.events[-1] == b"data: [DONE]"
        assert b'token_ids":[' not in answer.body
        (completion,) = (await rig.call()).call.completions
        assert list(completion.token_ids) == [2]


async def test_an_engine_that_ignores_n_does_not_hang_the_reply(start: Starter) -> None:
    event = b'{"choices":[{"index":0,"delta":{"content":"x"},"token_ids":[2],"finish_reason":"stop"}]}'
    async with raw_engine(says(stream(event), "text/event-stream")) as url:
        rig = await start(upstream=url)
        assert (await rig.ask({**STREAM, "n": 5})).events[-1] == b"data: [DONE]"
        assert (await rig.call()).call.status is CallStatus.COMPLETED


NO_CHUNKS: dict[str, bytes] = {
    "an index that is none": b'{"choices":[{"index":null,"delta":{"content":"x"},"token_ids":[1]}]}',
    "an index below 0": b'{"choices":[{"index":-1,"delta":{},"token_ids":[1]}]}',
    "an index of any length": b'{"choices":[{"index":%s,"delta":{"content":"x"},"token_ids":[1]}]}' % (b"9" * 40),
    "an index that no column holds": b'{"choices":[{"index":2147483648,"delta":{"content":"x"},"token_ids":[1]}]}',
    "more usage than can be": b'{"choices":[],"usage":{"prompt_tokens":%s,"completion_tokens":1}}' % (b"9" * 40),
    "no delta": b'{"choices":[{"index":0,"delta":null,"token_ids":[1]}]}',
    "a logprob that is none": b'{"choices":[{"index":0,"delta":{},"token_ids":[1],"logprobs":{"content":[{"logprob":"x"}]}}]}',
    "bytes that are none": b'{"choices":[{"index":0,"delta":{},"token_ids":[1],"logprobs":{"content":[%s]}}]}'
    % b'{"token":"x","logprob":-1,"bytes":[999]}',
}


async def test_an_integer_of_any_length_costs_at_most_its_own_call(start: Starter) -> None:
    async with raw_engine(says(b'{"choices":[]}')) as url:
        rig = await start(upstream=url)
        for name in TOO_LONG:
            await rig.ask(BODIES[name])
            await still_works(rig, name.replace(" ", "-"))


@pytest.mark.parametrize("name", NO_CHUNKS)
async def test_whatever_the_engine_sends_the_call_is_recorded(start: Starter, name: str) -> None:
    """How the client fares with such an engine is another matter."""
    async with raw_engine(says(stream(NO_CHUNKS[name]), "text/event-stream")) as url:
        rig = await start(upstream=url)
        await asyncio.gather(rig.ask({**STREAM, "include_reasoning": False}), return_exceptions=True)
        await rig.recorded(1)


@pytest.mark.parametrize("name", NO_CHUNKS)
@pytest.mark.parametrize(
    "asked", [{}, STREAM, {"include_reasoning": False}], ids=["whole", "cut up", "without reasoning"]
)
async def test_in_one_piece_too(start: Starter, name: str, asked: dict[str, Any]) -> None:
    reply = NO_CHUNKS[name].replace(b'"delta"', b'"message"')
    async with raw_engine(says(reply)) as url:
        rig = await start(upstream=url)
        answer = await rig.ask({**BODY, **asked})
        assert answer.status == 200 or answer.error["type"] == "UpstreamError"
        await rig.recorded(1)


async def test_a_client_that_reads_slowly_holds_nobody_up(start: Starter) -> None:
    rig = await start(always(compose("word " * 3000)))
    async with rig.asking(STREAM, prefix="/s/slow") as slow:
        await slow.content.readuntil(b"\n\n")
        answers = await asyncio.gather(*(rig.ask(prefix=f"/s/n{number}") for number in range(5)))
        assert [answer.status for answer in answers] == [200] * 5


async def test_half_a_request_leaves_nothing_behind(start: Starter) -> None:
    rig = await start()
    host, port = rig.base.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST /s/s1{CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{{".encode())
    await writer.drain()
    writer.close()
    await still_works(rig)
    assert rig.calls() == []


async def test_a_body_too_large_is_refused(start: Starter) -> None:
    rig = await start(max_body_mb=1)
    large: dict[str, Any] = {**BODY, "messages": [{"role": "user", "content": "x" * (2 << 20)}]}
    for target in ("/s/s1" + CHAT, "/v1/completions", "/api/sessions"):
        answer = await rig.send("POST", rig.base + target, json.dumps(large).encode())
        assert (answer.status, answer.error["type"]) == (413, "RequestTooLarge")
    assert rig.received == []
    await still_works(rig)


async def test_a_large_body_is_none_of_that(start: Starter) -> None:
    async with raw_engine(says(b'{"choices":[]}')) as url:
        rig = await start(upstream=url)
        body = json.dumps({**BODY, "messages": [{"role": "user", "content": "x" * (16 << 20)}]}).encode()
        assert (await rig.ask(body)).status == 200
        assert (await rig.call()).call.request_body == body


async def test_leaving_over_and_over_leaks_no_place(start: Starter) -> None:
    """The session is as free as before: nothing counts as under way for ever."""
    rig = await start(always(compose("one two"), faults=Faults(hold_after=1)))
    for _ in range(20):
        async with rig.asking(STREAM) as response:
            await response.content.readuntil(b"\n\n")
            response.close()
    await until(lambda: len(rig.calls()) == 20)
    arrivals = rig.parts.arrivals
    assert isinstance(arrivals, OwnArrivals)
    assert arrivals._live["s1"].under_way == 0
    assert [captured.call.ordinal for captured in rig.calls()] == list(range(20))

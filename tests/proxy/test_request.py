"""What reaches the engine is what the client sent, plus what is asked for on our behalf, and none of our keys."""

import gzip
import json
from typing import Any

import pytest

from polarproxy.model import CallStatus
from polarproxy.proxy.headers import query_to_engine, to_client, to_engine, to_record
from tests.proxy.rig import BODY, CHAT, IDS, Rig, Starter

MESSAGES = b'[{"role":"user","content":"caf\\u00e9 \xc3\xa9"}, {"role":"assistant", "tool_calls":[{"function":\n'
MESSAGES += (
    b'{"name":"f","arguments":"{\\"unit\\":\\"C\\", \\"n\\": 1.50, \\"e\\": 1e3}"}}]},{"role":"tool","content":"1"}]'
)
ODD = (
    b'{ "model":"fake",  "messages": %s , "odd_field": 1.50, "big": 12345678901234567890123, "u":"\\u00fc"}' % MESSAGES
)


def member(body: bytes, name: bytes) -> bytes:
    """The bytes of the last member of this name, up to what follows it in `ODD`."""
    return body.split(b'"' + name + b'":')[1]


async def test_the_clients_members_arrive_byte_for_byte(start: Starter) -> None:
    rig = await start()
    await rig.ask(ODD)
    sent = rig.received[0].body
    assert member(sent, b"messages").startswith(MESSAGES)
    assert b'"odd_field":1.50,' in sent
    assert b'"big":12345678901234567890123,' in sent
    assert b'"u":"\\u00fc",' in sent
    assert (await rig.call()).call.request_body == ODD


async def test_what_is_asked_for_besides(start: Starter) -> None:
    rig = await start()
    await rig.ask({**BODY, "temperature": 0.5, "include_reasoning": False})
    assert rig.received[0].json == {**BODY, "temperature": 0.5, **IDS}


async def test_what_the_client_asked_for_stays(start: Starter) -> None:
    rig = await start()
    own = {"logprobs": True, "top_logprobs": 5, "stream": True, "stream_options": {"include_usage": True, "x": 1}}
    await rig.ask({**BODY, **own})
    assert rig.received[0].json == {**BODY, **own, "return_token_ids": True}


async def test_of_members_named_twice_the_last_counts_as_for_the_engine(start: Starter) -> None:
    rig = await start()
    await rig.ask(
        b'{"model":"nope","stream":true,"messages":[{"role":"user","content":"hi"}],"model":"fake","stream":false}'
    )
    call = (await rig.call()).call
    assert (call.status, call.requested_model, call.streamed) == (CallStatus.COMPLETED, "fake", False)


async def test_a_forced_prompt_is_what_is_recorded(start: Starter) -> None:
    rig = await start()
    await rig.ask({**BODY, "kv_transfer_params": {"prompt_token_ids": [5, 6, 7]}})
    assert list((await rig.call()).call.prompt_token_ids or ()) == [5, 6, 7]


@pytest.mark.parametrize("space", [b"  \r\n\t ", b"\n\n"], ids=repr)
async def test_space_around_a_body_means_nothing(start: Starter, space: bytes) -> None:
    rig = await start()
    assert (await rig.ask(space + json.dumps(BODY).encode() + space)).status == 200
    assert (await rig.call()).call.status is CallStatus.COMPLETED


async def test_a_compressed_request_is_read(start: Starter) -> None:

    rig = await start()
    data = gzip.compress(json.dumps(BODY).encode())
    answer = await rig.send("POST", rig.base + "/s/s1/v1/chat/completions", data, {"Content-Encoding": "gzip"})
    assert answer.status == 200
    assert (await rig.call()).call.request_body == json.dumps(BODY).encode()


def key_of(rig: Rig, session: str = "s1") -> str:
    return rig.parts.signer.key(session)


CARRIERS: dict[str, Any] = {
    "Bearer": lambda key: {"Authorization": f"Bearer {key}"},
    "bearer": lambda key: {"authorization": f"bearer  {key}"},
    "x-api-key": lambda key: {"x-api-key": key},
    "x-goog-api-key": lambda key: {"X-Goog-Api-Key": key},
    "another header": lambda key: {"api-key": key, "x-forwarded-uri": f"/v1?key={key}"},
}


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("upstream_key", [None, "real"])
async def test_our_keys_never_reach_the_engine(start: Starter, carrier: str, upstream_key: str | None) -> None:
    rig = await start(upstream_key=upstream_key)
    await rig.ask(headers=CARRIERS[carrier](key_of(rig)) | {"x-polarproxy-session": "s1"})
    sent = rig.received[0].headers
    assert not any("sk-polar" in value for value in sent.values())
    assert "x-polarproxy-session" not in sent
    assert sent.get("Authorization") == (None if upstream_key is None else "Bearer real")


@pytest.mark.parametrize("query", ["key={}", "a=%26b&key={}&c=d", "k%65y={}", "other={}"])
async def test_nor_do_those_in_the_query(start: Starter, query: str) -> None:
    rig = await start()
    for path in ("/s/s1/v1/chat/completions", "/s/s1/v1/models"):
        method = "POST" if "chat" in path else "GET"
        await rig.send(method, f"{rig.base}{path}?{query.format(key_of(rig))}", json.dumps(BODY).encode())
    for request in rig.engine.requests:
        assert "sk-polar" not in request.path
    assert rig.received[0].path.removeprefix("/v1/chat/completions") in ("", "?a=%26b&c=d")


async def test_the_clients_own_key_is_passed_on(start: Starter) -> None:
    rig = await start()
    await rig.ask(headers={"Authorization": "Bearer mine"})
    assert rig.received[0].headers["Authorization"] == "Bearer mine"


async def test_the_engines_key_replaces_any_other(start: Starter) -> None:
    rig = await start(upstream_key="real")
    await rig.ask(headers={"Authorization": "Bearer mine", "x-api-key": "mine"})
    await rig.send("GET", rig.base + "/v1/nothing?key=mine&x=1", headers={"x-goog-api-key": "mine"})
    for request in rig.engine.requests:
        assert request.headers["Authorization"] == "Bearer real"
        assert "mine" not in str(request.headers)
    assert rig.engine.requests[-1].path == "/v1/nothing?x=1"


async def test_a_request_has_one_content_type(start: Starter) -> None:
    rig = await start()
    await rig.ask(headers={"content-type": "application/json; charset=utf-8"})
    assert rig.received[0].headers.getall("Content-Type") == ["application/json; charset=utf-8"]  # type: ignore[attr-defined]


async def test_the_record_keeps_what_tells_the_client_and_no_secret(start: Starter) -> None:
    rig = await start()
    key = key_of(rig)
    kept = {
        "user-agent": "codex",
        "session-id": "abc",
        "x-unknown": "1",
        "x-claude-code-session-id": "u",
        "originator": "o",
    }
    secrets = {
        "Authorization": f"Bearer {key}",
        "x-api-key": key,
        "Cookie": "sid=secret",
        "x-auth-token": "secret",
        "x-my-password": "secret",
        "x-forwarded-uri": f"/v1?key={key}",
        "Proxy-Authorization": "secret",
    }
    await rig.send(
        "POST", f"{rig.base}/s/{key}/v1/chat/completions?key={key}", json.dumps(BODY).encode(), kept | secrets
    )
    call = (await rig.call()).call
    assert dict(call.headers).items() >= kept.items()
    assert call.path == "/s/s1/v1/chat/completions"
    for table in ("calls", "sessions"):
        with rig.parts.repository._engine.connect() as connection:
            text = str(connection.exec_driver_sql(f"SELECT * FROM {table}").all())
        assert "secret" not in text
        assert "sk-polar" not in text


def test_headers_between_two_connections_stay_between_them() -> None:
    given = [("Connection", "close"), ("TE", "x"), ("Host", "h"), ("Accept-Encoding", "gzip"), ("A", "1"), ("A", "2")]
    assert list(to_engine(given, None).items()) == [("A", "1"), ("A", "2"), ("Accept-Encoding", "identity")]
    assert list(to_client({"Transfer-Encoding": "chunked", "Content-Length": "3", "B": "1"}).items()) == [("B", "1")]
    assert to_record([("Cookie", "c"), ("X-A", "1"), ("Accept-Language", "de")]) == (("x-a", "1"),)


def test_a_query_is_passed_on_as_it_was_sent() -> None:
    assert query_to_engine("", None) == ""
    assert query_to_engine("a=%26&b=%C3%BC&&c", None) == "?a=%26&b=%C3%BC&c"
    assert query_to_engine("key=own", None) == "?key=own"
    assert query_to_engine("key=own", "real") == ""
    assert query_to_engine("key=sk-polar-a-b&x=sk-pol%61r-c", None) == ""


async def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(start: Starter) -> None:
    rig = await start()
    url = rig.base + "/s/s1" + CHAT
    async with rig.http.post(url, json=BODY, expect100=True) as response:
        assert response.status == 200
    assert "Expect" not in rig.received[0].headers
    assert (await rig.call()).call.status is CallStatus.COMPLETED

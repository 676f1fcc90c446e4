"""Every fault does to a client what its name says, streamed and whole."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.fakes import FakeEngine, Faults, Reply, always, compose, in_order
from tests.fakes.transcript import chunks

REPLY = compose("Hello you.", reasoning="A greeting.")
BODY = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "return_token_ids": True, "logprobs": True}
TIMEOUT = aiohttp.ClientTimeout(total=10)
FORMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@asynccontextmanager
async def asked(
    faults: Faults, *, stream: bool = True, reply: Reply = REPLY
) -> AsyncIterator[tuple[FakeEngine, aiohttp.ClientResponse]]:
    async with (
        FakeEngine(always(reply, faults=faults)) as engine,
        aiohttp.ClientSession(timeout=TIMEOUT) as http,
        http.post(f"{engine.url}/v1/chat/completions", json={**BODY, "stream": stream}) as response,
    ):
        yield engine, response


async def body_of(faults: Faults, *, stream: bool = True, reply: Reply = REPLY) -> bytes:
    async with asked(faults, stream=stream, reply=reply) as (_, response):
        return await response.read()


async def choice_of(faults: Faults, reply: Reply = REPLY) -> dict[str, Any]:
    choice: dict[str, Any] = json.loads(await body_of(faults, stream=False, reply=reply))["choices"][0]
    return choice


async def test_an_early_end_is_a_proper_end_of_the_body() -> None:
    body = await body_of(Faults(end_after=2))
    assert len(list(chunks(body))) == 2
    assert b"[DONE]" not in body


@FORMS
@pytest.mark.parametrize("faults", [Faults(cut_after=1), Faults(reset_after=1)], ids=["cut", "reset"])
async def test_a_broken_connection_is_an_error_to_the_client(faults: Faults, stream: bool) -> None:
    async with asked(faults, stream=stream) as (engine, response):
        with pytest.raises(aiohttp.ClientError):
            await response.read()
        assert engine.disconnects == []


@FORMS
async def test_a_refused_request_gets_no_reply(stream: bool) -> None:
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await body_of(Faults(refuse=True), stream=stream)


@FORMS
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_status_comes_with_the_usual_error_object(status: int, stream: bool) -> None:
    async with asked(Faults(status=status, retry_after=7), stream=stream) as (_, response):
        error = (await response.json())["error"]
        assert (response.status, response.headers["Retry-After"], error["code"]) == (status, "7", status)


async def test_an_engine_that_dies_says_so_in_the_stream() -> None:
    body = await body_of(Faults(error_after=3))
    *before, error = chunks(body)
    assert len(before) == 3
    assert error == {
        "error": {
            "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
            "type": "InternalServerError",
            "param": None,
            "code": 500,
        }
    }
    assert body.endswith(b"data: [DONE]\n\n")


async def test_an_engine_that_dies_answers_500_when_not_streaming() -> None:
    async with asked(Faults(error_after=0), stream=False) as (_, response):
        assert (response.status, (await response.json())["error"]["type"]) == (500, "InternalServerError")


@FORMS
async def test_a_held_reply_goes_on_when_it_is_released(stream: bool) -> None:
    async with asked(Faults(hold_after=1), stream=stream) as (engine, response):
        first = await response.content.readany()
        engine.release()
        assert first + await response.read() == await body_of_twin(engine, stream=stream)


async def body_of_twin(engine: FakeEngine, *, stream: bool) -> bytes:
    """The same answer once more, with the first one's id."""
    async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
        headers = {"X-Request-Id": f"{1:016x}"}
        async with http.post(
            f"{engine.url}/v1/chat/completions", json={**BODY, "stream": stream}, headers=headers
        ) as response:
            return await response.read()


@FORMS
async def test_a_client_that_leaves_is_noticed(stream: bool) -> None:
    async with asked(Faults(hold_after=1), stream=stream) as (engine, response):
        await response.content.readany()
        response.close()
        await engine.until(lambda e: bool(e.disconnects))
        assert [(left.request, left.events) for left in engine.disconnects] == [(engine.requests[0], 1)]


@FORMS
async def test_odd_pieces_join_to_the_same_body(stream: bool) -> None:
    async with asked(Faults(chop=(1, 7, 500)), stream=stream) as (engine, response):
        assert await response.read() == await body_of_twin(engine, stream=stream)


async def test_several_steps_can_share_an_event() -> None:
    events = list(chunks(await body_of(Faults(steps_per_event=4))))
    ids = [event["choices"][0].get("token_ids", []) for event in events]
    assert max(map(len, ids)) == 4
    assert [token_id for part in ids for token_id in part] == REPLY.token_ids


async def test_ids_and_logprobs_can_be_missing_though_asked() -> None:
    faults = Faults(no_prompt_ids=True, no_token_ids=True, no_logprobs=True)
    reply = json.loads(await body_of(faults, stream=False))
    assert (reply["prompt_token_ids"], reply["choices"][0]["token_ids"], reply["choices"][0]["logprobs"]) == (None,) * 3
    head, *rest = chunks(await body_of(faults))
    assert head["prompt_token_ids"] is None
    assert all(event["choices"][0]["token_ids"] is None for event in rest)


@pytest.mark.parametrize(("faults", "ids", "logprobs"), [(Faults(drop_logprobs=3), 0, 3), (Faults(drop_ids=2), 2, 0)])
async def test_ids_and_logprobs_can_differ_in_number(faults: Faults, ids: int, logprobs: int) -> None:
    total = len(REPLY.tokens)
    whole = await choice_of(faults)
    streamed = [event["choices"][0] for event in chunks(await body_of(faults))]
    assert (len(whole["token_ids"]), len(whole["logprobs"]["content"])) == (total - ids, total - logprobs)
    assert sum(len(choice.get("token_ids", ())) for choice in streamed) == total - ids
    assert sum(len(choice["logprobs"]["content"]) for choice in streamed if choice["logprobs"]) == total - logprobs


async def test_logprobs_can_be_absent_floored_or_no_number() -> None:
    reply = REPLY.with_logprobs(None, -9999.0, float("nan"))
    body = await body_of(Faults(), reply=reply)
    entries = [event["choices"][0]["logprobs"]["content"][0] for event in list(chunks(body))[1:4]]
    assert "logprob" not in entries[0]
    assert entries[1]["logprob"] == -9999.0
    assert b'"logprob":NaN,' in body
    whole = (await choice_of(Faults(), reply))["logprobs"]["content"]
    assert [entry["logprob"] for entry in whole[:2]] == [-9999.0, -9999.0]


async def test_the_engine_keeps_what_it_received_byte_for_byte() -> None:
    body = b'{"model":"fake", "messages": [{"role":"user","content":"caf\\u00e9"}],"odd_field": 1.50}'
    async with FakeEngine(always(REPLY)) as engine, aiohttp.ClientSession(timeout=TIMEOUT) as http:
        headers = {"Content-Type": "application/json", "X-Request-Id": "abc"}
        async with http.post(f"{engine.url}/v1/chat/completions", data=body, headers=headers) as response:
            assert (await response.json())["id"] == "chatcmpl-abc"
        received = engine.requests[0]
        assert (received.body, received.path, received.headers["X-Request-Id"]) == (body, "/v1/chat/completions", "abc")


async def test_replies_come_in_order_and_start_again() -> None:
    found = list[str]()
    script = in_order(compose("one"), compose("two"))
    async with FakeEngine(script) as engine, aiohttp.ClientSession(timeout=TIMEOUT) as http:
        for _ in range(3):
            async with http.post(f"{engine.url}/v1/chat/completions", json=BODY) as response:
                found.append((await response.json())["choices"][0]["message"]["content"])
    assert found == ["one", "two", "one"]


async def test_the_wait_for_something_that_never_comes_ends() -> None:
    async with FakeEngine(always(REPLY)) as engine:
        with pytest.raises(TimeoutError):
            await engine.until(lambda e: bool(e.requests), seconds=0.05)

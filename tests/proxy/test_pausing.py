"""Generation is paused for new weights: requests wait, alive, and are stamped with the version of after."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from polarproxy.model import CallStatus
from polarproxy.proxy.exact.prompts import ExactPrompts
from polarproxy.store.arrivals import arrivals_of
from tests.fakes import Faults, always, compose
from tests.proxy.rig import BODY, Rig, Starter, until

STREAM = {**BODY, "stream": True}


async def state(rig: Rig) -> dict[str, object]:
    found: dict[str, object] = (await rig.control("GET", "/api/generation")).json
    return found


async def paused(rig: Rig) -> None:
    answer = await rig.control("POST", "/api/generation/pause")
    assert (answer.status, answer.json["paused"]) == (200, True)


def asked(rig: Rig) -> int:
    return sum(one.path == "/v1/chat/completions" for one in rig.engine.requests)


@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_requests_wait_and_go_on_under_the_new_version(start: Starter, body: dict[str, object]) -> None:
    rig = await start()
    assert (await state(rig))["paused"] is False
    await paused(rig)
    waiting = asyncio.create_task(rig.ask(body))
    await until(lambda: rig.parts.gate.waiting == 1)
    assert (await rig.control("POST", "/api/policy", {"version": 3})).status == 200
    assert (await state(rig))["waiting"] == 1
    assert asked(rig) == 0
    assert not waiting.done()
    assert (await rig.control("POST", "/api/generation/resume")).json["paused"] is False
    answer = await waiting
    assert answer.status == 200
    call = (await rig.call()).call
    assert (call.policy_version_min, call.policy_version_max, call.status) == (3, 3, CallStatus.COMPLETED)


async def test_a_stream_gets_signs_of_life(start: Starter) -> None:
    rig = await start(keepalive=0.05)
    await paused(rig)
    async with rig.asking(STREAM) as response:
        first = await response.content.readuntil(b"\n\n")
        assert (response.status, first) == (200, b": keep-alive\n\n")
        await rig.control("POST", "/api/generation/resume")
        rest = await response.content.read()
    assert rest.endswith(b"data: [DONE]\n\n")
    assert (await rig.call()).call.status is CallStatus.COMPLETED


async def test_the_wait_has_a_limit(start: Starter) -> None:
    rig = await start(pause_limit=0.1, keepalive=0.0)
    await paused(rig)
    for body in (BODY, STREAM):
        answer = await rig.ask(body)
        assert answer.status == 503
        assert "paused" in answer.error["message"]
        assert answer.headers["Retry-After"]
    assert asked(rig) == 0
    assert {found.call.status for found in await rig.recorded(2)} == {CallStatus.TIMEOUT}
    assert rig.parts.gate.waiting == 0


async def test_the_limit_is_told_in_a_stream_that_has_begun(start: Starter) -> None:
    rig = await start(pause_limit=0.3, keepalive=0.05)
    await paused(rig)
    said = {"model": "fake", "max_tokens": 5, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    got = b""
    async with rig.http.post(rig.base + "/s/s1/v1/messages", json=said) as response:
        assert response.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):  # noqa: PT012  (what came before it counts)
            while piece := await response.content.readany():
                got += piece
    assert b"event: ping" in got
    assert b"event: error" in got
    assert b"paused" in got
    with pytest.raises(aiohttp.ClientPayloadError):
        await rig.ask(STREAM)


async def test_an_engine_that_refuses_after_a_stream_has_begun(start: Starter) -> None:
    rig = await start(always(compose("x"), faults=Faults(status=400)), keepalive=0.05)
    await paused(rig)
    asking = asyncio.create_task(rig.ask(STREAM))
    await asyncio.sleep(0.15)
    await rig.control("POST", "/api/generation/resume")
    # What has begun can only break off: an end would look like one of the engine's.
    with pytest.raises(aiohttp.ClientPayloadError):
        await asking
    assert (await rig.call()).call.status is CallStatus.REJECTED


async def test_a_request_that_was_on_its_way_to_the_engine_waits_too(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exact prompt was being made when the pause came, which told that nothing was with the engines."""
    make, probed = ExactPrompts.body, list[int]()

    async def make_while_pausing(self: ExactPrompts, *call: Any) -> bytes | None:
        made = await make(self, *call)
        await paused(rig)
        probed.append(asked(rig))
        return made

    monkeypatch.setattr(ExactPrompts, "body", make_while_pausing)
    rig = await start(prompts="exact")
    asking = asyncio.create_task(rig.ask())
    await until(lambda: rig.parts.gate.waiting == 1)
    assert ([asked(rig)], (await state(rig))["in_flight"]) == (probed, 0)
    assert (await rig.control("POST", "/api/policy", {"version": 3})).status == 200
    await rig.control("POST", "/api/generation/resume")
    assert (await asking).status == 200
    call = (await rig.call()).call
    assert (call.policy_version_min, call.policy_version_max) == (3, 3)


async def test_a_client_that_leaves_meanwhile(start: Starter) -> None:
    rig = await start()
    await paused(rig)
    asking = asyncio.create_task(rig.ask())
    await until(lambda: rig.parts.gate.waiting == 1)
    asking.cancel()
    await until(lambda: rig.parts.gate.waiting == 0)
    assert (await rig.call()).call.status is CallStatus.ABORTED
    assert asked(rig) == 0


async def test_a_pause_waits_for_calls_that_are_under_way(start: Starter) -> None:
    rig = await start(always(compose("x"), faults=Faults(hold_after=1)))
    asking = asyncio.create_task(rig.ask())
    await rig.engine.until(lambda engine: asked(rig) == 1)
    short = await rig.control("POST", "/api/generation/pause", {"wait_s": 0.1})
    assert short.json["in_flight"] == 1
    pausing = asyncio.create_task(rig.control("POST", "/api/generation/pause", {"wait_s": 20}))
    rig.engine.release()
    assert (await pausing).json["in_flight"] == 0
    assert (await asking).status == 200


@pytest.mark.parametrize("body", [b"[]", b'{"wait_s": -1}', b'{"wait": 1}', b"\xff"])
async def test_what_is_no_pause(start: Starter, body: bytes) -> None:
    rig = await start()
    assert (await rig.control("POST", "/api/generation/pause", body)).status == 400
    assert (await state(rig))["paused"] is False


async def test_forced_sampling(start: Starter) -> None:
    rig = await start()
    wanted = {"session_id": "f", "sampling": {"temperature": 0.7, "max_tokens": 9, "top_k": 40}}
    assert (await rig.control("POST", "/api/sessions", wanted)).status == 201
    body = {**BODY, "temperature": 0.0, "max_completion_tokens": 100, "top_k": 40}
    assert (await rig.ask(body, "/s/f")).status == 200
    sent = json.loads(rig.engine.requests[-1].body)
    assert (sent["temperature"], sent["max_tokens"], sent["top_k"]) == (0.7, 9, 40)
    assert "max_completion_tokens" not in sent
    call = (await rig.call("f")).call
    assert (call.sampling.temperature, call.sampling.max_tokens, call.sampling.top_k) == (0.7, 9, 40)
    assert [loss.where for loss in call.losses] == ["temperature", "max_completion_tokens"]
    assert json.loads(call.request_body) == body
    # As after a restart, and in another dialect.
    await rig.recorded(1, "f")
    rig.parts.arrivals = arrivals_of(rig.parts.repository._engine, rig.parts.repository, 5.0)
    said = {"model": "fake", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    answer = await rig.send("POST", rig.base + "/s/f/v1/messages", json.dumps(said).encode())
    assert answer.status == 200
    assert json.loads(rig.engine.requests[-1].body)["temperature"] == 0.7
    free = await rig.ask(body, "/s/free")
    assert free.status == 200
    assert json.loads(rig.engine.requests[-1].body)["temperature"] == 0.0


async def test_sampling_that_is_none(start: Starter) -> None:
    rig = await start()
    for wrong in ({"heat": 1}, {"n": 2}, {"temperature": "hot"}, {"temperature": None}):
        answer = await rig.control("POST", "/api/sessions", {"sampling": wrong})
        assert answer.status == 400

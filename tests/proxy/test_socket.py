"""The WebSocket transport of the Responses API: every turn is a call like any other."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from polarproxy.model import CallStatus, Dialect
from tests.fakes import Faults, Script, Tool, Turn, always, compose, in_order
from tests.proxy.rig import Rig, Starter

HI: dict[str, Any] = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
CREATE: dict[str, Any] = {"type": "response.create", "model": "fake", "input": [HI], "store": False}


@asynccontextmanager
async def socket(rig: Rig, prefix: str = "/s/s1") -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with rig.http.ws_connect(rig.base + prefix + "/v1/responses") as connected:
        yield connected


async def turn(connected: aiohttp.ClientWebSocketResponse, message: dict[str, Any]) -> list[dict[str, Any]]:
    """The frames of one response."""
    await connected.send_str(json.dumps(message))
    frames: list[dict[str, Any]] = []
    while not frames or frames[-1]["type"] not in ("response.completed", "response.failed", "error"):
        frames.append(json.loads((await connected.receive(timeout=20)).data))
    return frames


async def test_turns_of_one_socket_continue_each_other(start: Starter) -> None:
    rig = await start(in_order(compose(tools=[Tool("weather", '{"city": "Rome"}')]), compose("Sunny.")))
    async with socket(rig) as connected:
        first = await turn(connected, CREATE)
        assert [frame["sequence_number"] for frame in first] == list(range(len(first)))
        response = first[-1]["response"]
        (call,) = [item for item in response["output"] if item["type"] == "function_call"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
        second = await turn(connected, CREATE | {"previous_response_id": response["id"], "input": [output]})
    assert second[-1]["response"]["output"][0]["content"][0]["text"] == "Sunny."
    asked = json.loads(rig.received[1].body)["messages"]
    assert [message["role"] for message in asked] == ["user", "assistant", "tool"]
    assert asked[1]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}
    calls = [captured.call for captured in await rig.recorded(2)]
    assert [(one.dialect, one.streamed, one.status) for one in calls] == [
        (Dialect.RESPONSES, True, CallStatus.COMPLETED)
    ] * 2


async def test_a_prewarm_is_answered_without_the_engine_and_can_be_continued(start: Starter) -> None:
    rig = await start(always(compose("Hello.")))
    system = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}
    async with socket(rig) as connected:
        warm = await turn(connected, CREATE | {"generate": False, "input": [system]})
        assert warm[-1]["response"]["output"] == []
        assert rig.received == []
        assert rig.calls() == []
        await turn(connected, CREATE | {"previous_response_id": warm[-1]["response"]["id"]})
    asked = json.loads(rig.received[0].body)["messages"]
    assert [message["role"] for message in asked] == ["system", "user"]
    assert len(await rig.recorded(1)) == 1


async def test_a_message_carries_headers_of_its_own(start: Starter) -> None:
    """Codex opens one socket for many requests, and says of each message what it would say in headers."""
    rig = await start(always(compose("Hello.")))
    opened = {"thread-id": "t1", "x-codex-window-id": "t1:0"}
    inside = {"x-codex-window-id": "t1:1", "x-codex-turn-metadata": "{}", "thread_id": "t9", "x-api-key": "k", "x-n": 1}
    async with rig.http.ws_connect(rig.base + "/s/s1/v1/responses", headers=opened) as connected:
        await turn(connected, CREATE | {"client_metadata": inside})
        await turn(connected, CREATE | {"client_metadata": "none"})
    recorded = [captured.call.headers for captured in await rig.recorded(2)]
    assert all(len({name for name, _ in headers}) == len(headers) for headers in recorded)
    first, second = map(dict, recorded)
    kept = {"thread-id": "t1", "x-codex-window-id": "t1:1", "x-codex-turn-metadata": "{}"}
    assert {name: value for name, value in first.items() if name in {*opened, *inside}} == kept
    assert {name: value for name, value in second.items() if name in {*opened, *inside}} == opened


async def test_what_is_not_understood_is_an_error_and_the_socket_lives_on(start: Starter) -> None:
    rig = await start(always(compose("Hello.")))
    async with socket(rig) as connected:
        for message in ({"type": "response.cancel"}, CREATE | {"previous_response_id": "resp_none"}, {"x": 1}):
            (frame,) = await turn(connected, message)
            assert (frame["type"], frame["status"] // 100) == ("error", 4)
            assert frame["error"]["message"]
        assert (await turn(connected, CREATE))[-1]["type"] == "response.completed"


async def test_an_error_of_the_engine_is_a_frame(start: Starter) -> None:
    rig = await start(always(compose("Hello."), faults=Faults(status=429, retry_after=7)))
    async with socket(rig) as connected:
        (frame,) = await turn(connected, CREATE)
    assert (frame["type"], frame["status"]) == ("error", 429)
    assert (await rig.call()).call.status is CallStatus.REJECTED


async def test_a_reply_that_breaks_off_fails_and_closes_the_socket(start: Starter) -> None:
    rig = await start(Script((Turn((compose("one two three"),), Faults(cut_after=4)),)))
    async with socket(rig) as connected:
        frames = await turn(connected, CREATE)
        assert frames[-1]["type"] == "response.failed"
        closing = await connected.receive(timeout=20)
        assert closing.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
    assert (await rig.call()).call.status is CallStatus.ENGINE_ERROR


async def test_a_client_that_leaves_in_mid_turn_frees_the_engine(start: Starter) -> None:
    rig = await start(Script((Turn((compose("one two three"),), Faults(hold_after=3)),)))
    async with socket(rig) as connected:
        await connected.send_str(json.dumps(CREATE))
        while "output_text.delta" not in (await connected.receive(timeout=20)).data:
            pass
    await rig.engine.until(lambda engine: bool(engine.disconnects))
    captured = await rig.call()
    assert (captured.call.status, captured.delivered) == (CallStatus.ABORTED, False)


async def test_messages_that_come_at_once_are_answered_in_turn(start: Starter) -> None:
    rig = await start(in_order(compose("one"), compose("two")))
    async with socket(rig) as connected:
        for _ in range(2):
            await connected.send_str(json.dumps(CREATE))
        said: list[str] = []
        while len(said) < 2:
            frame = json.loads((await connected.receive(timeout=20)).data)
            if frame["type"] == "response.completed":
                said.append(frame["response"]["output"][0]["content"][0]["text"])
    assert said == ["one", "two"]


async def test_switched_off_it_sends_clients_to_post(start: Starter) -> None:
    rig = await start(websocket=False)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with socket(rig):
            pass
    assert refused.value.status == 426


async def test_a_socket_needs_a_key_where_keys_are_required(start: Starter) -> None:
    rig = await start(auth="required", admin_key="admin")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with socket(rig):
            pass
    assert refused.value.status == 401


async def test_get_without_an_upgrade_says_what_to_do(start: Starter) -> None:
    rig = await start()
    answer = await rig.send("GET", rig.base + "/v1/responses")
    assert (answer.status, "POST" in answer.error["message"]) == (405, True)

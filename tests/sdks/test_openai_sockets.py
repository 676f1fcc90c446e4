"""The OpenAI SDK's WebSocket: turns that are not stored, several streams on one socket, errors, and connecting again."""

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.lib.responses_websocket import (
    AsyncResponsesWebSocketSession,
    ResponsesWebSocketError,
    ResponsesWebSocketLimits,
)
from openai.types.responses import Response
from openai.types.websocket_reconnection import ReconnectingEvent
from websockets.exceptions import InvalidStatus

from polarproxy.model import CallStatus, Dialect
from tests.fakes import Faults, Received, Script, Turn, always, compose, in_order
from tests.proxy.rig import Starter
from tests.sdks.record import recorded
from tests.sdks.strict import valid
from tests.sdks.test_openai_conversations import ASKED, BOTH, FINAL, SETTINGS, by_previous_id, check_both_turns
from tests.sdks.ways_openai import awaited, in_thread, socket_turn

LIMITS = ResponsesWebSocketLimits(
    max_lanes=4, max_events_per_lane=500, max_events=2000, max_bytes_per_lane=1 << 22, max_bytes=1 << 23
)


async def test_turns_that_are_not_stored(start: Starter) -> None:
    rig = await start(in_order(BOTH, FINAL))

    async def use(client: AsyncOpenAI) -> Response:
        async with client.responses.connect() as socket:
            ready = await socket_turn(socket, input=[], generate=False, store=False, **SETTINGS)
            assert (ready.status, ready.output) == ("completed", [])
            first = await socket_turn(socket, input=[ASKED], previous_response_id=ready.id, store=False, **SETTINGS)
            return await socket_turn(socket, **by_previous_id(first), store=False, **SETTINGS)

    last = await awaited(rig, use)
    await check_both_turns(rig, last)
    with pytest.raises(openai.NotFoundError):
        await in_thread(rig, lambda client: client.responses.retrieve(last.id))


async def test_streams_side_by_side(start: Starter) -> None:
    """Each stream is a conversation that goes on from its own latest response."""

    def answered(received: Received) -> Turn:
        asked = [message["content"] for message in received.json["messages"] if message["role"] == "user"]
        return Turn((compose(" then ".join(asked)),))

    rig, found = await start(answered), dict[str, str]()

    async def use(client: AsyncOpenAI) -> None:
        async with (
            client.responses.connect() as connection,
            AsyncResponsesWebSocketSession(connection, limits=LIMITS) as session,
        ):
            lanes = {name: session.lane(name) for name in ("left", "right")}
            previous: dict[str, str | None] = dict.fromkeys(lanes)
            for turn in ("one", "two", "three"):
                for name, lane in lanes.items():
                    ask: Any = {"type": "response.create", "model": "fake", "input": f"{name} {turn}", "store": False}
                    await lane.send(ask | {"previous_response_id": previous[name]})
                for name, lane in lanes.items():
                    response = await lane.get_final_response()
                    previous[name], found[name] = response.id, response.output_text

    await awaited(rig, use)
    assert found == {name: f"{name} one then {name} two then {name} three" for name in ("left", "right")}
    parts = ("{0} one", " then {0} two", " then {0} three")
    said = ["".join(parts[: turn + 1]).format(name) for turn in range(3) for name in found]
    await recorded(rig, Dialect.RESPONSES, *(compose(text) for text in said))


async def test_an_error_on_a_stream_leaves_the_socket_as_it_is(start: Starter) -> None:
    rig = await start(Script((Turn((), Faults(status=429, retry_after=7)), Turn((FINAL,)))))
    ask: Any = {"type": "response.create", "model": "fake", "input": "hi"}

    async def use(client: AsyncOpenAI) -> Response:
        async with (
            client.responses.connect() as connection,
            AsyncResponsesWebSocketSession(connection, limits=LIMITS) as session,
        ):
            lane = session.lane("one")
            await lane.send(ask)
            with pytest.raises(ResponsesWebSocketError) as refused:
                await lane.get_final_response()
            event: Any = valid(refused.value.event, known=frozenset({"headers"}))
            assert (event.status, event.error.code, event.stream_id) == (429, "rate_limit_exceeded", "one")
            assert event.headers == {"retry-after": "7"}
            await lane.send(ask)
            return await lane.get_final_response()

    assert (await awaited(rig, use)).output_text == "Sun in both."
    await recorded(rig, Dialect.RESPONSES, None, FINAL)


async def test_a_reply_that_breaks_off_closes_the_socket_and_the_client_connects_again(start: Starter) -> None:
    rig = await start(Script((Turn((FINAL,), Faults(cut_after=8)), Turn((FINAL,)))))
    codes = list[int]()
    request: Any = {"model": "fake", "input": "hi"}

    def use(client: OpenAI) -> list[Response]:
        def again(event: ReconnectingEvent) -> None:
            codes.append(event.close_code)
            socket.response.create(**request)

        ends = list[Response]()
        with client.responses.connect(on_reconnecting=again, initial_delay=0.01) as socket:
            socket.response.create(**request)
            for event in socket:
                if event.type in ("response.failed", "response.completed"):
                    ends.append(event.response)
                if event.type == "response.completed":
                    break
        return ends

    failed, completed = await in_thread(rig, use)
    assert (failed.status, completed.status, completed.output_text) == ("failed", "completed", "Sun in both.")
    assert failed.error is not None
    assert (failed.error.code, codes) == ("server_error", [1011])
    lost, whole = [captured.call for captured in await rig.recorded(2)]
    assert (lost.status, whole.status) == (CallStatus.ENGINE_ERROR, CallStatus.COMPLETED)
    kept = list(lost.completions[0].token_ids)
    assert kept == FINAL.token_ids[: len(kept)] != []


async def test_a_socket_that_is_switched_off(start: Starter) -> None:
    rig = await start(always(FINAL), websocket=False)

    async def use(client: AsyncOpenAI) -> None:
        async with client.responses.connect():
            raise AssertionError("connected")

    with pytest.raises(InvalidStatus, match="426"):
        await awaited(rig, use)
    assert rig.calls() == []


async def test_a_socket_without_a_key(start: Starter) -> None:
    rig = await start(always(FINAL), auth="required")

    async def use(client: AsyncOpenAI) -> Response:
        async with client.responses.connect() as socket:
            return await socket_turn(socket, model="fake", input="hi")

    with pytest.raises(InvalidStatus, match="401"):
        await awaited(rig, use)
    keyed = {"base_url": f"{rig.base}/v1", "api_key": rig.parts.signer.key("s1")}
    assert (await awaited(rig, use, **keyed)).output_text == "Sun in both."
    await recorded(rig, Dialect.RESPONSES, FINAL)

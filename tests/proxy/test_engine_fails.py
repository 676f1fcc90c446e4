"""What goes wrong at the engine reaches the client as the dialect's own error, and the partial call is recorded."""

import contextlib
import json
import socket
from typing import Any

import aiohttp
import pytest

from polarproxy.model import CallStatus
from polarproxy.trajectory.branches import build_trajectory
from tests.fakes import Faults, Script, Turn, always, compose
from tests.proxy.raw_engine import raw_engine, says
from tests.proxy.rig import BODY, Answer, Rig, Starter
from tests.proxy.speak import QUESTIONS, Question

REPLY = compose("one two three four")
STREAM = {**BODY, "stream": True}
FORMS = pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])


def sampled(rig_call: Any) -> list[int]:
    (completion,) = rig_call.completions
    return list(completion.token_ids)


@FORMS
@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
async def test_a_status_is_passed_on_word_for_word(start: Starter, body: dict[str, Any], status: int) -> None:
    rig = await start(always(REPLY, faults=Faults(status=status, retry_after=7)))
    direct, proxied = await rig.ask_engine(body), await rig.ask(body)
    assert (proxied.status, proxied.body) == (direct.status, direct.body)
    assert proxied.headers["Retry-After"] == "7"
    call = (await rig.call()).call
    assert call.status is (CallStatus.REJECTED if status < 500 else CallStatus.ENGINE_ERROR)
    assert (call.http_status, call.completions) == (status, ())
    assert f"scripted fault {status}" in (call.error or "")


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
async def test_a_prompt_too_long_is_refused_in_the_words_that_harnesses_know(
    start: Starter, question: Question
) -> None:
    rig = await start()
    body = json.dumps(question.body).replace('"hi"', json.dumps("word " * 40_000))
    json_type = {"Content-Type": "application/json"}
    answer = await rig.send("POST", f"{rig.base}/s/s1{question.path}", body.encode(), json_type)
    assert answer.status == 400
    assert b"This model's maximum context length is 32768 tokens. However," in answer.body
    call = (await rig.call()).call
    assert (call.status, call.completions) == (CallStatus.REJECTED, ())


async def broken_off(rig: Rig) -> bytes:
    """The bytes of a stream that does not end as it should."""
    seen = bytearray()
    async with rig.asking(STREAM) as response:
        try:
            async for piece in response.content.iter_any():
                seen += piece
        except aiohttp.ClientError:
            return bytes(seen)
    raise AssertionError("the stream ended as if it were whole")


CUTS = {"cut": Faults(cut_after=4), "reset": Faults(reset_after=4), "ended without an end": Faults(end_after=4)}


@pytest.mark.parametrize("faults", CUTS.values(), ids=CUTS)
async def test_a_stream_that_is_cut_is_cut_for_the_client_too(start: Starter, faults: Faults) -> None:
    """And nothing is put in: harnesses ask again after a reset, and some give up after an error event."""
    rig = await start(always(REPLY, faults=faults))
    seen = await broken_off(rig)
    *events, rest = seen.split(b"\n\n")
    assert (len(events), rest) == (4, b"")
    assert b"error" not in seen
    assert b"[DONE]" not in seen
    captured = await rig.call()
    assert (captured.call.status, captured.delivered) == (CallStatus.ENGINE_ERROR, False)
    assert sampled(captured.call) == REPLY.token_ids[:3]


@pytest.mark.parametrize("question", [question for question in QUESTIONS if question.streamed], ids=str)
async def test_a_stream_that_breaks_off_in_its_reasoning_is_no_answer(start: Starter, question: Question) -> None:
    """What the client was shown of it is nothing that its SDK could take for a reply; it asks again."""
    thought = compose("Done.", reasoning="They want to know what lies in there, so I look first.")
    rig = await start(always(thought, faults=Faults(cut_after=6)))
    seen = bytearray()
    with contextlib.suppress(aiohttp.ClientError):
        async with rig.http.post(f"{rig.base}/s/s1{question.path}", json=question.body) as response:
            async for piece in response.content.iter_any():
                seen += piece
    assert question.ends not in seen
    captured = await rig.call()
    assert (captured.call.status, captured.delivered) == (CallStatus.ENGINE_ERROR, False)
    assert 0 < len(sampled(captured.call)) < len(thought.token_ids)
    assert build_trajectory("s1", [captured]).left_out_by_reason() == {"failed": 1}


# The role, every step, and `[DONE]`.
AFTER_ALL = (Faults(cut_after=len(REPLY.steps) + 2), Faults(reset_after=len(REPLY.steps) + 2))


@pytest.mark.parametrize("faults", AFTER_ALL, ids=["cut", "reset"])
async def test_what_comes_after_the_last_event_is_nobodys_concern(
    start: Starter, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    rig = await start(always(REPLY, faults=faults))
    for session in ("a", "b"):
        answer = await rig.ask(STREAM, prefix=f"/s/{session}")
        assert answer.events[-1] == b"data: [DONE]"
        assert (await rig.delivered(session)).call.status is CallStatus.COMPLETED
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("faults", [Faults(cut_after=1), Faults(reset_after=1)], ids=["cut", "reset"])
async def test_a_whole_reply_that_is_cut_is_a_bad_gateway(start: Starter, faults: Faults) -> None:
    rig = await start(always(REPLY, faults=faults))
    answer = await rig.ask()
    assert (answer.status, answer.error["type"]) == (502, "UpstreamError")
    call = (await rig.call()).call
    assert (call.status, call.http_status, call.completions) == (CallStatus.ENGINE_ERROR, 200, ())


@FORMS
async def test_an_engine_that_hangs_up_before_its_answer(start: Starter, body: dict[str, Any]) -> None:
    rig = await start(always(REPLY, faults=Faults(refuse=True)))
    answer = await rig.ask(body)
    assert answer.status == 502
    assert (await rig.call()).call.status is CallStatus.ENGINE_ERROR


@FORMS
async def test_an_engine_that_is_not_there(start: Starter, body: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    rig = await start(upstream=f"http://127.0.0.1:{port}")
    answer = await rig.ask(body)
    assert (answer.status, answer.error["type"]) == (502, "UpstreamError")
    call = (await rig.call()).call
    assert (call.status, call.http_status, call.engine) == (CallStatus.ENGINE_ERROR, None, "vllm")
    assert call.request_body == json.dumps(body).encode()


async def test_an_error_in_the_stream_reaches_the_client_as_it_is(start: Starter) -> None:
    rig = await start(always(REPLY, faults=Faults(error_after=3)))
    direct, proxied = await rig.ask_engine(STREAM), await rig.ask(STREAM)
    assert proxied.events[-2:] == direct.events[-2:]
    assert json.loads(proxied.events[-2].removeprefix(b"data: "))["error"]["code"] == 500
    assert proxied.events[-1] == b"data: [DONE]"
    call = (await rig.call()).call
    assert call.status is CallStatus.ENGINE_ERROR
    assert "EngineCore encountered an issue" in (call.error or "")
    assert sampled(call) == REPLY.token_ids[:2]


async def test_an_engine_that_dies_on_a_whole_reply(start: Starter) -> None:
    rig = await start(always(REPLY, faults=Faults(error_after=0)))
    direct, proxied = await rig.ask_engine(), await rig.ask()
    assert (proxied.status, proxied.body) == (500, direct.body)
    assert (await rig.call()).call.status is CallStatus.ENGINE_ERROR


SILENCES = {"from the start": Faults(first_byte_delay=60), "in the middle": Faults(hold_after=1)}


@pytest.mark.parametrize("faults", SILENCES.values(), ids=SILENCES)
async def test_silence_ends_a_whole_reply_with_a_timeout(start: Starter, faults: Faults) -> None:
    rig = await start(always(REPLY, faults=faults), read_timeout=0.3)
    answer = await rig.ask()
    assert (answer.status, answer.error["type"]) == (504, "UpstreamTimeout")
    call = (await rig.call()).call
    assert (call.status, call.completions) == (CallStatus.TIMEOUT, ())
    await rig.engine.until(lambda engine: bool(engine.disconnects))


async def test_silence_cuts_a_stream(start: Starter) -> None:
    rig = await start(always(REPLY, faults=Faults(hold_after=4)), read_timeout=0.3)
    seen = await broken_off(rig)
    assert seen.count(b"\n\n") == 4
    call = (await rig.call()).call
    assert call.status is CallStatus.TIMEOUT
    assert sampled(call) == REPLY.token_ids[:3]
    await rig.engine.until(lambda engine: bool(engine.disconnects))


UNREADABLE = {
    "no JSON": b"<html>busy</html>",
    "half a JSON": b'{"id": "x", "choices": [{"ind',
    "no object": b"[1]",
    "no choices": b'{"id": "x"}',
    "choices that are none": b'{"choices": 5}',
    "nothing": b"",
}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_a_reply_that_cannot_be_read_is_passed_on_and_marked(start: Starter, name: str) -> None:
    async with raw_engine(says(UNREADABLE[name])) as url:
        rig = await start(upstream=url)
        answer = await rig.ask()
    assert (answer.status, answer.body) == (200, UNREADABLE[name])
    call = (await rig.call()).call
    assert (call.status, call.completions) == (CallStatus.ENGINE_ERROR, ())
    assert call.error


async def test_the_next_call_is_served_as_if_nothing_had_happened(start: Starter) -> None:
    """After every fault in turn, on the same proxy."""
    faults = [
        Faults(cut_after=2),
        Faults(reset_after=2),
        Faults(refuse=True),
        Faults(status=500),
        Faults(error_after=1),
    ]
    turns: list[Turn] = []
    for fault in faults:
        # A request that the engine hung up on is tried once more.
        turns += [Turn((REPLY,), fault)] * (2 if fault.refuse else 1) + [Turn((REPLY,))]
    rig = await start(Script(tuple(turns)))
    for _ in faults:
        await _quietly(rig)
        good: Answer = await rig.ask(STREAM)
        assert good.body.endswith(b"[DONE]\n\n")
    calls = [captured.call for captured in await rig.recorded(2 * len(faults))]
    assert [call.status for call in calls] == [CallStatus.ENGINE_ERROR, CallStatus.COMPLETED] * len(faults)
    assert [call.ordinal for call in calls] == list(range(2 * len(faults)))


async def _quietly(rig: Rig) -> None:
    with contextlib.suppress(aiohttp.ClientError):
        await rig.ask(STREAM)

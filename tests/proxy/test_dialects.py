"""Whatever the dialect: the same call, the same tokens, the same promises."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from polarproxy.model import CallStatus, Dialect, TokenSource
from tests.fakes import Faults, Tool, always, compose
from tests.proxy.raw_engine import raw_engine, says
from tests.proxy.rig import Answer, Rig, Starter, _encoded, until
from tests.proxy.speak import QUESTIONS, STREAMED, TRANSLATED, Question, message_of, text_of
from tests.proxy.test_streaming import Gate, gate, reached

__all__ = ["gate"]

REPLY = compose("X Y Z Q")
JSON = {"Content-Type": "application/json"}


async def ask(rig: Rig, question: Question, headers: dict[str, str] | None = None, prefix: str = "/s/s1") -> Answer:
    return await rig.send("POST", rig.base + prefix + question.path, _encoded(question.body), JSON | (headers or {}))


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
async def test_the_record_is_the_same_in_every_dialect(start: Starter, question: Question) -> None:
    rig = await start(always(REPLY))
    answer = await ask(rig, question)
    assert (answer.status, text_of(question, answer.body)) == (200, "X Y Z Q")
    captured = await rig.delivered()
    call = captured.call
    assert (call.dialect, call.streamed, call.status) == (question.dialect, question.streamed, CallStatus.COMPLETED)
    assert call.token_source is TokenSource.ENGINE
    (completion,) = call.completions
    assert list(completion.token_ids) == REPLY.token_ids
    assert completion.logprobs is not None
    assert list(completion.logprobs) == REPLY.logprobs
    assert call.prompt_token_ids is not None
    assert json.loads(call.request_body) == question.body
    assert call.requested_model == call.served_model == "fake"
    assert call.path == "/s/s1" + question.path.partition("?")[0]
    assert call.losses == ()


@pytest.mark.parametrize("question", TRANSLATED, ids=str)
async def test_every_dialect_asks_the_engine_the_same(start: Starter, question: Question) -> None:
    """So a conversation has the same tokens whichever harness leads it."""
    rig = await start(always(REPLY))
    await ask(rig, question)
    sent = json.loads(rig.received[-1].body)
    assert sent["messages"] == [{"role": "user", "content": "hi"}]
    assert sent["stream"] is True
    assert [tool["function"]["name"] for tool in sent.get("tools", [])] in (["weather"], [])


@pytest.mark.parametrize("question", TRANSLATED, ids=str)
async def test_a_call_of_a_tool_is_stored_as_sampled(start: Starter, question: Question) -> None:
    reply = compose(reasoning="hm", tools=[Tool("weather", '{"city":"Paris",  "x": 1e3}')])
    rig = await start(always(reply))
    answer = await ask(rig, question)
    assert answer.status == 200
    assert b"weather" in answer.body
    (completion,) = (await rig.call()).call.completions
    assert list(completion.token_ids) == reply.token_ids


async def collect(rig: Rig, question: Question, into: bytearray) -> None:
    url = rig.base + "/s/s1" + question.path
    async with rig.http.post(url, data=_encoded(question.body), headers=JSON) as response:
        async for piece in response.content.iter_any():
            into += piece


@pytest.mark.parametrize("question", STREAMED, ids=str)
async def test_the_first_word_leaves_before_the_engine_goes_on(start: Starter, question: Question) -> None:
    rig = await start(always(REPLY, faults=Faults(hold_after=3)))
    asking = asyncio.create_task(collect(rig, question, seen := bytearray()))
    await until(lambda: b"X" in seen)
    assert question.ends not in seen
    rig.engine.release()
    await asking
    assert question.ends in seen


@pytest.mark.parametrize("question", STREAMED, ids=str)
async def test_the_end_waits_for_the_commit(start: Starter, gate: Gate, question: Question) -> None:
    rig = await start(always(REPLY))
    asking = asyncio.create_task(collect(rig, question, seen := bytearray()))
    await reached(gate)
    await until(lambda: b"Z" in seen)
    for _ in range(20):
        await asyncio.sleep(0)
    assert question.ends not in seen
    assert rig.calls() == []
    gate.open.set()
    await asking
    assert question.ends in seen


@pytest.mark.parametrize("question", STREAMED, ids=str)
@pytest.mark.parametrize("fault", [Faults(cut_after=4), Faults(end_after=4), Faults(error_after=4)], ids=repr)
async def test_a_stream_that_broke_off_never_ends_cleanly(start: Starter, question: Question, fault: Faults) -> None:
    rig = await start(always(REPLY, faults=fault))
    seen = bytearray()
    with pytest.raises(aiohttp.ClientError):
        await collect(rig, question, seen)
    assert b"X" in seen
    assert question.ends not in seen
    call = (await rig.call()).call
    assert call.status is CallStatus.ENGINE_ERROR
    assert len(call.completions[0].token_ids) > 0


@pytest.mark.parametrize("question", [q for q in TRANSLATED if not q.streamed], ids=str)
async def test_a_reply_that_broke_off_is_an_error(start: Starter, question: Question) -> None:
    rig = await start(always(REPLY, faults=Faults(cut_after=4)))
    answer = await ask(rig, question)
    assert answer.status >= 500
    assert "ended" in message_of(question.dialect, answer.body) or "engine" in message_of(question.dialect, answer.body)
    assert (await rig.call()).call.status is CallStatus.ENGINE_ERROR


@pytest.mark.parametrize("question", TRANSLATED, ids=str)
async def test_the_engines_wording_of_an_overflow_is_kept(start: Starter, question: Question) -> None:
    """Harnesses know that a conversation is too long by these words; such a call is no turn."""
    rig = await start()
    long = _encoded(question.body).replace(b'"hi"', b'"' + b"word " * 40_000 + b'"')
    answer = await rig.send("POST", rig.base + "/s/s1" + question.path, long, JSON)
    assert answer.status == 400
    assert "maximum context length" in message_of(question.dialect, answer.body)
    call = (await rig.call()).call
    assert (call.status, call.completions) == (CallStatus.REJECTED, ())


@pytest.mark.parametrize("question", TRANSLATED, ids=str)
async def test_a_limit_beyond_the_context_is_no_limit(start: Starter, question: Question) -> None:
    """Harnesses ask for as many tokens as their usual models may write; vLLM refuses what its context cannot hold."""
    rig = await start(always(REPLY))
    limited = Question(
        question.dialect, question.path, question.body | _limit(question.dialect, 99_999), question.streamed
    )
    assert (await ask(rig, limited)).status == 200
    assert not {"max_tokens", "max_completion_tokens"} & json.loads(rig.received[-1].body).keys()
    (loss,) = (await rig.call()).call.losses
    assert "99999" in loss.why


def _limit(dialect: Dialect, tokens: int) -> dict[str, Any]:
    match dialect:
        case Dialect.RESPONSES:
            return {"max_output_tokens": tokens}
        case Dialect.MESSAGES:
            return {"max_tokens": tokens}
        case Dialect.GEMINI:
            return {"generationConfig": {"maxOutputTokens": tokens}}
        case _:
            return {"inferenceConfig": {"maxTokens": tokens}}


@pytest.mark.parametrize("question", TRANSLATED, ids=str)
@pytest.mark.parametrize("status", [404, 429, 500, 503])
async def test_errors_of_the_engine_have_the_dialects_shape(start: Starter, question: Question, status: int) -> None:
    rig = await start(always(REPLY, faults=Faults(status=status, retry_after=3)))
    answer = await ask(rig, question)
    expected = 529 if (question.dialect, status) == (Dialect.MESSAGES, 503) else status
    assert answer.status == expected
    assert message_of(question.dialect, answer.body)
    assert answer.headers.get("Retry-After") == "3"


@pytest.mark.parametrize("question", TRANSLATED, ids=str)
async def test_our_own_errors_have_it_too(start: Starter, question: Question) -> None:
    rig = await start(auth="required", admin_key="admin", max_body_mb=1)
    answer = await ask(rig, question, prefix="")
    refused = 403 if question.dialect is Dialect.BEDROCK else 401
    assert (answer.status, message_of(question.dialect, answer.body)[:10]) == (refused, "this proxy")
    admin = {"Authorization": "Bearer admin"}
    made = (await rig.control("POST", "/api/sessions", {}, admin)).json
    key = {"Authorization": f"Bearer {made['api_key']}"}
    huge = await rig.send("POST", rig.base + question.path, b" " * (2 << 20), JSON | key)
    assert huge.status == 413
    assert message_of(question.dialect, huge.body)
    wrong = await rig.send("POST", rig.base + question.path, b"[]", JSON | key)
    assert wrong.status == 400
    assert message_of(question.dialect, wrong.body)
    await rig.control("POST", f"/api/sessions/{made['session_id']}/close", {"status": "completed"}, admin)
    closed = await ask(rig, question, key, prefix="")
    assert closed.status == 409
    assert "closed" in message_of(question.dialect, closed.body)


@pytest.mark.parametrize("question", TRANSLATED, ids=str)
async def test_what_could_not_be_translated_stands_in_the_record(start: Starter, question: Question) -> None:
    rig = await start(always(REPLY))
    odd = Question(question.dialect, question.path, question.body | {"frobnicate": 1}, question.streamed, question.ends)
    assert (await ask(rig, odd)).status == 200
    (loss,) = (await rig.call()).call.losses
    assert "frobnicate" in loss.where
    assert loss.why


@pytest.mark.parametrize("question", STREAMED, ids=str)
async def test_silence_gets_what_the_dialect_has_for_it(start: Starter, question: Question) -> None:
    rig = await start(always(REPLY, faults=Faults(hold_after=3)), keepalive=0.05)
    asking = asyncio.create_task(collect(rig, question, seen := bytearray()))
    await until(lambda: b"X" in seen)
    sign = {Dialect.RESPONSES: b": keep-alive\n\n", Dialect.MESSAGES: b"event: ping\n"}.get(question.dialect)
    if sign is not None:
        await until(lambda: seen.count(sign) >= 2)
    else:
        length = len(seen)
        await asyncio.sleep(0.3)
        assert len(seen) == length
    rig.engine.release()
    await asking
    assert question.ends in seen


@pytest.mark.parametrize("question", TRANSLATED, ids=str)
async def test_a_client_that_names_no_session_is_known_by_its_conversation(start: Starter, question: Question) -> None:
    rig = await start(always(REPLY))
    await ask(rig, question, prefix="")
    await until(rig.parts.repository.session_ids)
    (session_id,) = rig.parts.repository.session_ids()
    assert session_id.startswith("r")
    assert rig.parts.repository.session(session_id).origin == "root"


@pytest.mark.parametrize("question", TRANSLATED, ids=str)
async def test_an_engine_that_cannot_stream_serves_every_dialect(start: Starter, question: Question) -> None:
    """The whole reply is cut into pieces; here a plain server answers without a stream though asked for one."""
    rig = await start(always(REPLY), engine="plain")
    answer = await ask(rig, question)
    assert text_of(question, answer.body) == "X Y Z Q"
    assert (await rig.call()).call.token_source is TokenSource.NONE


def events(*chunks: str) -> bytes:
    return b"".join(b"data: " + chunk.encode() + b"\n\n" for chunk in chunks)


ROLE = '{"id":"x","prompt_token_ids":[1],"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
WORD = '{"choices":[{"index":0,"delta":{"content":"X"},"token_ids":[2],"logprobs":{"content":[{"token":"X","logprob":-1}]}}]}'
STOP = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
UNTRANSLATABLE = {
    "no JSON": '{"oops',
    "no piece": '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":null}]}}]}',
    "an odd text": '{"choices":[{"index":0,"delta":{"content":[1]}}]}',
}


@pytest.mark.parametrize("question", TRANSLATED, ids=str)
async def test_an_end_without_the_word_for_it_is_an_end(start: Starter, question: Question) -> None:
    async with raw_engine(says(events(ROLE, WORD, STOP), "text/event-stream")) as url:
        rig = await start(upstream=url, engine="vllm")
        answer = await ask(rig, question)
        assert (answer.status, text_of(question, answer.body)) == (200, "X")
        assert question.ends in answer.body
        assert (await rig.call()).call.status is CallStatus.COMPLETED


@pytest.mark.parametrize("question", TRANSLATED, ids=str)
@pytest.mark.parametrize("chunks", [(ROLE, WORD, "[DONE]"), ("[DONE]",)], ids=["some", "nothing"])
async def test_the_word_for_the_end_alone_is_none(start: Starter, question: Question, chunks: tuple[str, ...]) -> None:
    async with raw_engine(says(events(*chunks), "text/event-stream")) as url:
        rig = await start(upstream=url, engine="vllm")
        await breaks_off(rig, question)


@pytest.mark.parametrize("question", TRANSLATED, ids=str)
@pytest.mark.parametrize("odd", UNTRANSLATABLE)
async def test_what_cannot_be_translated_breaks_the_reply_off(start: Starter, question: Question, odd: str) -> None:
    stream = events(ROLE, WORD, UNTRANSLATABLE[odd], WORD, STOP, "[DONE]")
    async with raw_engine(says(stream, "text/event-stream")) as url:
        rig = await start(upstream=url, engine="vllm")
        await breaks_off(rig, question)


async def breaks_off(rig: Rig, question: Question) -> None:
    if not question.streamed:
        assert (await ask(rig, question)).status in (502, 503)
    else:
        seen = bytearray()
        with pytest.raises(aiohttp.ClientError):
            await collect(rig, question, seen)
        assert question.ends not in seen
        assert b"HTTP/1.1" not in seen
    assert (await rig.call()).call.status is CallStatus.ENGINE_ERROR


async def test_a_stream_that_nobody_asked_for_goes_to_the_client_as_it_came(start: Starter) -> None:
    stream = events(ROLE, WORD, STOP, "[DONE]")
    async with raw_engine(says(stream, "text/event-stream")) as url:
        rig = await start(upstream=url, engine="vllm")
        answer = await rig.ask()
        assert (answer.status, answer.body) == (200, stream)
        assert (await rig.call()).call.status is CallStatus.ENGINE_ERROR

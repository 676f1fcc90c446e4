"""Ends of streams, and replies, that are not quite vLLM's: the client gets to see what it would see of the engine itself."""

import json

import pytest

from polarproxy.model import Call, CallStatus, Dialect
from tests.proxy.raw_engine import raw_engine, says
from tests.proxy.rig import BODY, Answer, Starter
from tests.proxy.speak import QUESTIONS, Question, text_of

STREAM = {**BODY, "stream": True}
ROLE = b'{"id":"x","prompt_token_ids":[1],"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
WORD = b'{"choices":[{"index":0,"delta":{"content":"X"},"token_ids":[2],"logprobs":{"content":[{"token":"X","logprob":-1}]}}]}'
STOP = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
ERROR = b'{"error":{"message":"the engine died","code":500}}'
EVERYTHING = {"return_token_ids": True, "logprobs": True}


def events(*data: bytes) -> bytes:
    return b"".join(b"data: " + each + b"\n\n" for each in data)


async def answered(start: Starter, said: bytes, question: Question, session: str) -> tuple[Answer, Call]:
    async with raw_engine(says(said, "text/event-stream")) as url:
        rig = await start(upstream=url)
        path, head = f"{rig.base}/s/{session}{question.path}", {"Content-Type": "application/json"}
        answer = await rig.send("POST", path, json.dumps(question.body | EVERYTHING).encode(), head)
        return answer, (await rig.call(session)).call


@pytest.mark.parametrize("question", QUESTIONS[1:], ids=str)
async def test_nothing_follows_the_word_for_the_end(start: Starter, question: Question) -> None:
    whole = events(ROLE, WORD, STOP, b"[DONE]")
    plain, _ = await answered(start, whole, question, "s1")
    answer, call = await answered(start, whole + events(b"[DONE]", WORD, STOP, b"[DONE]"), question, "s2")
    assert (text_of(question, answer.body), text_of(question, plain.body)) == ("X", "X")
    assert not question.ends or answer.body.count(question.ends) == plain.body.count(question.ends)
    assert (call.status, list(call.completions[0].token_ids)) == (CallStatus.COMPLETED, [2])
    if question.dialect is Dialect.CHAT:
        assert answer.body == whole


ENDS: dict[str, tuple[bytes, CallStatus]] = {
    "no blank line behind the end": (events(ROLE, WORD, STOP) + b"data: [DONE]\n", CallStatus.COMPLETED),
    "no word for the end": (events(ROLE, WORD, STOP), CallStatus.COMPLETED),
    "half an event behind the end of the choice": (events(ROLE, WORD, STOP) + b'data: {"cho', CallStatus.COMPLETED),
    "an error and the word for the end": (events(ROLE, WORD, ERROR, b"[DONE]"), CallStatus.ENGINE_ERROR),
    "an error alone": (events(ROLE, WORD, ERROR), CallStatus.ENGINE_ERROR),
    "an error behind the end of the choice": (events(ROLE, WORD, STOP, ERROR, b"[DONE]"), CallStatus.ENGINE_ERROR),
}


@pytest.mark.parametrize("name", ENDS)
async def test_an_odd_end_is_relayed_to_the_byte(start: Starter, name: str) -> None:
    said, status = ENDS[name]
    async with raw_engine(says(said, "text/event-stream")) as url:
        rig = await start(upstream=url)
        answer = await rig.ask({**STREAM, **EVERYTHING})
        assert (answer.status, answer.body) == (200, said)
        call = (await rig.call()).call
        assert (call.status, list(call.completions[0].token_ids)) == (status, [2])


@pytest.mark.parametrize(("streamed", "status"), [(False, 200), (True, 502)])
async def test_a_whole_reply_that_is_none_is_relayed_as_it_is_and_an_error_in_the_record(
    start: Starter, streamed: bool, status: int
) -> None:
    async with raw_engine(says(b"hello")) as url:
        rig = await start(upstream=url)
        answer = await rig.ask({**BODY, "stream": streamed})
        assert answer.status == status
        assert streamed or answer.body == b"hello"
        call = (await rig.call()).call
        assert (call.status, call.http_status) == (CallStatus.ENGINE_ERROR, 200)
        assert "not one of the chat API" in (call.error or "")


async def test_a_whole_reply_to_who_asked_for_a_stream_is_a_stream(start: Starter) -> None:
    reply = (
        b'{"id":"x","prompt_token_ids":[1],"choices":[{"index":0,"message":{"role":"assistant","content":"X"},'
        b'"finish_reason":"stop","token_ids":[2]}]}'
    )
    async with raw_engine(says(reply)) as url:
        rig = await start(upstream=url)
        answer = await rig.ask(STREAM)
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert (answer.status, answer.events[-1]) == (200, b"data: [DONE]")
        assert b'"content":"X"' in answer.body
        assert (await rig.call()).call.status is CallStatus.COMPLETED

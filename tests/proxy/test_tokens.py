"""Tokens as the engine gave them: odd ones are recorded as they are, and never trained."""

from typing import Any

import numpy as np
import pytest

from polarproxy.model import Call, CallStatus, FinishReason, LogprobsMode, TokenSource
from polarproxy.trajectory.branches import build_trajectory
from tests.fakes import Delta, Faults, Reply, Script, Step, Token, Turn, always, compose
from tests.proxy.raw_engine import raw_engine, says, stream
from tests.proxy.rig import BODY, Rig, Starter

REPLY = compose("one two three four")
STREAM = {**BODY, "stream": True}
FORMS = pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])


async def left_out(rig: Rig) -> dict[str, int]:
    """Why nothing of session `s1` is trained."""
    await rig.delivered()
    trajectory = build_trajectory("s1", rig.calls())
    assert trajectory.trained_tokens == 0
    return dict(trajectory.left_out_by_reason())


async def the_call(rig: Rig) -> Call:
    return (await rig.call()).call


async def test_a_sound_reply_is_trained_whole(start: Starter) -> None:
    rig = await start(always(REPLY))
    await rig.ask(STREAM)
    await rig.delivered()
    trajectory = build_trajectory("s1", rig.calls())
    assert (trajectory.trained_tokens, trajectory.coverage) == (len(REPLY.tokens), 1.0)


@FORMS
@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        (Faults(no_token_ids=True), "no_token_ids"),
        (Faults(no_logprobs=True), "no_logprobs"),
        (Faults(drop_logprobs=2), "logprob_count"),
        (Faults(drop_ids=2), "logprob_count"),
    ],
    ids=["no ids", "no logprobs", "logprobs missing", "ids missing"],
)
async def test_ids_and_logprobs_that_do_not_match(
    start: Starter, body: dict[str, Any], faults: Faults, reason: str
) -> None:
    rig = await start(always(REPLY, faults=faults))
    await rig.ask(body)
    assert await left_out(rig) == {reason: 1}
    (completion,) = (await the_call(rig)).completions
    ids = [] if faults.no_token_ids else REPLY.token_ids[faults.drop_ids :]
    logprobs = None if faults.no_logprobs else REPLY.logprobs[faults.drop_logprobs :]
    assert list(completion.token_ids) == ids
    assert (None if completion.logprobs is None else list(completion.logprobs)) == logprobs


@FORMS
async def test_a_prompt_without_ids(start: Starter, body: dict[str, Any]) -> None:
    rig = await start(always(REPLY, faults=Faults(no_prompt_ids=True)))
    await rig.ask(body)
    assert await left_out(rig) == {"no_token_ids": 1}
    call = await the_call(rig)
    assert (call.prompt_token_ids, call.token_source) == (None, TokenSource.NONE)
    assert list(call.completions[0].token_ids) == REPLY.token_ids


@pytest.mark.parametrize(("value", "body"), [(None, STREAM), (-9999.0, BODY), (-9999.0, STREAM)], ids=str)
async def test_a_logprob_that_is_none(start: Starter, value: float | None, body: dict[str, Any]) -> None:
    rig = await start(always(REPLY.with_logprobs(-0.5, value)))
    await rig.ask(body)
    assert await left_out(rig) == {"bad_logprob": 1}
    (completion,) = (await the_call(rig)).completions
    assert list(completion.token_ids) == REPLY.token_ids
    expected = np.asarray([np.nan if value is None else value], dtype=np.float32)
    assert completion.logprobs is not None
    np.testing.assert_array_equal(completion.logprobs.array[1:2], expected)
    assert len(completion.logprobs) == len(REPLY.tokens)


async def test_a_logprob_that_is_written_nan(start: Starter) -> None:
    """No JSON, so that event cannot be read: the client has it as it came, and the record what came before it."""
    rig = await start(always(REPLY.with_logprobs(-0.5, -0.25, float("nan"))))
    answer = await rig.ask({**STREAM, "logprobs": True})
    assert b'"logprob":NaN' in answer.body
    assert answer.events[-1] == b"data: [DONE]"
    call = await the_call(rig)
    assert (call.status, bool(call.error)) == (CallStatus.ENGINE_ERROR, True)
    (completion,) = call.completions
    assert list(completion.token_ids) == REPLY.token_ids[:2]
    assert list(completion.logprobs or ()) == [-0.5, -0.25]
    assert await left_out(rig) == {"failed": 1}


async def test_a_whole_reply_with_nan_is_passed_on_and_marked(start: Starter) -> None:
    body = b'{"choices":[{"index":0,"token_ids":[1],"logprobs":{"content":[{"token":"a","logprob":NaN}]}}]}'
    async with raw_engine(says(body)) as url:
        rig = await start(upstream=url)
        assert (await rig.ask()).body == body
        call = await the_call(rig)
    assert (call.status, call.completions) == (CallStatus.ENGINE_ERROR, ())


def chunk(delta: bytes = b'{"content":"x"}', more: bytes = b"") -> bytes:
    return b'{"id":"x","model":"fake","choices":[{"index":0,"delta":' + delta + more + b"}]}"


GAPS = {
    "no JSON": b"oops",
    "half a chunk": chunk()[:-2],
    "choices that are none": b'{"choices":7}',
}


@pytest.mark.parametrize("name", GAPS)
async def test_after_an_event_that_cannot_be_read_nothing_more_is_recorded_as_sampled(
    start: Starter, name: str
) -> None:
    """A completion with a gap in it would claim that the engine sampled what it never did."""
    token = b',"token_ids":[%d],"logprobs":{"content":[{"token":"x","logprob":-0.5}]}'
    end = b',"finish_reason":"stop"'
    head = b'{"choices":[{"index":0,"delta":{"role":"assistant"}}],"prompt_token_ids":[1,2]}'
    sent = [head, chunk(more=token % 5), GAPS[name], chunk(more=token % 6), chunk(more=token % 7 + end)]
    async with raw_engine(says(stream(*sent), "text/event-stream")) as url:
        rig = await start(upstream=url)
        answer = await rig.ask(STREAM)
        assert answer.events[2] == b"data: " + GAPS[name]
        assert answer.events[-1] == b"data: [DONE]"
        call = await the_call(rig)
    assert call.status is CallStatus.ENGINE_ERROR
    assert [list(completion.token_ids) for completion in call.completions] == [[5]]
    assert list(call.prompt_token_ids or ()) == [1, 2]


BAD_IDS = {"text": b'["a"]', "a fraction": b"[1.5]", "below 0": b"[-1]", "none": b"[null]", "no list": b'{"a":1}'}


@pytest.mark.parametrize("ids", BAD_IDS.values(), ids=BAD_IDS)
async def test_ids_that_are_none_are_an_error_and_never_a_shorter_completion(start: Starter, ids: bytes) -> None:
    body = b'{"id":"x","prompt_token_ids":[1],"choices":[{"index":0,"message":{"content":"x"},"token_ids":%s}]}' % ids
    async with raw_engine(says(body)) as url:
        rig = await start(upstream=url)
        assert (await rig.ask()).json["choices"][0]["message"] == {"content": "x"}
        call = await the_call(rig)
    assert (call.status, call.completions) == (CallStatus.ENGINE_ERROR, ())


async def test_an_id_too_large_is_no_other_id(start: Starter) -> None:
    body = b'{"prompt_token_ids":[1],"choices":[{"index":0,"message":{},"token_ids":[4294967301]}]}'
    async with raw_engine(says(body)) as url:
        rig = await start(upstream=url)
        await rig.ask()
        assert (await the_call(rig)).completions == ()


async def test_tokens_without_text_are_tokens(start: Starter) -> None:
    """Markers, and characters that span tokens: their events are empty, and not for a client that did not ask."""
    reply = compose("\U0001f9d1\U0001f9d1", reasoning="Hm.")
    rig = await start(always(reply))
    answer = await rig.ask(STREAM)
    assert b'"delta":{},"logprobs":null,"finish_reason":null' not in answer.body
    (completion,) = (await the_call(rig)).completions
    assert list(completion.token_ids) == reply.token_ids


async def test_a_stop_string_cuts_the_text_and_not_the_tokens(start: Starter) -> None:
    rig = await start(always(REPLY))
    answer = await rig.ask({**BODY, "stop": ["hre"]})
    assert answer.json["choices"][0]["message"]["content"] == "one two t"
    (completion,) = (await the_call(rig)).completions
    assert (completion.finish_reason, completion.stop_reason) == (FinishReason.STOP, "hre")
    assert list(completion.token_ids) == REPLY.token_ids[: len(completion.token_ids)]
    assert len(completion.token_ids) > len("one two t") // 2


async def test_a_stop_token_is_kept_with_its_id(start: Starter) -> None:
    rig = await start(always(REPLY))
    await rig.ask({**BODY, "stop_token_ids": [REPLY.token_ids[2]]})
    (completion,) = (await the_call(rig)).completions
    assert (list(completion.token_ids), completion.stop_reason) == (REPLY.token_ids[:3], str(REPLY.token_ids[2]))


@FORMS
async def test_several_choices_are_all_kept(start: Starter, body: dict[str, Any]) -> None:
    replies = compose("one"), compose("two two"), compose("three three three")
    rig = await start(Script((Turn(replies),)))
    await rig.ask({**body, "n": 3})
    found = (await the_call(rig)).completions
    assert [completion.index for completion in found] == [0, 1, 2]
    assert [list(completion.token_ids) for completion in found] == [reply.token_ids for reply in replies]
    assert (await the_call(rig)).sampling.n == 3


async def test_the_ids_are_those_of_the_engine_and_not_of_the_text(start: Starter) -> None:
    """`a` and `b` sampled one by one; any tokenizer would make one token of them."""
    odd = Reply((Step((Token(97, "a"),), Delta("a")), Step((Token(98, "b"),), Delta("b"))))
    rig = await start(always(odd))
    await rig.ask()
    assert list((await the_call(rig)).completions[0].token_ids) == [97, 98]


async def test_a_call_that_a_parser_drops_is_recorded_all_the_same(start: Starter) -> None:
    """Its marks are ordinary tokens, the parser takes them out of the text and makes nothing of them."""
    words = ("<tool_call>", '{"name": "bash"}', "</tool_call>")
    steps = tuple(Step((Token(97 + place, word),), Delta()) for place, word in enumerate(words))
    for body in (BODY, STREAM):
        rig = await start(always(Reply((*steps, Step((Token(7, ""),), Delta("Done."))))))
        answer = await rig.ask(body)
        assert b"bash" not in answer.body
        assert b"Done." in answer.body
        assert list((await rig.recorded(1 + (body is STREAM)))[-1].call.completions[0].token_ids) == [97, 98, 99, 7]


async def test_what_was_applied_is_recorded(start: Starter) -> None:
    rig = await start()
    asked = {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "seed": 2**63 + 1,
        "max_completion_tokens": 5,
        "max_tokens": 3,
    }
    await rig.ask({**BODY, **asked, "tools": [{"type": "function"}]})
    call = await the_call(rig)
    sampling = call.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.7, 0.9, 5)
    assert (sampling.seed, sampling.max_tokens, sampling.n) == (2**63 + 1, 5, 1)
    assert sampling.logprobs_mode is LogprobsMode.PROCESSED
    assert (call.requested_model, call.served_model, call.engine) == ("fake", "fake", "vllm")
    assert call.tools_digest is not None
    assert (call.usage and call.usage.completion_tokens) == 5
    assert call.timing.first_byte_us is not None
    assert call.timing.last_byte_us is not None
    assert call.timing.first_byte_us <= call.timing.last_byte_us


async def test_an_engine_without_ids_is_recorded_and_not_trained(start: Starter) -> None:
    rig = await start(always(REPLY), engine="plain")
    for number, body in enumerate((BODY, STREAM)):
        direct, proxied = await rig.ask_engine(body), await rig.ask(body, prefix=f"/s/n{number}")
        assert len(proxied.body) == len(direct.body)
        call = (await rig.call(f"n{number}")).call
        assert (call.status, call.token_source, call.engine) == (CallStatus.COMPLETED, TokenSource.NONE, "plain")
        assert call.completions[0].finish_reason is FinishReason.STOP
    assert "return_token_ids" not in rig.received[1].json

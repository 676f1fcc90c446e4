"""The client gets what the engine would have sent it: byte for byte, whether it asks for ids and logprobs or not."""

import itertools
import json
import re
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from polarproxy.model import CallStatus, TokenSource
from tests.fakes import Reply, Tool, Turn, compose
from tests.fakes.faults import Faults
from tests.fakes.script import Script
from tests.proxy.rig import BODY, IDS, Answer, Rig, Starter

SAME = {"X-Request-Id": "same"}

REPLIES = {
    "text": compose("Hello you, \U0001f9d1 there."),
    "reasoning": compose("Hello.", reasoning="A greeting, I think."),
    "tool": compose("Let me look.", tools=[Tool("get_weather", '{"unit":"C", "city":"Paris"}')]),
    "tools": compose(tools=[Tool("a", '{"x": 1.50}'), Tool("b", "{}")], reasoning="Two."),
    "cut": compose("Hello", ended=False),
    "nothing": compose(""),
}

ASKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "everything": IDS,
    "ids": {"return_token_ids": True},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "default logprobs": {"logprobs": True},
    "no reasoning": {"include_reasoning": False},
    "ids without reasoning": {**IDS, "include_reasoning": False},
    "null logprobs": {"logprobs": None, "top_logprobs": None, "return_token_ids": None},
    "two": {"n": 2},
    "two with ids": {"n": 2, **IDS},
    "a stop": {"stop": ["you"]},
    "a limit": {"max_tokens": 3},
}

STREAMED: dict[str, dict[str, Any]] = {
    "whole": {"stream": False},
    "no stream": {},
    "stream": {"stream": True},
    "usage": {"stream": True, "stream_options": {"include_usage": True}},
    "usage all along": {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "no usage": {"stream": True, "stream_options": {"include_usage": False}},
    "null options": {"stream": True, "stream_options": None},
}


@pytest.fixture(autouse=True)
def same_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's clock stands still, so that `created` is the same in both answers."""
    clock = SimpleNamespace(time=lambda: 1_700_000_000.0, monotonic=time.monotonic)
    monkeypatch.setattr("tests.fakes.engine.time", clock)


async def both(rig: Rig, body: dict[str, Any]) -> tuple[Answer, Answer]:
    return await rig.ask_engine(body, SAME), await rig.ask(body, headers=SAME)


@pytest.mark.parametrize("reply", REPLIES)
async def test_every_way_of_asking(start: Starter, reply: str) -> None:
    rig = await start(Script((Turn((REPLIES[reply], REPLIES["text"])),)))
    for asked, streamed in itertools.product(ASKED.values(), STREAMED.values()):
        body = {**BODY, **asked, **streamed}
        direct, proxied = await both(rig, body)
        assert proxied.status == direct.status, body
        if "include_reasoning" in asked:
            # JSON does not order members; where reasoning is cut out of a delta, they come in another order.
            assert [_json(event) for event in proxied.events] == [_json(event) for event in direct.events], body
        else:
            assert proxied.body == direct.body, body
        assert proxied.headers["Content-Type"] == direct.headers["Content-Type"]
        assert proxied.headers["X-Request-Id"] == direct.headers["X-Request-Id"]


@pytest.mark.parametrize("streamed", STREAMED)
@pytest.mark.parametrize("asked", ASKED)
async def test_the_store_holds_what_was_sampled_all_the_same(start: Starter, asked: str, streamed: str) -> None:
    first, second = REPLIES["reasoning"], REPLIES["text"]
    rig = await start(Script((Turn((first, second)),)))
    body = {**BODY, **ASKED[asked], **STREAMED[streamed]}
    await rig.ask(body)
    call = (await rig.call()).call
    truth = (
        await rig.ask_engine({**body, **IDS, "include_reasoning": True, "stream": False, "stream_options": None})
    ).json
    assert (call.status, call.token_source, call.error) == (CallStatus.COMPLETED, TokenSource.ENGINE, None)
    assert list(call.prompt_token_ids or ()) == truth["prompt_token_ids"]
    assert [completion.index for completion in call.completions] == list(range(body.get("n", 1)))
    for completion, choice in zip(call.completions, truth["choices"], strict=True):
        assert list(completion.token_ids) == choice["token_ids"]
        assert completion.logprobs is not None
        exact = np.asarray([entry["logprob"] for entry in choice["logprobs"]["content"]], dtype=np.float32)
        np.testing.assert_array_equal(completion.logprobs.array, exact)
        assert completion.finish_reason == choice["finish_reason"]
        assert completion.stop_reason == choice["stop_reason"]


@pytest.mark.parametrize("faults", [Faults(chop=(1,)), Faults(chop=(3, 50, 7)), Faults(steps_per_event=3)], ids=str)
@pytest.mark.parametrize("streamed", ["whole", "usage"])
@pytest.mark.parametrize("asked", ["plain", "everything"])
async def test_however_the_bytes_are_cut(start: Starter, asked: str, streamed: str, faults: Faults) -> None:
    reply: Reply = REPLIES["tool"]
    rig = await start(Script((Turn((reply,), faults),)))
    direct, proxied = await both(rig, {**BODY, **ASKED[asked], **STREAMED[streamed]})
    assert proxied.body == direct.body
    (completion,) = (await rig.call()).call.completions
    assert list(completion.token_ids) == reply.token_ids


ERRORS: dict[str, bytes] = {
    "an unknown model": b'{"model": "nope", "messages": [{"role": "user", "content": "hi"}]}',
    "no messages": b'{"model": "fake"}',
    "empty messages": b'{"model": "fake", "messages": []}',
    "no choice": b'{"model": "fake", "messages": [{"role": "user", "content": "hi"}], "n": 0}',
    "a limit of nothing": b'{"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 0}',
    "a limit too high": b'{"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 99999}',
    "top without logprobs": b'{"model": "fake", "messages": [{"role": "user", "content": "hi"}], "top_logprobs": 3}',
    "a stream that is no flag": b'{"model": "fake", "messages": [{"role": "user", "content": "hi"}], "stream": "yes"}',
    "options without a stream": b'{"messages": [{"role": "user", "content": "hi"}], "stream_options": {"a": 1}}',
    "no JSON": b"{",
    "nothing": b"",
    "no object": b"[1, 2]",
    "more than one": b'{"model": "fake", "messages": [{"role": "user", "content": "hi"}]} {}',
    "no text": b'{"model": "\xff"}',
}


@pytest.mark.parametrize("name", ERRORS)
async def test_what_the_engine_refuses_is_refused_in_its_own_words(start: Starter, name: str) -> None:
    rig = await start(model_map="off")
    direct, proxied = await rig.ask_engine(ERRORS[name]), await rig.ask(ERRORS[name])
    assert (proxied.status, _plain(proxied)) == (direct.status, _plain(direct))
    assert 400 <= proxied.status < 500


def _json(event: bytes) -> Any:
    data = event.removeprefix(b"data: ")
    return data if data == b"[DONE]" else json.loads(data)


def _plain(answer: Answer) -> bytes:
    """A validation error counts the members of the body it refuses, and the proxy's has more of them."""

    return re.sub(rb"<dict of \d+ items>", b"<dict>", answer.body)

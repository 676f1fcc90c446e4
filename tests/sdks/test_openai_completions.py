"""The OpenAI SDK parses text completions through the proxy into the same objects as those that the engine sends it itself."""

from dataclasses import dataclass
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types import Completion

from polarproxy.model import CallStatus, Caveat, Dialect, TokenSource
from tests.fakes import Reply, Turn, compose
from tests.fakes.sampling import limited, stopped_at_text
from tests.fakes.text_shapes import folded_text
from tests.fakes.toy_tokenizer import encode
from tests.fakes.transcript import stable
from tests.proxy.rig import Rig
from tests.sdks.played import PlayedStarter
from tests.sdks.record import check_tokens
from tests.sdks.ways_openai import awaited, in_thread, listed

LONG = compose("one two three four five six", ended=False)
GRUSS = compose("Grüße 👋🏽!")
PROMPT = "Say it:"


@dataclass(frozen=True)
class Case:
    """`sampled` are the replies that the choices hold; empty where a record cannot have their ids."""

    request: dict[str, Any]
    sampled: tuple[Reply, ...]
    replies: tuple[Reply, ...] = (GRUSS,)


CASES = {
    "text": Case({"prompt": PROMPT, "max_tokens": 100}, (GRUSS,)),
    "ids": Case({"prompt": encode(PROMPT), "max_tokens": 100}, (GRUSS,)),
    "cut": Case({"prompt": PROMPT, "max_tokens": 4}, (limited(LONG, 4),), (LONG,)),
    "stopped": Case({"prompt": PROMPT, "max_tokens": 100, "stop": "thr"}, (stopped_at_text(LONG, ["thr"]),), (LONG,)),
    "two choices": Case({"prompt": PROMPT, "max_tokens": 100, "n": 2}, (GRUSS, LONG), (GRUSS, LONG)),
    "echo": Case({"prompt": PROMPT, "max_tokens": 100, "echo": True}, (GRUSS,)),
    "logprobs": Case({"prompt": PROMPT, "max_tokens": 100, "logprobs": 2}, (GRUSS,)),
    "echoed logprobs": Case({"prompt": PROMPT, "max_tokens": 100, "logprobs": 1, "echo": True}, (GRUSS,)),
    "ids asked for": Case({"prompt": PROMPT, "max_tokens": 100, "extra_body": {"return_token_ids": True}}, (GRUSS,)),
    "several prompts": Case({"prompt": [PROMPT, "Or that:"], "max_tokens": 100}, (), (GRUSS, LONG)),
}


def urls(rig: Rig) -> list[str]:
    return [f"{rig.engine.url}/v1", f"{rig.base}/s/s1/v1"]


def as_stream(chunks: list[Completion]) -> list[str]:
    """Parsed chunks, so that how tokens were cut into them does not matter."""
    events = [f"data: {chunk.to_json(indent=None)}\n\n" for chunk in chunks]
    return folded_text("".join(events).encode())


def known(completion: Completion) -> str:
    return stable(completion.to_json(indent=None).encode())


async def check_record(rig: Rig, case: Case, *, times: int = 1) -> None:
    """The whole replies and the streams that went through the proxy, in turn."""
    for captured, stream in zip(await rig.recorded(2 * times), (False, True) * times, strict=True):
        call = captured.call
        assert (call.dialect, call.streamed) == (Dialect.COMPLETIONS, stream)
        if case.sampled:
            check_tokens(call, encode(PROMPT), case.sampled)
        else:
            assert (call.status, call.caveat) == (CallStatus.COMPLETED, Caveat.SEVERAL_PROMPTS)
            assert call.token_source is TokenSource.NONE


Given = tuple[str, list[str]]


def ask(client: OpenAI, **request: Any) -> Given:
    api: Any = client.completions
    return known(api.create(**request)), as_stream(list(api.create(stream=True, **request)))


async def ask_async(client: AsyncOpenAI, **request: Any) -> Given:
    api: Any = client.completions
    usage = {"include_usage": True}
    whole, stream = await api.create(**request), await api.create(stream=True, stream_options=usage, **request)
    return known(whole), as_stream(await listed(stream))


@pytest.mark.parametrize("name", CASES)
async def test_what_the_engine_says_itself(start_playing: PlayedStarter, name: str) -> None:
    case = CASES[name]
    rig = await start_playing(Turn(case.replies))
    request = {"model": "fake", **case.request}
    direct, proxied = [await in_thread(rig, lambda client: ask(client, **request), base_url=url) for url in urls(rig)]
    assert proxied == direct
    direct, proxied = [
        await awaited(rig, lambda client: ask_async(client, **request), base_url=url) for url in urls(rig)
    ]
    assert proxied == direct
    await check_record(rig, case, times=2)


async def test_another_model_s_name(start_playing: PlayedStarter) -> None:
    rig = await start_playing(Turn((GRUSS,)))

    def use(client: OpenAI) -> set[tuple[str, str]]:
        request: Any = {"model": "davinci-002", "prompt": PROMPT, "max_tokens": 100}
        whole = client.completions.create(**request)
        chunks = list(client.completions.create(stream=True, **request))
        text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
        return {(whole.model, whole.choices[0].text), *((chunk.model, text) for chunk in chunks)}

    assert await in_thread(rig, use) == {("davinci-002", "Grüße 👋🏽!")}
    await check_record(rig, CASES["text"])

"""The fake engine keeps its promise: a real vLLM answers the same requests in the same forms.

What the real server sampled is replayed by the fake, and both answers must be equal but for ids, times and cache
counts. Only how many tokens share an event is the real server's own choice, so a stream is replayed with its own events;
one that shows no ids is also compared, by what it adds up to, with one that does.
"""

from typing import Any

import aiohttp
import pytest

from tests.e2e.vllm_server import VllmServer
from tests.fakes import FakeEngine, Script, Turn, compose
from tests.fakes.cases import ANSWERS, ERRORS, IDS, MAX_MODEL_LEN, Body, Case
from tests.fakes.record import TIMEOUT, Answer, ask
from tests.fakes.shapes import folded, shape
from tests.fakes.transcript import by_choice, turn, without_counts

pytestmark = pytest.mark.vllm


def forms(cases: tuple[Case, ...]) -> list[Any]:
    return [
        pytest.param(case, stream, id=f"{case.name}-{'stream' if stream else 'whole'}")
        for case in cases
        for stream in case.forms
    ]


async def real(server: VllmServer, body: Body) -> Answer:
    async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
        return await ask(http, server.url, body)


async def fake(sampled: Turn, body: Body) -> Answer:
    async with (
        FakeEngine(Script((sampled,)), model="tiny", max_model_len=MAX_MODEL_LEN) as engine,
        aiohttp.ClientSession(timeout=TIMEOUT) as http,
    ):
        return await ask(http, engine.url, body)


def head(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.content_type


def shows_ids(body: Body) -> bool:
    return bool(body.get("return_token_ids") and body.get("logprobs") and body.get("include_reasoning", True))


@pytest.mark.parametrize(("case", "stream"), forms(ANSWERS))
async def test_the_fake_answers_as_vllm_does(vllm_chat: VllmServer, case: Case, stream: bool) -> None:
    body = {**case.body, "stream": stream}
    expected = await real(vllm_chat, body)
    if stream and shows_ids(body):
        found = await fake(turn(expected.body.encode()), body)
        assert by_choice(found.body.encode()) == by_choice(expected.body.encode())
        return
    asked = {**case.body, **IDS, "top_logprobs": case.body.get("top_logprobs", 0), "include_reasoning": True}
    sampled = turn((await real(vllm_chat, {**asked, "stream": True})).body.encode())
    found = await fake(sampled, body)
    assert head(found) == head(expected)
    if stream:
        assert folded(found.body.encode()) == folded(expected.body.encode())
        found = await fake(turn(expected.body.encode()), body)
        assert nameless(found) == nameless(expected)
    else:
        assert by_choice(found.body.encode()) == by_choice(expected.body.encode())


def nameless(answer: Answer) -> list[str]:
    """Events without token counts, which an engine that shows no ids does not let us know."""
    return without_counts(by_choice(answer.body.encode()))


@pytest.mark.parametrize(("case", "stream"), forms(ERRORS))
async def test_the_fake_refuses_as_vllm_does(vllm_chat: VllmServer, case: Case, stream: bool) -> None:
    body = {**case.body, "stream": stream}
    expected, found = await real(vllm_chat, body), await fake(Turn((compose("never shown"),)), body)
    assert (head(found), found.body) == (head(expected), expected.body)


async def test_the_models_list_has_the_same_form(vllm_chat: VllmServer) -> None:
    async with (
        FakeEngine(Script((Turn((compose("x"),)),)), model="tiny", max_model_len=MAX_MODEL_LEN) as engine,
        aiohttp.ClientSession(timeout=TIMEOUT) as http,
    ):
        lists = [await listed(http, url) for url in (vllm_chat.url, engine.url)]
    assert shape(lists[0]) == shape(lists[1])


async def listed(http: aiohttp.ClientSession, url: str) -> Any:
    async with http.get(f"{url}/v1/models") as reply:
        return await reply.json()

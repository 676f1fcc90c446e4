"""As `test_fake_contract`, for `/v1/completions`: a real vLLM answers the same requests in the same forms as the fake."""

from typing import Any

import aiohttp
import pytest

from tests.e2e.vllm_server import VllmServer
from tests.fakes import FakeEngine, Script, Turn, always, compose
from tests.fakes.cases import MAX_MODEL_LEN, Body, Case
from tests.fakes.record import TIMEOUT, Answer, ask
from tests.fakes.text_cases import COMPLETIONS, TEXT_ANSWERS, TEXT_BASE, TEXT_ERRORS, TEXT_IDS
from tests.fakes.text_shapes import folded_text
from tests.fakes.text_transcript import text_turn
from tests.fakes.transcript import by_choice

pytestmark = pytest.mark.vllm

BASE: dict[str | None, Body] = {each.name: each.case().body for each in TEXT_BASE}


def forms(cases: tuple[Case, ...]) -> list[Any]:
    return [
        pytest.param(case, stream, id=f"{case.name}-{'stream' if stream else 'whole'}")
        for case in cases
        for stream in case.forms
    ]


async def real(server: VllmServer, body: Body) -> Answer:
    async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
        return await ask(http, server.url, body, COMPLETIONS)


async def fake(sampled: Turn, body: Body) -> Answer:
    async with (
        FakeEngine(
            always(compose("chat")),
            text_script=Script((sampled,)),
            processed=False,
            model="tiny",
            max_model_len=MAX_MODEL_LEN,
        ) as engine,
        aiohttp.ClientSession(timeout=TIMEOUT) as http,
    ):
        return await ask(http, engine.url, body, COMPLETIONS)


async def sampled_by(server: VllmServer, case: Case) -> Turn:
    """What the real server samples for the base of a case."""
    body = BASE[case.sampled_as] | TEXT_IDS | {"logprobs": BASE[case.sampled_as]["logprobs"]}
    stream, whole = await real(server, {**body, "stream": True}), await real(server, {**body, "stream": False})
    return text_turn(stream.body.encode(), whole.body.encode())


@pytest.mark.parametrize(("case", "stream"), forms(TEXT_ANSWERS))
async def test_the_fake_answers_as_vllm_does(vllm_chat: VllmServer, case: Case, stream: bool) -> None:
    body = {**case.body, "stream": stream}
    expected, found = await real(vllm_chat, body), await fake(await sampled_by(vllm_chat, case), body)
    assert (found.status, found.content_type) == (expected.status, expected.content_type)
    if stream:
        assert folded_text(found.body.encode()) == folded_text(expected.body.encode())
    else:
        assert by_choice(found.body.encode()) == by_choice(expected.body.encode())


@pytest.mark.parametrize(("case", "stream"), forms(TEXT_ERRORS))
async def test_the_fake_refuses_as_vllm_does(vllm_chat: VllmServer, case: Case, stream: bool) -> None:
    body = {**case.body, "stream": stream}
    expected, found = await real(vllm_chat, body), await fake(Turn((compose("never shown"),)), body)
    assert (found.status, found.content_type, found.body) == (expected.status, expected.content_type, expected.body)

"""`/v1/completions` of a real vLLM, as its client sees it and as it is recorded, by the reader alone and through the proxy.

Each request also goes to vLLM straight, at temperature 0 or with a seed, so both sample the same.
"""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from polarproxy.cli.runner import running_proxy
from polarproxy.engine.plan import Plan
from polarproxy.engine.vllm_completions import plan
from polarproxy.model import CallStatus, CapturedCall, Caveat, Completion, Dialect, TokenIds, TokenSource
from polarproxy.proxy.parts import Parts
from polarproxy.settings import Settings
from polarproxy.wire.completions.fields import read_request
from polarproxy.wire.sse import DONE, EventSplitter, encode_event, event_data
from tests.e2e.vllm_server import VllmServer
from tests.fakes.cases import Body, Case
from tests.fakes.record import TIMEOUT, Answer, ask
from tests.fakes.text_cases import COMPLETIONS, TEXT_ANSWERS, TEXT_ERRORS, TEXT_IDS
from tests.fakes.text_shapes import folded_text
from tests.fakes.transcript import stable

pytestmark = pytest.mark.vllm

WITHOUT_IDS = re.compile("several|ids_echo_(plain|logprobs_only)|echo_of_nothing")
"""Several prompts; an echo of ids, whose text only vLLM knows; and nothing but an echo."""


def forms(cases: tuple[Case, ...]) -> list[Any]:
    return [
        pytest.param({**case.body, "stream": stream}, id=f"{case.name}-{'stream' if stream else 'whole'}")
        for case in cases
        for stream in case.forms
    ]


READ = re.compile("(hello|hello_stop|symbols|pair|echo)_plain|echo_(ids|logprobs)_only")
"""Those that test the reader alone: every way of cutting once."""

KEPT = tuple(case for case in TEXT_ANSWERS if not WITHOUT_IDS.match(case.name))
NOT_KEPT = tuple(case for case in TEXT_ANSWERS if WITHOUT_IDS.match(case.name))
CUT = tuple(case for case in TEXT_ANSWERS if READ.fullmatch(case.name))
REFUSED = tuple(case for case in TEXT_ERRORS if case.name != "unknown_model")
"""Any name of a model is served, so that one is not vLLM's to refuse."""


async def asked(url: str, body: Body) -> Answer:
    async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
        return await ask(http, url, body, COMPLETIONS)


async def sampled(url: str, body: Body) -> list[dict[str, Any]]:
    """The choices of a whole direct reply that shows all ids and logprobs, and no echo."""
    plain = {key: value for key, value in body.items() if key not in ("stream_options", "echo")}
    answer = await asked(url, {**plain, **TEXT_IDS, "stream": False})
    choices: list[dict[str, Any]] = json.loads(answer.body)["choices"]
    return choices


def check_sampled(prompt: TokenIds | None, completions: tuple[Completion, ...], truth: list[dict[str, Any]]) -> None:
    assert prompt is not None
    assert list(prompt) == truth[0]["prompt_token_ids"]
    assert [completion.index for completion in completions] == [choice["index"] for choice in truth]
    for completion, choice in zip(completions, truth, strict=True):
        assert list(completion.token_ids) == choice["token_ids"]
        assert completion.logprobs is not None
        exact = np.asarray(choice["logprobs"]["token_logprobs"], dtype=np.float32)
        np.testing.assert_array_equal(completion.logprobs.array, exact)
        assert completion.finish_reason == choice["finish_reason"]
        assert completion.stop_reason == (None if choice["stop_reason"] is None else str(choice["stop_reason"]))


def same(found: str, expected: str, *, stream: bool) -> None:
    if stream:
        assert folded_text(found.encode()) == folded_text(expected.encode())
    else:
        assert json.loads(stable(found.encode())) == json.loads(stable(expected.encode()))


def shown(made: Plan, body: str, *, stream: bool) -> str:
    """What the reader makes of the engine's reply."""
    if not stream:
        return made.reader.body(body.encode()).decode()
    views: list[bytes] = []
    for event in EventSplitter().feed(body.encode()):
        data = event_data(event)
        view = data if data in (None, DONE) else made.reader.event(data or b"")
        assert view is not None
        views.append(encode_event(view))
    return b"".join(views).decode()


def planned(body: Body) -> Plan:
    return plan(read_request(json.dumps(body).encode()).fields, stream=body["stream"])


@pytest.mark.parametrize("body", forms(CUT))
async def test_the_reader_shows_what_vllm_would_have_sent(vllm_chat: VllmServer, body: Body) -> None:
    made = planned(body)
    answer = await asked(vllm_chat.url, json.loads(made.body))
    expected = await asked(vllm_chat.url, body)
    same(shown(made, answer.body, stream=body["stream"]), expected.body, stream=body["stream"])


@pytest.mark.parametrize("body", forms(CUT))
async def test_the_reader_keeps_what_vllm_sampled(vllm_chat: VllmServer, body: Body) -> None:
    made = planned(body)
    shown(made, (await asked(vllm_chat.url, json.loads(made.body))).body, stream=body["stream"])
    capture = made.reader.capture
    check_sampled(capture.prompt, capture.completions(), await sampled(vllm_chat.url, body))


@dataclass(frozen=True)
class Both:
    """The same engine, straight and through a proxy; `session` names where the proxy records."""

    direct: str
    proxied: str
    session: str
    parts: Parts

    def recorded(self) -> CapturedCall:
        (call,) = self.parts.repository.calls(self.session)
        return call


@pytest.fixture
async def both(vllm_chat: VllmServer, tmp_path: Path) -> AsyncIterator[Both]:
    settings = Settings(upstream=vllm_chat.url, port=0, db=f"sqlite:///{tmp_path}/polar.db")
    async with running_proxy(settings) as (base, parts):
        yield Both(vllm_chat.url, f"{base}/s/rollout-1", "rollout-1", parts)


@pytest.mark.parametrize("body", forms(TEXT_ANSWERS))
async def test_the_client_sees_what_vllm_would_have_sent(both: Both, body: Body) -> None:
    expected, found = await asked(both.direct, body), await asked(both.proxied, body)
    assert (found.status, found.content_type) == (expected.status, expected.content_type)
    same(found.body, expected.body, stream=body["stream"])


@pytest.mark.parametrize("body", forms(KEPT))
async def test_the_store_holds_what_vllm_sampled(both: Both, body: Body) -> None:
    await asked(both.proxied, body)
    call = both.recorded().call
    assert (call.status, call.dialect, call.streamed) == (CallStatus.COMPLETED, Dialect.COMPLETIONS, body["stream"])
    assert json.loads(call.request_body) == body
    check_sampled(call.prompt_token_ids, call.completions, await sampled(both.direct, body))


@pytest.mark.parametrize("body", forms(NOT_KEPT))
async def test_some_calls_are_stored_without_ids(both: Both, body: Body) -> None:
    await asked(both.proxied, body)
    call = both.recorded().call
    assert (call.status, call.token_source, call.prompt_token_ids) == (CallStatus.COMPLETED, TokenSource.NONE, None)
    assert all(completion.finish_reason is not None for completion in call.completions)
    several = body["prompt"] == ["Hello", "What"]
    assert call.caveat == (Caveat.SEVERAL_PROMPTS if several else None)
    assert len(call.completions) == (4 if several else 1)


@pytest.mark.parametrize("body", forms(REFUSED))
async def test_an_error_is_vllms_own(both: Both, body: Body) -> None:
    expected, found = await asked(both.direct, body), await asked(both.proxied, body)
    assert (found.status, found.content_type) == (expected.status, expected.content_type)
    assert found.body == expected.body
    recorded = both.recorded().call
    late = expected.status == 200
    assert recorded.status is (CallStatus.ENGINE_ERROR if late else CallStatus.REJECTED)
    assert recorded.http_status == expected.status
    assert [len(completion.token_ids) for completion in recorded.completions] == []

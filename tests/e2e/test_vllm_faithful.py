"""Through the proxy a real vLLM answers as it does directly, and the store holds what it sampled.

Each request goes to vLLM straight and through the proxy, at temperature 0 or with a seed, so both sample the same.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
import pytest

from polarproxy.cli.runner import running_proxy
from polarproxy.model import CallStatus, CapturedCall
from polarproxy.proxy.parts import Parts
from polarproxy.settings import Settings
from polarproxy.trajectory.integrity import Severity, check_calls
from tests.e2e.vllm_server import VllmServer
from tests.fakes.cases import ANSWERS, ERRORS, IDS, Body, Case
from tests.fakes.record import TIMEOUT, Answer, ask
from tests.fakes.shapes import folded
from tests.fakes.transcript import stable

pytestmark = pytest.mark.vllm


@dataclass(frozen=True)
class Both:
    """The same engine, straight and through a proxy; `session` names where the proxy records."""

    direct: str
    proxied: str
    session: str
    parts: Parts

    async def ask(self, body: Body, *, proxied: bool) -> Answer:
        async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
            return await ask(http, self.proxied if proxied else self.direct, body)

    def recorded(self) -> CapturedCall:
        (call,) = self.parts.repository.calls(self.session)
        return call


@pytest.fixture
async def both(vllm_chat: VllmServer, tmp_path: Path) -> AsyncIterator[Both]:
    # Names go on as they are: what vLLM says to an unknown one is compared too.
    settings = Settings(upstream=vllm_chat.url, port=0, db=f"sqlite:///{tmp_path}/polar.db", model_map="off")
    async with running_proxy(settings) as (base, parts):
        yield Both(vllm_chat.url, f"{base}/s/rollout-1", "rollout-1", parts)


def forms(cases: tuple[Case, ...]) -> list[Any]:
    return [
        pytest.param({**case.body, "stream": stream}, id=f"{case.name}-{'stream' if stream else 'whole'}")
        for case in cases
        for stream in case.forms
    ]


@pytest.mark.parametrize("body", forms(ANSWERS))
async def test_the_client_sees_what_vllm_would_have_sent(both: Both, body: Body) -> None:
    expected, found = await both.ask(body, proxied=False), await both.ask(body, proxied=True)
    assert (found.status, found.content_type) == (expected.status, expected.content_type)
    if body["stream"]:
        assert folded(found.body.encode()) == folded(expected.body.encode())
    else:
        assert stable(found.body.encode()) == stable(expected.body.encode())


@pytest.mark.parametrize("body", forms(ANSWERS))
async def test_the_store_holds_what_vllm_sampled(both: Both, body: Body) -> None:
    truth, end = await sampled(both, body), ends(await both.ask(body, proxied=False), stream=body["stream"])
    await both.ask(body, proxied=True)
    call = both.recorded().call
    assert call.status is CallStatus.COMPLETED
    assert msgspec.json.decode(call.request_body) == body
    assert call.prompt_token_ids is not None
    assert list(call.prompt_token_ids) == truth["prompt_token_ids"]
    assert [completion.index for completion in call.completions] == [choice["index"] for choice in truth["choices"]]
    for completion, choice in zip(call.completions, truth["choices"], strict=True):
        assert list(completion.token_ids) == choice["token_ids"]
        assert completion.logprobs is not None
        exact = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        np.testing.assert_array_equal(completion.logprobs.array, np.asarray(exact, dtype=np.float32))
    assert [(one.finish_reason, one.stop_reason) for one in call.completions] == end
    if call.usage is None:
        assert body["stream"]
        assert "stream_options" not in body
    assert [found for found in check_calls([both.recorded()]) if found.severity is Severity.ERROR] == []


async def sampled(both: Both, body: Body) -> Any:
    """A whole direct reply to the same request that shows all ids and logprobs."""
    plain = {key: value for key, value in body.items() if key not in ("stream_options", "include_reasoning")}
    answer = await both.ask({**plain, **IDS, "stream": False}, proxied=False)
    return msgspec.json.decode(answer.body)


def ends(answer: Answer, *, stream: bool) -> list[tuple[str, str | None]]:
    """(finish_reason, stop_reason as text) by choice, from either form of a reply."""
    texts = answer.body.split("\n\n") if stream else [answer.body]
    replies = [msgspec.json.decode(text.removeprefix("data: ")) for text in texts if text.endswith("}")]
    choices = [choice for reply in replies for choice in reply["choices"] if choice["finish_reason"]]
    reasons = [choice["stop_reason"] for choice in sorted(choices, key=lambda choice: choice["index"])]
    finished = [choice["finish_reason"] for choice in sorted(choices, key=lambda choice: choice["index"])]
    return list(zip(finished, [None if reason is None else str(reason) for reason in reasons], strict=True))


@pytest.mark.parametrize("body", forms(ERRORS))
async def test_an_error_is_vllms_own(both: Both, body: Body) -> None:
    expected, found = await both.ask(body, proxied=False), await both.ask(body, proxied=True)
    assert (found.status, found.content_type) == (expected.status, expected.content_type)
    assert without_field_count(found) == without_field_count(expected)
    recorded = both.recorded().call
    assert (recorded.status, recorded.http_status) == (CallStatus.REJECTED, expected.status)
    assert recorded.completions == ()


def without_field_count(answer: Answer) -> str:
    """A validation error counts the fields of the body it refuses, and the proxy's has more of them."""
    return re.sub(r"<dict of \d+ items>", "<dict>", answer.body)

"""On a real vLLM, in both modes: a retry that comes in time joins the reply under way, and the next turn goes on from it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from polarproxy.cli.runner import running_proxy
from polarproxy.model import CallStatus, PromptMode, PromptOutcome
from polarproxy.proxy.parts import Parts
from polarproxy.settings import Settings
from polarproxy.trajectory.rebuilt import rebuild
from polarproxy.trajectory.repeats import RETRY_COUNT
from tests.database import fresh
from tests.e2e.vllm_server import VllmServer
from tests.models.dialogues import WEATHER_TOOL
from tests.proxy.rig import until

pytestmark = pytest.mark.vllm

ASKED = {"role": "user", "content": "What is the weather in Paris?"}
LONG: dict[str, Any] = {"max_tokens": 400, "ignore_eos": True}


async def ask(base: str, messages: list[Any], count: int, *, stream: bool = False, **more: Any) -> bytes:
    """The whole answer; each request has a connection of its own."""
    body = {"model": "tiny", "messages": messages, "tools": [WEATHER_TOOL], "temperature": 0, "stream": stream, **more}
    headers = {RETRY_COUNT: str(count)}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{base}/v1/chat/completions", json=body, headers=headers) as got,
    ):
        assert got.status == 200
        return await got.read()


def calls_back(answer: bytes) -> list[Any]:
    """What a harness adds to its history after a reply that calls a tool."""
    message = json.loads(answer)["choices"][0]["message"]
    (made,) = message["tool_calls"]
    said = {"role": "assistant", "content": message["content"], "tool_calls": [made]}
    return [said, {"role": "tool", "tool_call_id": made["id"], "content": '{"temp": 18}'}]


async def listening(parts: Parts) -> None:
    await until(lambda: [one.outlet.listening for one in parts.underway._known.values()] == [1])


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("mode", PromptMode, ids=str)
async def test_the_second_try_gets_what_the_first_left(
    vllm_chat: VllmServer, tmp_path: Path, mode: PromptMode, *, stream: bool
) -> None:
    settings = Settings(upstream=vllm_chat.url, port=0, db=fresh(tmp_path / "polar.db"), prompts=mode.value)
    async with running_proxy(settings) as (base, parts):
        base = f"{base}/s/one"
        history = [ASKED, *calls_back(await ask(base, [ASKED], 0))]
        first = asyncio.create_task(ask(base, history, 0, stream=stream, **LONG))
        await until(lambda: any(one.carrier is not None for one in parts.underway._known.values()))
        again = asyncio.create_task(ask(base, history, 1, stream=stream, **LONG))
        await listening(parts)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        answer = await again
        assert answer.endswith(b"data: [DONE]\n\n" if stream else b"}")
        await until(lambda: all(captured.delivered for captured in parts.repository.calls("one")))
        calls = parts.repository.calls("one")
        assert [captured.call.status for captured in calls] == [CallStatus.COMPLETED] * 2
        assert len(calls[1].call.completions[0].token_ids) == 400
        assert parts.underway._known == {}
        if mode is PromptMode.EXACT:
            assert [call.call.prompting and call.call.prompting.outcome for call in calls] == [
                PromptOutcome.FIRST,
                PromptOutcome.EXACT,
            ]
            assert len(rebuild("one", calls).trajectory.branches) == 1

"""The environment that a new session is given is all that each provider's SDK needs."""

import asyncio
from typing import Any

import anthropic
import boto3  # type: ignore[import-untyped]
import pytest
from google import genai

from polarproxy.model import Dialect
from tests.fakes import always
from tests.proxy.rig import Rig, Starter
from tests.sdks.record import recorded
from tests.sdks.scenes import LONG


async def given(rig: Rig, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the environment of session `s1` for a family of SDKs."""
    made = await rig.control("POST", "/api/sessions", {"session_id": "s1"})
    environment: dict[str, str] = made.json["env"][family]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


async def test_anthropic(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await start(always(LONG))
    await given(rig, "anthropic", monkeypatch)
    async with anthropic.AsyncAnthropic() as client:
        await client.messages.create(model="m", max_tokens=100, messages=[{"role": "user", "content": "hi"}])
    await recorded(rig, Dialect.MESSAGES, LONG)


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
async def test_gemini(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await start(always(LONG))
    await given(rig, "gemini", monkeypatch)
    with genai.Client() as client:
        async with client.aio as aio:
            await aio.models.generate_content(model="m", contents="hi")
    await recorded(rig, Dialect.GEMINI, LONG)


async def test_bedrock(start: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await start(always(LONG))
    await given(rig, "bedrock", monkeypatch)

    def use() -> Any:
        client = boto3.client("bedrock-runtime")
        try:
            return client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "hi"}]}])
        finally:
            client.close()

    await asyncio.to_thread(use)
    await recorded(rig, Dialect.BEDROCK, LONG)

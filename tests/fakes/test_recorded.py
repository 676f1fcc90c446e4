"""The fake, told only what a real vLLM sampled, answers every recorded request as vLLM did, byte for byte.

Only ids, times, the fingerprint and cache counts may differ. `tests/e2e/test_fake_contract.py` asks a real server the
same, so the recordings cannot grow stale unnoticed.
"""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes import FakeEngine, Script, Turn, compose
from tests.fakes.cases import CASES, MAX_MODEL_LEN, Case
from tests.fakes.record import Answer, ask
from tests.fakes.transcript import by_choice, turn

FIXTURES = Path(__file__).parent.parent / "fixtures" / "vllm"


def fixture(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))
    return content


def recorded(case: Case, *, stream: bool) -> Answer:
    return Answer(**fixture(case.name)["stream" if stream else "whole"])


def sampled(case: Case) -> Turn:
    """What the engine sampled for a case; errors sample nothing, so anything will do."""
    if case.sampled_as is None:
        return Turn((compose("never shown"),))
    return turn(fixture(case.sampled_as)["stream"]["body"].encode())


def forms(cases: tuple[Case, ...]) -> list[Any]:
    return [
        pytest.param(case, stream, id=f"{case.name}-{'stream' if stream else 'whole'}")
        for case in cases
        for stream in case.forms
    ]


async def fake_answer(script: Script, case: Case, *, stream: bool) -> Answer:
    async with FakeEngine(script, model="tiny", max_model_len=MAX_MODEL_LEN) as engine, aiohttp.ClientSession() as http:
        return await ask(http, engine.url, {**case.body, "stream": stream})


@pytest.mark.parametrize(("case", "stream"), forms(CASES))
async def test_the_fake_answers_as_recorded(case: Case, stream: bool) -> None:
    expected = recorded(case, stream=stream)
    found = await fake_answer(Script((sampled(case),)), case, stream=stream)
    assert (found.status, found.content_type) == (expected.status, expected.content_type)
    assert by_choice(found.body.encode()) == by_choice(expected.body.encode())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_recording_is_of_todays_request(case: Case) -> None:
    assert fixture(case.name)["request"] == case.body


def test_every_recording_belongs_to_a_case() -> None:
    assert {path.stem for path in FIXTURES.glob("*.json")} == {case.name for case in CASES}

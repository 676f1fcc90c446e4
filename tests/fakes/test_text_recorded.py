"""As `test_recorded`, for `/v1/completions`: told what a real vLLM sampled, the fake answers as it did, byte for byte."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes import FakeEngine, Script, Turn, always, compose
from tests.fakes.cases import MAX_MODEL_LEN, Case
from tests.fakes.record import Answer, ask
from tests.fakes.text_cases import COMPLETIONS, TEXT_CASES
from tests.fakes.text_transcript import text_turn
from tests.fakes.transcript import by_choice

FIXTURES = Path(__file__).parent.parent / "fixtures" / "vllm" / "completions"


def fixture(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))
    return content


def sampled(case: Case) -> Turn:
    """What the engine sampled for a case; errors sample nothing, so anything will do."""
    if case.sampled_as is None:
        return Turn((compose("never shown"),))
    base = fixture(case.sampled_as)
    return text_turn(base["stream"]["body"].encode(), base["whole"]["body"].encode())


def forms(cases: tuple[Case, ...]) -> list[Any]:
    return [
        pytest.param(case, stream, id=f"{case.name}-{'stream' if stream else 'whole'}")
        for case in cases
        for stream in case.forms
    ]


async def fake_answer(turn: Turn, case: Case, *, stream: bool) -> Answer:
    async with (
        FakeEngine(
            always(compose("chat")),
            text_script=Script((turn,)),
            processed=False,
            model="tiny",
            max_model_len=MAX_MODEL_LEN,
        ) as engine,
        aiohttp.ClientSession() as http,
    ):
        return await ask(http, engine.url, {**case.body, "stream": stream}, COMPLETIONS)


@pytest.mark.parametrize(("case", "stream"), forms(TEXT_CASES))
async def test_the_fake_answers_as_recorded(case: Case, stream: bool) -> None:
    expected = Answer(**fixture(case.name)["stream" if stream else "whole"])
    found = await fake_answer(sampled(case), case, stream=stream)
    assert (found.status, found.content_type) == (expected.status, expected.content_type)
    assert by_choice(found.body.encode()) == by_choice(expected.body.encode())


@pytest.mark.parametrize("case", TEXT_CASES, ids=lambda case: case.name)
def test_the_recording_is_of_todays_request(case: Case) -> None:
    assert fixture(case.name)["request"] == case.body


def test_every_recording_belongs_to_a_case() -> None:
    assert {path.stem for path in FIXTURES.glob("*.json")} == {case.name for case in TEXT_CASES}

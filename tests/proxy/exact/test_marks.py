"""What a later request may go on from: a reply to the conversation as it stands, marked as its engine renders."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.fakes import FakeEngine, Faults, always, compose
from tests.fakes.chat_json import compact
from tests.fakes.toy_tokenizer import encode
from tests.proxy.exact.talk import TOOL, Talk, exact_rig, scripted, thinks

UNFIT: list[dict[str, Any]] = [
    {"kv_transfer_params": {"prompt_token_ids": encode("some other prompt")}},
    {"add_generation_prompt": False},
    {"truncate_prompt_tokens": 5},
    {"echo": True},
]


@pytest.mark.parametrize("extra", UNFIT, ids=lambda extra: next(iter(extra)))
async def test_nothing_goes_on_from_a_reply_to_another_prompt_than_the_conversation(
    tmp_path: Path, extra: dict[str, Any]
) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig)
        await talk.turn(**extra)
        await talk.turns(2)
        assert talk.outcomes() == ["fallback: unfit_request", "fallback: not_recorded", "exact"]
        assert [one.mark for one in talk.calls()[0].call.completions] == [None]
        talk.assert_exact(start=1)


async def test_a_reply_has_no_mark_of_an_engine_that_did_not_sample_it(tmp_path: Path) -> None:
    """The first engine makes the prompt and is gone before it is asked; nothing is known of the other one's template."""
    async with (
        FakeEngine(scripted(thinks)) as one,
        FakeEngine(scripted(thinks)) as other,
        exact_rig(tmp_path, upstream=f"{one.url},{other.url}", health_interval=60) as rig,
    ):
        talk = Talk(rig)
        await talk.turns(3)
        home = talk.calls()[0].call.upstream
        first, second = (one, other) if home == one.url else (other, one)
        second.render_status = 403
        await first._runner.cleanup()
        await talk.turn()
        last = talk.calls()[-1].call
        assert last.upstream == second.url
        assert talk.outcomes()[-1] == "fallback: engine_unable"
        assert [completion.mark for completion in last.completions] == [None]


@pytest.mark.parametrize("mode", ["template", "exact"])
async def test_a_reply_without_a_message_reaches_the_client_as_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    odd = compact({"id": "x", "model": "fake", "choices": [{"index": 0, "finish_reason": "stop"}]})
    real = FakeEngine._chat

    async def chat(self: FakeEngine, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if asked["messages"][-1]["content"] != "go":
            return await real(self, request)
        return web.Response(body=odd, content_type="application/json")

    monkeypatch.setattr(FakeEngine, "_chat", chat)
    async with exact_rig(tmp_path, prompts=mode) as rig:
        answer = await rig.ask({"model": "fake", "messages": [{"role": "user", "content": "go"}]})
        assert (answer.status, answer.json["choices"]) == (200, [{"index": 0, "finish_reason": "stop"}])


async def test_a_call_that_the_engine_failed_does_not_count_as_exact(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig)
        await talk.turns(2)
        counted, reused = dict(rig.parts.exact.outcomes), rig.parts.exact.reused_tokens
        rig.engine._script = always(compose("x"), faults=Faults(status=500))
        answer = await rig.ask({"model": "fake", "messages": talk.messages, "tools": [TOOL]})
        assert answer.status == 500
        assert (dict(rig.parts.exact.outcomes), rig.parts.exact.reused_tokens) == (counted, reused)

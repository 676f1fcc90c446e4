"""Who says where prompts come from: a trusted request, its session, the proxy; and who may."""

from pathlib import Path
from typing import Any

import pytest

from polarproxy.model import PromptOutcome
from polarproxy.proxy.exact.modes import HEADER
from tests.proxy.exact.talk import Talk, exact_rig
from tests.proxy.rig import Rig

ADMIN = {"authorization": "Bearer boss"}


async def is_exact(rig: Rig, session: str, headers: dict[str, str] | None = None) -> bool:
    talk = Talk(rig, session, headers=headers or {})
    await talk.turn()
    return talk.calls()[-1].call.prompting is not None


async def made(rig: Rig, prompts: str | None, headers: dict[str, str] | None = None) -> Any:
    body = {"session_id": f"made-{prompts}", **({} if prompts is None else {"prompts": prompts})}
    answer = await rig.control("POST", "/api/sessions", body, headers)
    assert answer.status == 201, answer.body
    return answer.json


@pytest.mark.parametrize("setting", ["template", "exact"])
async def test_a_session_says_otherwise_than_the_proxy(tmp_path: Path, setting: str) -> None:
    async with exact_rig(tmp_path, prompts=setting) as rig:
        for prompts in (None, "template", "exact"):
            await made(rig, prompts)
            assert await is_exact(rig, f"made-{prompts}") == ((prompts or setting) == "exact")
        assert await is_exact(rig, "unnamed") == (setting == "exact")
    # As the store has it, too.
    async with exact_rig(tmp_path, prompts=setting) as rig:
        for prompts in (None, "template", "exact"):
            assert await is_exact(rig, f"made-{prompts}") == ((prompts or setting) == "exact")


async def test_a_request_says_otherwise_than_its_session(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        await made(rig, "template")
        assert await is_exact(rig, "made-template", {HEADER: "Exact "})
        assert not await is_exact(rig, "made-template")
        assert not await is_exact(rig, "unnamed", {HEADER: "template"})
        sent = [request for request in rig.received if HEADER in request.headers]
        assert sent == []


@pytest.mark.parametrize("headers", [{}, ADMIN, {"authorization": "Bearer somebody"}], ids=["none", "admin", "other"])
@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])
async def test_only_who_is_trusted_is_heeded(tmp_path: Path, headers: dict[str, str], signed: bool) -> None:
    async with exact_rig(tmp_path, prompts="template", admin_key="boss") as rig:
        key = (await made(rig, None, ADMIN))["api_key"]
        asked = headers | {HEADER: "exact"} | ({"x-api-key": key} if signed else {})
        heeded = signed or headers == ADMIN
        assert await is_exact(rig, "made-None", asked) == heeded
        losses = rig.calls("made-None")[0].call.losses
        assert [loss.where for loss in losses] == ([] if heeded else [HEADER])
        assert all("signed session key" in loss.why for loss in losses)


async def test_a_trusted_request_that_asks_for_what_there_is_not_is_told(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        answer = await rig.ask(headers={HEADER: "exacting"})
        assert answer.status == 400
        assert "must be one of template, exact" in answer.error["message"]
        assert (await rig.ask()).status == 200
        assert [captured.call.ordinal for captured in rig.calls()] == [0]


async def test_a_session_that_can_never_be_exact_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        rig.engine.render_status = 403
        answer = await rig.control("POST", "/api/sessions", {"prompts": "exact"})
        assert answer.status == 501
        assert "start vLLM with --enable-scale-out" in answer.error["message"]
        assert (await rig.control("POST", "/api/sessions", {"prompts": "template"})).status == 201
        assert (await rig.control("POST", "/api/sessions", {"prompts": "Exact"})).status == 400


async def test_a_session_is_taken_when_the_engine_cannot_be_asked_now(tmp_path: Path) -> None:
    async with exact_rig(tmp_path, upstream="http://127.0.0.1:9") as rig:
        assert (await rig.control("POST", "/api/sessions", {"prompts": "exact"})).status == 201


async def test_what_became_of_the_prompts_is_counted(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig)
        await talk.turns(3)
        talk.messages[1] |= {"content": "I never said that."}
        await talk.turn()
        await talk.turn(continue_final_message=True)
        stats = (await rig.control("GET", "/api/stats")).json
        lengths = [
            one.continued.length for one in talk.promptings() if one.outcome is PromptOutcome.EXACT and one.continued
        ]
        assert stats["exact_prompts"] == {"first": 1, "exact": len(lengths), **fallbacks(talk)}
        assert stats["reused_tokens"] == sum(lengths) > 0


def fallbacks(talk: Talk) -> dict[str, int]:
    reasons = [one.reason for one in talk.promptings() if one.reason is not None]
    return {reason: reasons.count(reason) for reason in reasons}

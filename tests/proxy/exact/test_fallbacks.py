"""Whatever stands in the way of an exact prompt, the engine is asked as it would be without us, and the record says why."""

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from polarproxy.model import CallStatus, FallbackReason, PromptOutcome
from polarproxy.proxy.exact import prompts
from polarproxy.trajectory.eligibility import Reason
from tests.fakes import Faults, Tool, always, compose
from tests.fakes.toy_tokenizer import prompt_ids
from tests.proxy.exact.talk import TOOL, Talk, exact_rig, forced, renders, scripted, thinks
from tests.proxy.rig import Rig, until

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
ANY = {"role": "user", "content": "Go on."}
PREFILL = {"role": "assistant", "content": "I begin"}


async def ask(talk: Talk, *more: dict[str, Any], **extra: Any) -> int:
    """The status of one more request that says this at its end."""
    body = {"model": "fake", "messages": [*talk.messages, *more], "tools": [TOOL], **extra}
    return (await talk.rig.ask(body, f"/s/{talk.session}")).status


async def test_nothing_goes_on_from_a_reply_that_no_key_tells(tmp_path: Path) -> None:
    """The first request lets its tool be loaded later, which its template may heed; the second does not."""
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig)
        await talk.turn(tools=[TOOL | {"defer_loading": True}])
        await talk.turn()
        assert talk.outcomes() == ["fallback: unfit_request", "fallback: not_recorded"]


async def begun(rig: Rig, turns: int = 2) -> Talk:
    talk = Talk(rig)
    await talk.turns(turns)
    return talk


@pytest.mark.parametrize(
    ("more", "extra", "reason"),
    [
        ([{"role": "user", "content": [IMAGE]}], {}, FallbackReason.MEDIA),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], {}, FallbackReason.MEDIA),
        ([{"role": "user", "content": [{"type": "prompt_embeds", "data": "AAAA"}]}], {}, FallbackReason.MEDIA),
        ([{"role": "developer", "content": "You.", "tools": [TOOL]}, ANY], {}, FallbackReason.UNFIT_REQUEST),
        ([PREFILL], {"continue_final_message": True, "add_generation_prompt": False}, FallbackReason.PREFILL),
        ([], {"kv_transfer_params": {"do_remote_decode": False}}, FallbackReason.UNFIT_REQUEST),
        ([], {"echo": True}, FallbackReason.UNFIT_REQUEST),
        (
            [],
            {"messages": [{"role": "user", "content": "x"}, PREFILL, {"role": "user", "content": "y"}]},
            "not_recorded",
        ),
        ([], {"chat_template_kwargs": {"enable_thinking": False}}, FallbackReason.NOT_RECORDED),
    ],
)
async def test_of_the_request(tmp_path: Path, more: list[Any], extra: dict[str, Any], reason: str) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = await begun(rig)
        assert await ask(talk, *more, **extra) == 200
        assert talk.outcomes()[-1] == f"fallback: {reason}"
        assert len(forced(rig)) == 1
        sent = rig.received[-1].json
        call = talk.calls()[-1].call
        if "messages" not in extra and reason != "media":
            assert list(call.prompt_token_ids or ()) == prompt_ids(sent["messages"], sent["tools"])
        assert rig.parts.exact.outcomes[reason] == 1


async def test_a_first_turn_with_media_is_no_exact_one(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig, messages=[{"role": "user", "content": [IMAGE]}])
        assert await ask(talk) == 200
        assert talk.outcomes() == ["fallback: media"]
        assert [one.mark for one in talk.calls()[0].call.completions] == [None]


async def test_a_reply_that_broke_off_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        rig.engine._script = always(compose("one two three"), faults=Faults(hold_after=4))
        body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        assert await rig.parts.exact.why_unable(rig.parts.fleet.members[0]) is None
        async with rig.asking(body) as response:
            for _ in range(4):
                await response.content.readuntil(b"\n\n")
            response.close()
        (completion,) = (await rig.call()).call.completions
        assert len(completion.token_ids) == 3
        assert completion.mark is None


async def test_edited_reasoning(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig)
        said = await talk.turn()
        talk.messages[1]["reasoning"] = "I thought something else."
        await talk.turn()
        assert talk.outcomes()[-1] == "fallback: reasoning_edited"
        talk.messages[1]["reasoning"] = said["reasoning"]
        await talk.turn()
        assert talk.outcomes()[-1] == "exact"


@pytest.mark.parametrize("status", [403, 404])
async def test_an_engine_that_does_not_render(tmp_path: Path, status: int) -> None:
    async with exact_rig(tmp_path) as rig:
        rig.engine.render_status = status
        talk = await begun(rig)
        assert talk.outcomes() == ["fallback: engine_unable"] * 2
        assert f"answers {status}" in (talk.promptings()[0].detail or "")
        assert forced(rig) == []


async def test_a_budget_for_thinking_after_a_turn_that_was_cut(tmp_path: Path) -> None:
    """The engine would count what the cut turn had thought."""
    async with exact_rig(tmp_path, lambda _: compose("I go on and on")) as rig:
        talk = Talk(rig)
        await talk.turn(max_tokens=2)
        assert talk.calls()[0].call.completions[0].finish_reason == "length"
        await talk.turn(thinking_token_budget=100)
        assert talk.outcomes()[-1] == "fallback: unfit_request"
        await talk.turn(thinking_token_budget=100)
        assert talk.outcomes()[-1] == "exact"


async def test_an_engine_that_ignores_prompts(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        rig.engine.takes_prompts = False
        talk = await begun(rig)
        assert talk.outcomes() == ["fallback: engine_unable"] * 2
        assert "ignores prompt ids" in (talk.promptings()[0].detail or "")


async def test_rendering_that_fails_later(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = await begun(rig)
        rig.engine.render_status = 500
        await talk.turn()
        rig.engine.render_status = 200
        await talk.turn()
        assert talk.outcomes()[2:] == ["fallback: render_failed", "exact"]
        assert "answers 500" in (talk.promptings()[2].detail or "")


async def test_rendering_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = await begun(rig)
        monkeypatch.setattr(prompts, "PATIENCE_S", 0.1)
        rig.engine.holds_renders = True
        await talk.turn()
        assert talk.outcomes()[-1] == "fallback: render_failed"
        # What is not waited for is not left to the engine either.
        await rig.engine.until(lambda engine: bool(engine.disconnects))


async def test_a_prompt_that_leaves_no_room(tmp_path: Path) -> None:
    """The engine's own words about that are those that harnesses know."""
    async with exact_rig(tmp_path) as rig:
        talk = await begun(rig)
        await rig.parts.fleet.members[0].facts()
        facts = rig.parts.fleet.members[0]
        kept = len(talk.calls()[-1].call.prompt_token_ids or ())
        rig.engine.max_model_len = kept + 20
        facts.doubt()
        body = {"model": "fake", "messages": talk.messages, "tools": [TOOL]}
        found, expected = await rig.ask(body), await rig.ask_engine(body)
        assert (found.status, found.body) == (expected.status, expected.body)
        assert talk.outcomes()[-1] == "fallback: too_long"


@pytest.mark.parametrize(("room", "outcome"), [(0, "fallback: too_long"), (1, "exact")])
async def test_room_for_one_token_is_room(tmp_path: Path, room: int, outcome: str) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = await begun(rig)
        asked = [*talk.messages]
        await talk.turn()
        assert talk.outcomes()[-1] == "exact"
        rig.engine.max_model_len = len(talk.calls()[-1].call.prompt_token_ids or ()) + room
        rig.parts.fleet.members[0].doubt()
        await rig.ask({"model": "fake", "messages": asked, "tools": [TOOL], "max_tokens": 1})
        assert talk.outcomes()[-1] == outcome


async def test_an_engine_that_refuses_the_prompt(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = await begun(rig)
        body = {"model": "fake", "messages": talk.messages, "tools": [TOOL], "n": 0}
        found, expected = await rig.ask(body), await rig.ask_engine(body)
        assert (found.status, found.body) == (400, expected.body)
        assert talk.outcomes()[-1] == "fallback: engine_refused"
        assert talk.calls()[-1].call.status is CallStatus.REJECTED
        assert await ask(talk) == 200
        assert talk.outcomes()[-1] == "exact"


async def test_another_template_than_the_turn_was_recorded_under(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = await begun(rig)
    with sqlite3.connect(tmp_path / "polar.db") as connection:
        connection.execute("UPDATE completions SET turn_template = 'another'")
    connection.close()
    async with exact_rig(tmp_path) as rig:
        again = Talk(rig, messages=talk.messages)
        await again.turn()
        assert again.outcomes()[-1] == "fallback: template_changed"


async def test_a_store_that_cannot_be_read(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = await begun(rig)
    with sqlite3.connect(tmp_path / "polar.db") as connection:
        connection.execute("UPDATE completions SET length = length + 1")
    connection.close()
    async with exact_rig(tmp_path) as rig:
        again = Talk(rig, messages=talk.messages)
        answer = await rig.ask({"model": "fake", "messages": again.messages, "tools": [TOOL]})
        assert answer.status == 200
        assert rig.parts.exact.outcomes["store_failed"] == 1


async def test_a_fault_of_ours_costs_the_client_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = await begun(rig)
        monkeypatch.setattr(prompts, "plan", None)
        await talk.turn()
        assert talk.outcomes()[-1] == "fallback: unreadable"
        assert "polarproxy failed" in (talk.promptings()[-1].detail or "")


async def test_an_engine_that_uses_another_prompt_is_at_fault(tmp_path: Path) -> None:
    """It is replaced by one that takes no prompts, behind our back."""
    async with exact_rig(tmp_path) as rig:
        talk = await begun(rig, 1)
        rig.engine.takes_prompts = False
        await talk.turns(2)
        first, fault, after = talk.promptings()
        assert (first.outcome, fault.outcome) == (PromptOutcome.FIRST, PromptOutcome.FAULT)
        assert fault.reason == "the engine says that it used another prompt than the one that it was given"
        assert (after.outcome, after.reason) == (PromptOutcome.FALLBACK, "engine_unable")
        trajectory = await talk.trajectory()
        assert [entry.reason for entry in trajectory.left_out] == [Reason.OTHER_PROMPT]
        assert rig.parts.exact.outcomes["fault"] == 1
        # What was sampled after an unknown prompt is nothing to go on from.
        faulty = talk.calls()[1].call
        assert [one.mark for one in faulty.completions] == [None]
        rig.engine.takes_prompts = True
        rig.parts.fleet.members[0].doubt()
        del talk.messages[4:]
        talk.messages.append({"role": "user", "content": "And after that one?"})
        await talk.turn()
        continued = talk.promptings()[-1].continued
        assert continued is None or continued.call_id != faulty.call_id


async def test_an_engine_that_does_not_say_which_prompt_it_used_is_at_fault(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = await begun(rig, 1)
        rig.engine._script = lambda received: replace(scripted(thinks)(received), faults=Faults(no_prompt_ids=True))
        await talk.turn()
        fault = talk.promptings()[-1]
        assert (fault.outcome, fault.reason) == (
            PromptOutcome.FAULT,
            "the engine does not say which prompt it used",
        )
        assert talk.calls()[-1].call.prompt_token_ids is None
        assert (await talk.trajectory()).left_out_by_reason() == {"no_token_ids": 1}


@pytest.mark.parametrize("where", ["template", "request"])
async def test_a_client_that_leaves_frees_the_renderings(tmp_path: Path, where: str) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig)
        if where == "request":
            await talk.turns(2)
        else:
            # The engine is known to take prompts, and its template is not known.
            assert await rig.parts.exact.why_unable(rig.parts.fleet.members[0]) is None
        rig.engine.holds_renders = True
        before, calls, sampled = len(renders(rig)), len(talk.calls()), len(rig.received)
        asking = asyncio.create_task(talk.turn())
        await rig.engine.until(lambda _: len(renders(rig)) > before)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: len(talk.calls()) > calls)
        call = talk.calls()[-1].call
        assert (call.status, call.completions) == (CallStatus.ABORTED, ())
        assert talk.outcomes()[-1] == "fallback: left"
        if where == "request":
            await rig.engine.until(lambda engine: bool(engine.disconnects))
        assert len(rig.received) == sampled
        rig.engine.release()
        await talk.turn()


async def test_a_tool_whose_arguments_are_no_json_is_gone_on_from_all_the_same(tmp_path: Path) -> None:
    reply = compose(None, tools=[Tool("weather", '{"city": "Par')], ended=False)
    async with exact_rig(tmp_path, lambda _: reply) as rig:
        talk = await begun(rig, 2)
        assert talk.outcomes() == ["first", "exact"]

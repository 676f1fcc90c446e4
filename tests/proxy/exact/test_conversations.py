"""A conversation is one branch in exact mode, whatever its harness does to the history, and the client notices nothing."""

from pathlib import Path
from typing import Any

import pytest

from polarproxy.model import PromptOutcome, TokenIds
from tests.fakes import compose
from tests.proxy.exact.talk import Talk, back, context, exact_rig, forced, renders
from tests.proxy.rig import IDS


async def test_ten_turns_are_one_branch_with_every_token_trained(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig)
        await talk.turns(10)
        assert talk.outcomes() == ["first"] + ["exact"] * 9
        talk.assert_exact()
        assert forced(rig) == [list(one.call.prompt_token_ids or ()) for one in talk.calls()[1:]]
        trajectory = await talk.trajectory()
        assert (len(trajectory.branches), trajectory.coverage) == (1, 1.0)


async def test_the_same_forks_when_the_engine_renders(tmp_path: Path) -> None:
    async with exact_rig(tmp_path, prompts="template") as rig:
        talk = Talk(rig)
        await talk.turns(10)
        assert [captured.call.prompting for captured in talk.calls()] == [None] * 10
        assert [one.mark for captured in talk.calls() for one in captured.call.completions] == [None] * 10
        assert (forced(rig), len(renders(rig))) == ([], 1)
        assert len((await talk.trajectory()).branches) == 10


async def test_one_short_rendering_a_request_however_long_the_conversation(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        talk, counts, sizes = Talk(rig), list[int](), list[int]()
        for _ in range(8):
            before = len(renders(rig))
            await talk.turn()
            counts.append(len(renders(rig)) - before)
            sizes.append(len(renders(rig)[-1]["messages"]))
        # The template is tried out at the first; both kinds of turn are rendered for the first time at the next two.
        assert counts[3:] == [1] * 5
        assert max(sizes[1:]) <= 4


@pytest.mark.parametrize("asked", [{}, IDS, {"include_reasoning": False}], ids=["plain", "ids", "no_reasoning"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_the_client_sees_what_the_engine_says_after_that_prompt(
    tmp_path: Path, asked: dict[str, Any], stream: bool
) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig)
        await talk.turns(3)
        body = {"model": "fake", "messages": talk.messages, "tools": talk.extra.get("tools"), "stream": stream, **asked}
        body["tools"] = renders(rig)[-1]["tools"]
        found = await rig.ask(body, headers={"x-request-id": "same"})
        (prompt,) = forced(rig)[-1:]
        direct = body | {"kv_transfer_params": {"prompt_token_ids": prompt}}
        expected = await rig.ask_engine(direct, headers={"x-request-id": "same"})
        assert talk.outcomes()[-1] == "exact"
        assert (found.status, found.headers["content-type"]) == (200, expected.headers["content-type"])
        assert without_times(found.body) == without_times(expected.body)


def without_times(body: bytes) -> list[bytes]:
    return [part for part in body.split(b",") if not part.startswith((b'"created":', b'"id":"chatcmpl-tool'))]


async def test_each_of_several_choices_can_be_gone_on_from(tmp_path: Path) -> None:
    replies = [compose(f"Answer {number}.", reasoning="Hm.") for number in range(3)]
    async with exact_rig(tmp_path, lambda _: replies) as rig:
        for choice in (2, 0, 1):
            session = f"s{choice}"
            first = [{"role": "user", "content": "Which?"}]
            answer = await rig.ask({"model": "fake", "messages": first, "n": 3}, f"/s/{session}")
            said = answer.json["choices"][choice]["message"]
            more = [*first, back(said), {"role": "user", "content": "Go on."}]
            assert (await rig.ask({"model": "fake", "messages": more}, f"/s/{session}")).status == 200
            before, after = (captured.call for captured in rig.calls(session))
            assert after.prompting is not None
            assert after.prompting.continued is not None
            assert after.prompting.continued.choice == choice
            assert after.prompt_token_ids is not None
            assert after.prompt_token_ids.startswith(context(before, choice))


async def test_a_reply_that_was_cut_is_closed_as_the_template_closes_it(tmp_path: Path) -> None:
    async with exact_rig(tmp_path, lambda messages: compose("one two three four", reasoning="Hm.")) as rig:
        talk = Talk(rig)
        await talk.turn(max_tokens=6)
        await talk.turn()
        before, after = (captured.call for captured in talk.calls())
        assert [str(one.finish_reason) for one in before.completions] == ["length"]
        kept = context(before)
        assert after.prompt_token_ids is not None
        assert after.prompt_token_ids.startswith(kept)
        assert talk.outcomes() == ["first", "exact"]
        (end,) = after.prompt_token_ids.cut(len(kept), len(kept) + 1)
        assert end == compose("x").token_ids[-1]


async def test_branches_of_one_session_each_go_on_from_their_own(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig)
        await talk.turns(2)
        other = Talk(rig, messages=[{"role": "user", "content": "A sub-agent's task"}])
        await other.turn()
        fork = Talk(rig, messages=[*talk.messages[:-1], {"role": "user", "content": "Another question"}])
        await talk.turn()
        await other.turn()
        await fork.turn()
        ids = [captured.call.call_id for captured in talk.calls()]
        continued = [prompting.continued and ids.index(prompting.continued.call_id) for prompting in talk.promptings()]
        assert continued == [None, 0, None, 1, 2, 1]


async def test_after_an_edit_it_goes_on_from_the_turn_before(tmp_path: Path) -> None:
    """What the client wrote instead is rendered, behind the tokens that are still what was said."""
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig)
        await talk.turns(3)
        last = next(message for message in reversed(talk.messages) if message["role"] == "assistant")
        last |= {"content": "I never said that."}
        await talk.turn()
        calls = [captured.call for captured in talk.calls()]
        prompting = talk.promptings()[-1]
        assert prompting.outcome is PromptOutcome.EXACT
        assert prompting.continued is not None
        assert prompting.continued.call_id == calls[1].call_id
        assert calls[3].prompt_token_ids is not None
        assert calls[3].prompt_token_ids.startswith(context(calls[1]))


async def test_a_restart_loses_nothing(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        talk = Talk(rig)
        await talk.turns(3)
    async with exact_rig(tmp_path) as rig:
        again = Talk(rig, messages=talk.messages)
        await again.turns(3)
        assert again.outcomes() == ["first"] + ["exact"] * 5
        again.assert_exact()
        assert (await again.trajectory()).coverage == 1.0


async def test_a_session_that_was_not_exact_from_the_start(tmp_path: Path) -> None:
    async with exact_rig(tmp_path, prompts="template") as rig:
        talk = Talk(rig)
        await talk.turns(2)
        talk.headers = {"x-polarproxy-prompts": "exact"}
        await talk.turns(2)
        found = [captured.call.prompting for captured in talk.calls()]
        assert [one and (one.outcome, one.reason) for one in found] == [
            None,
            None,
            (PromptOutcome.FALLBACK, "not_recorded"),
            (PromptOutcome.EXACT, None),
        ]


async def test_the_tokens_of_a_whole_reply_are_those_of_a_streamed_one(tmp_path: Path) -> None:
    async with exact_rig(tmp_path) as rig:
        whole, streamed = Talk(rig, "whole"), Talk(rig, "streamed")
        await whole.turns(2)
        streamed.messages = [*whole.messages]
        first = {"model": "fake", "messages": whole.messages[:1], "tools": renders(rig)[-1]["tools"]}
        await rig.ask({**first, "stream": True}, "/s/streamed")
        more = {**first, "messages": whole.messages[:3], "stream": True}
        await rig.ask(more, "/s/streamed")
        prompts = [[one.call.prompt_token_ids for one in talk.calls()] for talk in (whole, streamed)]
        assert prompts[0] == prompts[1]
        assert isinstance(prompts[0][1], TokenIds)
        keys = [[one.call.completions[0].mark for one in talk.calls()] for talk in (whole, streamed)]
        assert [mark and mark.key for mark in keys[0]] == [mark and mark.key for mark in keys[1]]

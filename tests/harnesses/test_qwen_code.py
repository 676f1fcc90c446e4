"""Qwen Code 0.24.4: chat, streamed; it tells no session, so the path of its base URL does."""

import pytest

from tests.fakes import Turn
from tests.harnesses.by_recipe import by_recipe, options_of
from tests.harnesses.conftest import Opener
from tests.harnesses.scripted import Ask, Rule, asked, cut, fails, filled, offered, overflows, says, uses
from tests.harnesses.stage import header, statuses
from tests.harnesses.story import Story

pytestmark = pytest.mark.harness

PROMPT = "create out.txt containing hello"
ACT = uses(
    "run_shell_command", text="I will run a command.", reasoning="A file is wanted.", command="echo hello > out.txt"
)
DONE = says("Done: out.txt contains hello.")
QWEN = by_recipe("qwen-code", "path", context=200_000)


def start(*options: str) -> list[str]:
    return [*options_of("qwen-code"), *options]


def main(*turns: Turn) -> Rule:
    return Rule("main", offered("agent"), turns)


def compacting(ask: Ask) -> bool:
    """The one request that asks for a shorter answer than all others."""
    return bool(ask.body.get("max_tokens") == 20_000)


COMPACTION = Rule("compaction", compacting, (says("<state_snapshot>out.txt was made.</state_snapshot>"),))


async def test_a_tool_call_an_answer_and_a_second_prompt(perform: Opener) -> None:
    stage = await perform(QWEN, main(ACT, DONE, says("Yes, I did.")))
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "Done: out.txt contains hello."), ended
    assert (stage.place.repo / "out.txt").read_text() == "hello\n"
    ended = await stage.tell("did you?", resume=True)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "Yes, I did."), ended
    assert any("out.txt contains hello" in said for said in stage.scenario.played[2].ask.said)
    calls = await stage.record()
    assert statuses(calls) == ["completed"] * 3
    assert all(call.streamed for call in calls)
    assert all(str(header(call, "user-agent")).startswith("QwenCode/") for call in calls)


async def test_a_sub_agent(perform: Opener) -> None:
    """It works in the background: the main agent goes on, and is told the result later."""
    task = "Please reply with the word pong."
    agent = uses("agent", description="sub task", prompt=task, subagent_type="general-purpose")
    sub = Rule("sub", asked(task), (says("pong"),))
    stage = await perform(QWEN, sub, main(agent, says("I wait."), says("It said pong.")))
    ended = await stage.tell("ask a sub-agent")
    assert ended.exit_code == 0, ended
    assert "It said pong." in ended.stdout
    assert sorted(stage.scenario.order) == ["main", "main", "main", "sub"]
    assert "pong" in stage.scenario.asks("main")[2].last
    assert statuses(await stage.record()) == ["completed"] * 4
    assert stage.story() == Story({"main": 3, "subagent": 1}, {}, (None,))


async def test_a_prompt_near_the_window_is_compacted(perform: Opener) -> None:
    stage = await perform(QWEN, COMPACTION, main(filled(ACT, 172_000), DONE))
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "Done: out.txt contains hello."), ended
    assert stage.scenario.order == ["main", "compaction", "main"]
    assert any("out.txt was made." in said for said in stage.scenario.played[2].ask.said)
    assert statuses(await stage.record()) == ["completed"] * 3
    assert stage.story() == Story({"compaction": 1, "main": 2}, {"side_call": 1})


async def test_an_overflow_is_compacted(perform: Opener) -> None:
    stage = await perform(QWEN, COMPACTION, main(ACT, overflows(), DONE))
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "Done: out.txt contains hello."), ended
    assert stage.scenario.order == ["main", "main", "compaction", "main"]
    calls = await stage.record()
    assert statuses(calls) == ["completed", "rejected", "completed", "completed"]
    assert calls[1].http_status == 400
    assert stage.story() == Story({"compaction": 1, "main": 3}, {"rejected": 1, "side_call": 1})


async def test_a_failure_and_cuts_are_tried_again(perform: Opener) -> None:
    stage = await perform(QWEN, main(fails(500), cut(ACT, "text"), cut(ACT, "call"), ACT, DONE))
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "Done: out.txt contains hello."), ended
    # After a cut it keeps the text that it had seen, and asks to go on from there.
    assert [len(ask.said) for ask in stage.scenario.asks("main")[:2]] == [2, 2]
    calls = await stage.record()
    assert statuses(calls) == ["engine_error"] * 3 + ["completed"] * 2
    assert [header(call, "x-stainless-retry-count") for call in calls] == ["0", "1", "0", "0", "0"]
    story = stage.story()
    assert story.kinds == {"main": 5}
    # What was asked again, and what the history keeps a part of; what it keeps whole is trained.
    assert 2 <= sum(story.left_out.values()) <= 3
    assert set(story.left_out) <= {"failed", "superseded"}

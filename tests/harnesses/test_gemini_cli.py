"""Gemini CLI 0.61.0: generateContent, streamed for the main loop and whole for its helpers, which name other models."""

import json
from dataclasses import replace

import pytest

from tests.fakes import Turn
from tests.harnesses.by_recipe import by_recipe, options_of
from tests.harnesses.conftest import Opener
from tests.harnesses.scripted import (
    Rule,
    cut,
    fails,
    offered,
    overflows,
    says,
    uses,
    wants_json,
    without_tools,
)
from tests.harnesses.stage import MODEL, header, statuses
from tests.harnesses.story import Story

pytestmark = pytest.mark.harness

PROMPT = "create out.txt containing hello"
ACT = uses(
    "run_shell_command", text="I will run a command.", reasoning="A file is wanted.", command="echo hello > out.txt"
)
DONE = says("Done: out.txt contains hello.")
GEMINI = by_recipe(
    "gemini-cli", files=lambda text: text.replace("{\n", '{"model": {"compressionThreshold": 0.001},\n', 1)
)


def start(*options: str) -> list[str]:
    """Without a model, so that it asks its router."""
    command = options_of("gemini-cli")
    return [*command[: command.index("-m")], *options]


def main(*turns: Turn) -> Rule:
    return Rule("main", offered("invoke_agent"), turns)


async def test_a_tool_call_an_answer_and_a_second_prompt(perform: Opener) -> None:
    stage = await perform(GEMINI, main(ACT, DONE, says("Yes, I did.")))
    ended = await stage.tell(PROMPT)
    assert ended.exit_code == 0, ended
    assert ended.stdout.splitlines()[-1] == "Done: out.txt contains hello."
    assert (stage.place.repo / "out.txt").read_text() == "hello\n"
    ended = await stage.tell("did you?", resume=True)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "Yes, I did."), ended
    calls = await stage.record()
    assert statuses(calls) == ["completed"] * 3
    assert all(call.streamed for call in calls)
    assert all(call.path.endswith(f"/v1beta/models/{MODEL}:streamGenerateContent") for call in calls)
    assert all(str(header(call, "user-agent")).startswith("GeminiCLI-tui/0.61.0/") for call in calls)


async def test_its_router_and_other_models(perform: Opener) -> None:
    """Left to choose, it asks one model which other to use; the engine's one model plays both."""
    verdict = json.dumps({"complexity_reasoning": "one file", "complexity_score": 1})
    router = Rule("router", wants_json, (says(verdict),))
    stage = await perform(replace(GEMINI, command=lambda prompt: start("-p", prompt)), router, main(DONE))
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "Done: out.txt contains hello."), ended
    assert stage.scenario.order == ["router", "main"]
    calls = await stage.record()
    assert [call.streamed for call in calls] == [False, True]
    assert all(str(call.requested_model).startswith("gemini-3") for call in calls)
    assert {call.served_model for call in calls} == {MODEL}
    assert stage.story() == Story({"main": 1, "probe": 1}, {"side_call": 1})


async def test_a_sub_agent(perform: Opener) -> None:
    task = "Please reply with the word pong."
    agent = uses("invoke_agent", agent_name="generalist", prompt=task)
    sub = Rule("sub", offered("complete_task"), (uses("complete_task", result={"response": "pong"}),))
    stage = await perform(GEMINI, sub, main(agent, says("It said pong.")))
    ended = await stage.tell("ask a sub-agent")
    assert (ended.exit_code, ended.stdout.strip()) == (0, "It said pong."), ended
    assert stage.scenario.order == ["main", "sub", "main"]
    assert "pong" in stage.scenario.asks("main")[1].last
    assert statuses(await stage.record()) == ["completed"] * 3
    assert stage.story() == Story({"main": 2, "subagent": 1}, {}, (None,))


async def test_a_long_history_is_compacted(perform: Opener) -> None:
    """Before the second prompt, by two calls that are not streamed."""
    snapshot = says("<state_snapshot>out.txt was made.</state_snapshot>")
    compaction = Rule("compaction", without_tools, (snapshot, snapshot))
    story = says(" ".join(f"Line {number} of a story." for number in range(1500)))
    stage = await perform(GEMINI, compaction, main(story, DONE))
    assert (await stage.tell("tell a story")).exit_code == 0
    ended = await stage.tell("and now?", resume=True)
    assert ended.exit_code == 0, ended
    assert stage.scenario.order == ["main", "compaction", "compaction", "main"]
    assert any("out.txt was made." in said for said in stage.scenario.asks("main")[1].said)
    calls = await stage.record()
    assert statuses(calls) == ["completed"] * 4
    assert [call.streamed for call in calls] == [True, False, False, True]
    assert stage.story() == Story({"compaction": 2, "main": 2}, {"side_call": 2})


async def test_an_overflow_ends_it(perform: Opener) -> None:
    stage = await perform(GEMINI, main(ACT, overflows()))
    ended = await stage.tell(PROMPT)
    assert ended.exit_code == 1, ended
    assert "maximum context length is 262144 tokens" in ended.stderr
    calls = await stage.record()
    assert statuses(calls) == ["completed", "rejected"]
    assert calls[1].http_status == 400
    assert stage.story() == Story({"main": 2}, {"rejected": 1})


async def test_a_failure_and_a_cut_are_tried_again(perform: Opener) -> None:
    """It waits about five seconds after the failure, and cannot be told to wait less."""
    stage = await perform(GEMINI, main(fails(500), cut(ACT, "text"), ACT, DONE))
    ended = await stage.tell(PROMPT)
    assert ended.exit_code == 0, ended
    assert ended.stdout.splitlines()[-1] == "Done: out.txt contains hello."
    lengths = [len(ask.said) for ask in stage.scenario.asks("main")]
    assert lengths[:3] == [lengths[0]] * 3
    assert statuses(await stage.record()) == ["engine_error"] * 2 + ["completed"] * 2
    story = stage.story()
    assert story.kinds == {"main": 4}
    # What was asked again, and what the history keeps a part of; what it keeps whole is trained.
    assert 1 <= sum(story.left_out.values()) <= 2
    assert set(story.left_out) <= {"failed", "superseded"}

"""mini-swe-agent 2.4.6: chat, never streamed, one tool; it ends when a command prints its password."""

import json

import pytest

from tests.fakes import Turn
from tests.harnesses.by_recipe import by_recipe
from tests.harnesses.conftest import Opener
from tests.harnesses.scripted import Rule, cut_whole, fails, offered, overflows, uses
from tests.harnesses.stage import header, statuses
from tests.harnesses.story import Story

pytestmark = pytest.mark.harness

PROMPT = "create out.txt containing hello"
ACT = uses("bash", text="I will run a command.", reasoning="A file is wanted.", command="echo hello > out.txt")
FINISH = uses("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat out.txt")


MINI = by_recipe("mini-swe-agent")


def main(*turns: Turn) -> Rule:
    return Rule("main", offered("bash"), turns)


async def test_a_tool_call_and_the_end(perform: Opener) -> None:
    stage = await perform(MINI, main(ACT, FINISH))
    ended = await stage.tell(PROMPT)
    assert ended.exit_code == 0, ended
    assert (stage.place.repo / "out.txt").read_text() == "hello\n"
    trajectory = json.loads((stage.place.home / "trajectory.json").read_text())
    assert trajectory["info"]["exit_status"] == "Submitted"
    assert trajectory["info"]["submission"].strip() == "hello"
    # The later prompt goes on where the engine left off: arguments with their spaces, and the reasoning.
    message = stage.scenario.asks("main")[1].body["messages"][2]
    assert message["tool_calls"][0]["function"]["arguments"] == '{"command": "echo hello > out.txt"}'
    assert message["reasoning_content"] == "A file is wanted."
    calls = await stage.record()
    assert statuses(calls) == ["completed", "completed"]
    assert not any(call.streamed for call in calls)
    assert all(str(header(call, "user-agent")).startswith("OpenAI/Python") for call in calls)
    assert stage.story() == Story({"main": 2}, {})


async def test_a_failure_and_a_cut_are_tried_again(perform: Opener) -> None:
    stage = await perform(MINI, main(fails(500), cut_whole(ACT), ACT, FINISH))
    ended = await stage.tell(PROMPT)
    assert ended.exit_code == 0, ended
    assert (stage.place.repo / "out.txt").exists()
    calls = await stage.record()
    assert statuses(calls) == ["engine_error", "engine_error", "completed", "completed"]
    assert [header(call, "x-stainless-retry-count") for call in calls] == ["0", "1", "2", "0"]
    story = stage.story()
    assert story.kinds == {"main": 4}
    # What was asked again, and what the history keeps a part of; what it keeps whole is trained.
    assert 1 <= sum(story.left_out.values()) <= 2
    assert set(story.left_out) <= {"failed", "superseded"}


async def test_an_overflow_ends_it(perform: Opener) -> None:
    stage = await perform(MINI, main(ACT, overflows()))
    ended = await stage.tell(PROMPT)
    trajectory = json.loads((stage.place.home / "trajectory.json").read_text())
    assert trajectory["info"]["exit_status"] == "ContextWindowExceededError", ended
    calls = await stage.record()
    assert statuses(calls) == ["completed", "rejected"]
    assert calls[1].http_status == 400

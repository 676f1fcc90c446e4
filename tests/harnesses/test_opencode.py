"""OpenCode 1.18.33 over chat: a title beside the first turn, session ids in its headers, its own sub-agents."""

import pytest

from tests.fakes import Turn
from tests.harnesses.by_recipe import by_recipe
from tests.harnesses.conftest import Opener
from tests.harnesses.scripted import Rule, asked, cut, fails, filled, offered, overflows, says, uses
from tests.harnesses.stage import MODEL, header, statuses
from tests.harnesses.story import Story

pytestmark = pytest.mark.harness

PROMPT = "create out.txt containing hello"
ACT = uses("bash", text="I will run a command.", reasoning="A file is wanted.", command="echo hello > out.txt")
DONE = says("Done: out.txt contains hello.")
SMALL = "mock-small"


def small(text: str) -> str:
    """Its configuration with a small model beside the other, and a header of the user's."""
    named = text.replace('"small_model": "polar/{model}"', f'"small_model": "polar/{SMALL}"')
    keyed = named.replace('"apiKey": "{api_key}"', '"apiKey": "{api_key}", "headers": {"X-Run-Id": "run42"}')
    return keyed.replace('"models": {', f'"models": {{"{SMALL}": {{}}, ')


OPENCODE = by_recipe("opencode", files=small)

TITLE = Rule("title", lambda ask: not ask.tools and len(ask.said) == 3, (says("A small file"),))
COMPACTION = Rule("compaction", lambda ask: not ask.tools and len(ask.said) == 2, (says("Out.txt was made."),))


def main(*turns: Turn) -> Rule:
    return Rule("main", offered("task"), turns)


async def test_a_tool_call_an_answer_and_a_second_prompt(perform: Opener) -> None:
    stage = await perform(OPENCODE, TITLE, main(ACT, DONE, says("Yes, I did.")))
    ended = await stage.tell(PROMPT)
    assert ended.exit_code == 0, ended
    assert ended.stdout.splitlines()[-1] == "Done: out.txt contains hello."
    assert (stage.place.repo / "out.txt").read_text() == "hello\n"
    ended = await stage.tell("did you?", resume=True)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "Yes, I did."), ended
    # A thought comes back, arguments are written anew.
    message = stage.scenario.asks("main")[2].body["messages"][2]
    assert message["reasoning_content"] == "A file is wanted."
    assert message["tool_calls"][0]["function"]["arguments"] == '{"command":"echo hello > out.txt"}'
    calls = await stage.record()
    assert statuses(calls) == ["completed"] * 4
    assert sorted(call.requested_model or "" for call in calls) == [MODEL] * 3 + [SMALL]
    assert {header(call, "x-run-id") for call in calls} == {"run42"}
    (own,) = {header(call, "x-session-id") for call in calls}
    assert str(own).startswith("ses_")
    assert stage.story() == Story({"main": 3, "title": 1}, {"side_call": 1})


async def test_a_sub_agent_names_its_parent(perform: Opener) -> None:
    task = "Please reply with the word pong."
    agent = uses("task", description="sub task", prompt=task, subagent_type="general")
    sub = Rule("sub", asked(task), (says("pong"),))
    stage = await perform(OPENCODE, TITLE, sub, main(agent, says("It said pong.")))
    ended = await stage.tell("ask a sub-agent")
    assert (ended.exit_code, ended.stdout.strip()) == (0, "It said pong."), ended
    calls = await stage.record()
    assert statuses(calls) == ["completed"] * 4
    (child,) = [call for call in calls if header(call, "x-parent-session-id")]
    (parent,) = {header(call, "x-session-id") for call in calls if call is not child}
    assert header(child, "x-parent-session-id") == parent
    assert header(child, "x-session-id") not in (parent, None)
    assert b"reply with the word pong" in child.request_body
    story = stage.story()
    assert (story.kinds, story.left_out) == ({"main": 2, "subagent": 1, "title": 1}, {"side_call": 1})
    (made_in,) = story.spawned_in
    assert made_in == next(call.ordinal for call in calls if call.requested_model == MODEL)


async def test_a_prompt_near_the_window_is_compacted(perform: Opener) -> None:
    stage = await perform(OPENCODE, TITLE, COMPACTION, main(filled(ACT, 130_000), DONE))
    ended = await stage.tell(PROMPT)
    assert ended.exit_code == 0, ended
    assert ended.stdout.splitlines()[-1] == "Done: out.txt contains hello."
    assert sorted(stage.scenario.order) == ["compaction", "main", "main", "title"]
    assert "Out.txt was made." in stage.scenario.asks("main")[1].said
    assert statuses(await stage.record()) == ["completed"] * 4
    assert stage.story() == Story({"compaction": 1, "main": 2, "title": 1}, {"side_call": 2})


async def test_an_overflow_is_compacted(perform: Opener) -> None:
    """It goes on with what it was told to sum up, and ends with the engine's words all the same."""
    stage = await perform(OPENCODE, TITLE, COMPACTION, main(ACT, overflows(), DONE))
    ended = await stage.tell(PROMPT)
    assert ended.exit_code == 1, ended
    assert ended.stdout.splitlines()[-1] == "Done: out.txt contains hello."
    assert "maximum context length is 262144 tokens" in ended.stderr
    assert sorted(stage.scenario.order) == ["compaction", "main", "main", "main", "title"]
    assert sorted(statuses(await stage.record())) == ["completed"] * 4 + ["rejected"]
    assert stage.story() == Story({"compaction": 1, "main": 3, "title": 1}, {"rejected": 1, "side_call": 2})


async def test_a_failure_and_a_cut_are_tried_again(perform: Opener) -> None:
    stage = await perform(OPENCODE, TITLE, main(fails(500), cut(ACT, "call"), ACT, DONE))
    ended = await stage.tell(PROMPT)
    assert ended.exit_code == 0, ended
    assert ended.stdout.splitlines()[-1] == "Done: out.txt contains hello."
    assert [len(ask.said) for ask in stage.scenario.asks("main")[:3]] == [2, 2, 2]
    assert sorted(statuses(await stage.record())) == ["completed"] * 3 + ["engine_error"] * 2
    story = stage.story()
    assert story.kinds == {"main": 4, "title": 1}
    assert story.left_out in [{"failed": 1, "side_call": 1, "superseded": 1}, {"failed": 2, "side_call": 1}]

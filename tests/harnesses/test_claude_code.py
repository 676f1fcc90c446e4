"""Claude Code 2.1.332: Messages, streamed; its session in a header, a sub-agent's id in another."""

import pytest

from tests.fakes import Turn
from tests.harnesses.by_recipe import by_recipe, options_of
from tests.harnesses.conftest import Opener
from tests.harnesses.scripted import Ask, Rule, cut, fails, filled, offered, overflows, says, told, uses
from tests.harnesses.stage import header, statuses
from tests.harnesses.story import Story

pytestmark = pytest.mark.harness

PROMPT = "create out.txt containing hello"
ACT = uses("Bash", text="I will run a command.", reasoning="A file is wanted.", command="echo hello > out.txt")
PLAIN = uses("Bash", text="I will run a command.", command="echo hello > out.txt")
DONE = says("Done: out.txt contains hello.")
WINDOW = 200_000


CLAUDE = by_recipe("claude-code", context=WINDOW, environment={"ANTHROPIC_DEFAULT_HAIKU_MODEL": "mock-small"})


def start(*options: str) -> list[str]:
    return [*options_of("claude-code"), *options]


def main(*turns: Turn) -> Rule:
    return Rule("main", offered("Agent"), turns)


def compacting(ask: Ask) -> bool:
    return "<analysis>" in ask.last and "<summary>" in ask.last


COMPACTION = Rule("compaction", compacting, (says("<summary>out.txt was made.</summary>"),))
SESSION_ID = "x-claude-code-session-id"
AGENT_ID = "x-claude-code-agent-id"


async def test_a_tool_call_an_answer_and_a_second_prompt(perform: Opener) -> None:
    stage = await perform(CLAUDE, main(ACT, DONE, says("Yes, I did.")))
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "Done: out.txt contains hello."), ended
    assert (stage.place.repo / "out.txt").read_text() == "hello\n"
    ended = await stage.tell("did you?", resume=True)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "Yes, I did."), ended
    assistant = stage.scenario.asks("main")[2].body["messages"][3]
    assert assistant["reasoning"] == "A file is wanted."
    calls = await stage.record()
    assert statuses(calls) == ["completed"] * 3
    assert all(call.streamed for call in calls)
    (own,) = {header(call, SESSION_ID) for call in calls}
    assert own
    assert {header(call, AGENT_ID) for call in calls} == {None}
    # Its billing line is in the record, and the engine never sees it.
    assert all(b"x-anthropic-billing-header" in call.request_body for call in calls)
    assert not any(b"x-anthropic-billing-header" in played.ask.received.body for played in stage.scenario.played)
    assert stage.story() == Story({"main": 3}, {})


async def test_a_sub_agent_has_an_id_in_its_parent_s_session(perform: Opener) -> None:
    """It works in the background: the main agent goes on, and is told the result later."""
    task = "Please reply with the word pong."
    agent = uses("Agent", description="sub task", prompt=task, subagent_type="general-purpose")
    sub = Rule("sub", told(task), (says("pong"),))
    stage = await perform(CLAUDE, sub, main(agent, says("I wait."), says("It said pong.")))
    ended = await stage.tell("ask a sub-agent")
    assert ended.exit_code == 0, ended
    assert ended.stdout.strip().endswith("It said pong.")
    assert sorted(stage.scenario.order) == ["main", "main", "main", "sub"]
    calls = await stage.record()
    assert statuses(calls) == ["completed"] * 4
    (child,) = [call for call in calls if header(call, AGENT_ID)]
    assert task.encode() in child.request_body
    assert len({header(call, SESSION_ID) for call in calls}) == 1
    assert stage.story() == Story({"main": 3, "subagent": 1}, {}, (0,))


async def test_a_prompt_near_the_window_is_compacted(perform: Opener) -> None:
    stage = await perform(CLAUDE, COMPACTION, main(filled(ACT, 190_000), DONE))
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "Done: out.txt contains hello."), ended
    assert stage.scenario.order == ["main", "compaction", "main"]
    assert any("out.txt was made." in said for said in stage.scenario.played[2].ask.said)
    calls = await stage.record()
    assert statuses(calls) == ["completed"] * 3
    assert len({header(call, SESSION_ID) for call in calls}) == 1
    assert stage.story() == Story({"compaction": 1, "main": 2}, {"side_call": 1})


async def test_an_overflow_is_compacted(perform: Opener) -> None:
    stage = await perform(CLAUDE, COMPACTION, main(ACT, overflows(), DONE))
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "Done: out.txt contains hello."), ended
    assert stage.scenario.order == ["main", "main", "compaction", "main"]
    calls = await stage.record()
    assert statuses(calls) == ["completed", "rejected", "completed", "completed"]
    assert calls[1].http_status == 400
    assert stage.story() == Story({"compaction": 1, "main": 3}, {"rejected": 1, "side_call": 1})


async def test_a_failure_and_cuts_are_tried_again(perform: Opener) -> None:
    stage = await perform(CLAUDE, main(fails(500), cut(PLAIN, "text"), cut(PLAIN, "call"), ACT, DONE))
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, ended.stdout.strip()) == (0, "Done: out.txt contains hello."), ended
    # After the last cut it may keep the text that it had seen whole, and ask to go on from there.
    assert [len(ask.said) for ask in stage.scenario.asks("main")[:3]] == [3, 3, 3]
    assert statuses(await stage.record()) == ["engine_error"] * 3 + ["completed"] * 2
    story = stage.story()
    assert story.kinds == {"main": 5}
    # What was asked again, and what the history keeps a part of; what it keeps whole is trained.
    assert 2 <= sum(story.left_out.values()) <= 3
    assert set(story.left_out) <= {"failed", "superseded"}


async def test_its_token_counts_are_no_calls(perform: Opener) -> None:
    """It asks two dozen times at once, and shows what it was answered."""
    stage = await perform(CLAUDE)
    ended = await stage.tell("/context")
    assert ended.exit_code == 0, ended
    assert "| Skills |" in ended.stdout
    assert sum(request.path == "/tokenize" for request in stage.engine.requests) > 20
    assert stage.scenario.played == []
    assert stage.parts.repository.session_ids() == []

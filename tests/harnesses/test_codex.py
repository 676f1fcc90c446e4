"""Codex CLI 0.171.0: Responses, over SSE and over its WebSocket; thread and session ids in headers and metadata."""

import json

import pytest

from polarproxy.model import Call
from tests.fakes import Turn
from tests.harnesses.by_recipe import by_recipe
from tests.harnesses.conftest import Opener
from tests.harnesses.process import Ended
from tests.harnesses.scripted import (
    Answer,
    Ask,
    Rule,
    cut,
    fails,
    filled,
    offered,
    overflows,
    says,
    told,
    uses,
    without_tools,
)
from tests.harnesses.stage import Harness, header, statuses
from tests.harnesses.story import Story

pytestmark = pytest.mark.harness

PROMPT = "create out.txt containing hello"
ACT = uses("exec_command", text="I will run a command.", reasoning="A file is wanted.", cmd="echo hello > out.txt")
PLAIN = uses("exec_command", text="I will run a command.", cmd="echo hello > out.txt")
DONE = says("Done: out.txt contains hello.")


CODEX = by_recipe("codex", context=125_000)
CODEX_SOCKET = by_recipe(
    "codex", "path", context=125_000, files=lambda text: text.replace("sockets = false", "sockets = true")
)


BOTH = pytest.mark.parametrize("codex", [CODEX, CODEX_SOCKET], ids=["sse", "socket"])


def main(*turns: Answer) -> Rule:
    return Rule("main", offered("exec_command"), turns)


def answer(ended: Ended) -> str:
    """The last thing that it said."""
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    said = [event["item"]["text"] for event in events if event.get("item", {}).get("type") == "agent_message"]
    assert said, ended
    return str(said[-1])


def metadata(call: Call) -> dict[str, object]:
    """What Codex says of a request beside its ids: in its body, for a socket's headers are those of its opening."""
    said = json.loads(call.request_body)["client_metadata"]["x-codex-turn-metadata"]
    return dict(json.loads(said))


@BOTH
async def test_a_tool_call_an_answer_and_a_second_prompt(perform: Opener, codex: Harness) -> None:
    stage = await perform(codex, main(ACT, DONE, says("Yes, I did.")))
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, answer(ended)) == (0, "Done: out.txt contains hello."), ended
    assert (stage.place.repo / "out.txt").read_text() == "hello\n"
    ended = await stage.tell("did you?", resume=True)
    assert (ended.exit_code, answer(ended)) == (0, "Yes, I did."), ended
    # Thoughts and arguments come back as they were sampled.
    (acted,) = [message for message in stage.scenario.played[2].ask.body["messages"] if message.get("tool_calls")]
    assert acted["reasoning"] == "A file is wanted."
    assert acted["tool_calls"][0]["function"]["arguments"] == '{"cmd": "echo hello > out.txt"}'
    calls = await stage.record()
    assert statuses(calls) == ["completed"] * 3
    assert {header(call, "originator") for call in calls} == {"codex_exec"}
    (own,) = {header(call, "session-id") for call in calls}
    assert {header(call, "thread-id") for call in calls} == {own}
    assert [metadata(call)["request_kind"] for call in calls] == ["turn"] * 3
    assert stage.story() == Story({"main": 3}, {})


async def test_its_socket_carries_only_what_is_new(perform: Opener) -> None:
    """It warms up with what it will always say, which is no call; each turn goes on from the reply before it."""
    stage = await perform(CODEX_SOCKET, main(ACT, DONE))
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, answer(ended)) == (0, "Done: out.txt contains hello."), ended
    calls = await stage.record()
    assert {header(call, "openai-beta") for call in calls} == {"responses_websockets=2026-02-06"}
    first, second = (json.loads(call.request_body) for call in calls)
    assert first["previous_response_id"] != second["previous_response_id"]
    assert [item["type"] for item in second["input"]] == ["function_call_output"]
    # The engine is asked with everything, so that the second prompt goes on where the first reply ended.
    sampled = [*(calls[0].prompt_token_ids or ()), *calls[0].completions[0].token_ids]
    assert list(calls[1].prompt_token_ids or ())[: len(sampled)] == sampled


async def test_without_sockets_it_falls_back(perform: Opener) -> None:
    stage = await perform(CODEX_SOCKET, main(ACT, DONE), websocket=False)
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, answer(ended)) == (0, "Done: out.txt contains hello."), ended
    calls = await stage.record()
    assert statuses(calls) == ["completed"] * 2
    assert {header(call, "openai-beta") for call in calls} == {None}


@BOTH
async def test_a_sub_agent_names_its_parent(perform: Opener, codex: Harness) -> None:
    task = "Please reply with the word pong."
    spawn = uses("multi_agent_v1__spawn_agent", message=task)

    def wait(ask: Ask) -> Turn:
        return uses("multi_agent_v1__wait_agent", targets=[json.loads(ask.last)["agent_id"]])

    sub = Rule("sub", told(task), (says("pong"),))
    stage = await perform(codex, sub, main(spawn, wait, says("It said pong.")))
    ended = await stage.tell("ask a sub-agent")
    assert (ended.exit_code, answer(ended)) == (0, "It said pong."), ended
    assert sorted(stage.scenario.order) == ["main", "main", "main", "sub"]
    assert "pong" in stage.scenario.asks("main")[2].last
    calls = await stage.record()
    assert statuses(calls) == ["completed"] * 4
    (child,) = [call for call in calls if header(call, "x-codex-parent-thread-id")]
    (session,) = {header(call, "session-id") for call in calls}
    assert {header(call, "thread-id") for call in calls if call is not child} == {session}
    assert header(child, "x-codex-parent-thread-id") == session
    assert header(child, "thread-id") not in (session, None)
    assert header(child, "x-openai-subagent") == "collab_spawn"
    assert metadata(child)["thread_source"] == "subagent"
    assert stage.story() == Story({"main": 3, "subagent": 1}, {}, (0,))


@BOTH
async def test_a_prompt_over_the_limit_is_compacted(perform: Opener, codex: Harness) -> None:
    compaction = Rule("compaction", without_tools, (says("out.txt was made."),))
    stage = await perform(codex, compaction, main(filled(ACT, 120_000), DONE))
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, answer(ended)) == (0, "Done: out.txt contains hello."), ended
    assert stage.scenario.order == ["main", "compaction", "main"]
    assert any("out.txt was made." in said for said in stage.scenario.played[2].ask.said)
    calls = await stage.record()
    assert statuses(calls) == ["completed"] * 3
    assert [metadata(call)["request_kind"] for call in calls] == ["turn", "compaction", "turn"]
    assert stage.story() == Story({"compaction": 1, "main": 2}, {"side_call": 1})


@BOTH
async def test_an_overflow_ends_it(perform: Opener, codex: Harness) -> None:
    stage = await perform(codex, main(ACT, overflows()))
    ended = await stage.tell(PROMPT)
    assert ended.exit_code == 1, ended
    last = json.loads(ended.stdout.splitlines()[-1])
    assert last["type"] == "turn.failed"
    assert "ran out of room in the model's context window" in last["error"]["message"]
    calls = await stage.record()
    assert statuses(calls) == ["completed", "rejected"]
    assert calls[1].http_status == 400
    assert stage.story() == Story({"main": 2}, {"rejected": 1})


@BOTH
async def test_a_failure_and_cuts_are_tried_again(perform: Opener, codex: Harness) -> None:
    stage = await perform(codex, main(fails(500), cut(PLAIN, "text"), cut(PLAIN, "call"), ACT, DONE))
    ended = await stage.tell(PROMPT)
    assert (ended.exit_code, answer(ended)) == (0, "Done: out.txt contains hello."), ended
    # After the last cut it may keep the text that it had seen whole.
    lengths = [len(ask.said) for ask in stage.scenario.asks("main")]
    assert lengths[:3] == [lengths[0]] * 3
    assert statuses(await stage.record()) == ["engine_error"] * 3 + ["completed"] * 2
    story = stage.story()
    assert story.kinds == {"main": 5}
    # What was asked again, and what the history keeps a part of; what it keeps whole is trained.
    assert 2 <= sum(story.left_out.values()) <= 3
    assert set(story.left_out) <= {"failed", "superseded"}

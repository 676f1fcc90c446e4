"""Conversations for supervised fine-tuning: what was sampled has weight 1, once; filters; what a loader makes of them."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from polarproxy.cli.conversation import read_request
from polarproxy.errors import BadExport
from polarproxy.export.format import Context, Reading, Taken
from polarproxy.export.texts.options import TextOptions
from polarproxy.export.texts.sft import CONVERSATIONS, TURNS, write_sft
from polarproxy.model import Dialect, Reward, Session
from polarproxy.trajectory.rebuilt import rebuild
from polarproxy.wire.neutral.request import Part, Text, Thinking, ToolResult, ToolUse
from tests.export.exported import account
from tests.export.talk import TEXTS, TOOL, Talk, answered
from tests.export.test_dialogues import SPOKEN, talks
from tests.trajectory.build import WHEN


def taken(talk: Talk, reward: float | None = None, group: str | None = "g") -> Taken:
    session = Session(
        talk.session_id, WHEN, task_id=group, group_id=group, reward=None if reward is None else Reward(reward)
    )
    rebuilt = rebuild(talk.session_id, talk.calls)
    return Taken(session, rebuilt, rebuilt.trajectory, ())


def said_context(options: TextOptions | None = None) -> Context:
    return Context(account(), None, Reading(read_request, lambda _model: TEXTS), options or TextOptions())


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def written(
    folder: Path, sessions: Iterable[Taken], options: TextOptions | None = None, form: str = CONVERSATIONS
) -> tuple[list[Any], Context]:
    context = replace(said_context(options), form=form)
    write_sft(folder / "x.sft.jsonl", sessions, context)
    return lines(folder / "x.sft.jsonl"), context


@pytest.mark.parametrize("dialect", SPOKEN)
def test_a_line(tmp_path: Path, dialect: Dialect) -> None:
    (line,), context = written(tmp_path, [taken(answered("s", "Three.", dialect=dialect), 0.5)])
    call_id = line["messages"][2]["tool_calls"][0]["id"]
    assert line["messages"] == [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "How many?"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": call_id, "type": "function", "function": {"name": "bash", "arguments": '{"c":  "ls \\u00e9"}'}}
            ],
            "weight": 1,
        },
        {"role": "tool", "tool_call_id": call_id, "content": "3 files"}
        | ({"name": "bash"} if dialect is Dialect.GEMINI else {}),
        {"role": "assistant", "content": "Three.", "weight": 1},
    ]
    (tool,) = line["tools"]
    assert (tool["type"], tool["function"]["name"]) == ("function", TOOL.name)
    assert line["metadata"] == {
        "session_id": "s",
        "task_id": "g",
        "group_id": "g",
        "harness": None,
        "model": "tiny",
        "reward": 0.5,
        "branch_index": 0,
        "call_ids": ["s-c0", "s-c1"],
    }
    assert context.account.texts == {"lines": 1}


def test_reasoning_has_the_name_that_templates_know(tmp_path: Path) -> None:
    talk = Talk(tools=())
    talk.say("user", "1+1?")
    talk.ask(Thinking("Two."), Text("2"))
    (line,), _ = written(tmp_path, [taken(talk)])
    assert line["messages"][1] == {"role": "assistant", "content": "2", "reasoning_content": "Two.", "weight": 1}
    assert line["tools"] == []


def test_a_turn_that_two_conversations_share_has_weight_in_one(tmp_path: Path) -> None:
    talk = Talk(tools=())
    talk.say("user", "1+1?")
    talk.ask(Text("2"))
    begun = list(talk.messages)
    for question, answer in (("2+2?", "4"), ("3+3?", "6")):
        talk.messages[:] = begun
        talk.say("user", question)
        talk.ask(Text(answer))
    found, _ = written(tmp_path, [taken(talk)])
    said = [[(one["content"], one["weight"]) for one in line["messages"] if "weight" in one] for line in found]
    assert said == [[("2", 1), ("4", 1)], [("2", 0), ("6", 1)]]


def test_a_line_for_each_turn(tmp_path: Path) -> None:
    first, second = written(tmp_path, [taken(answered("s", "Three."), 0.5)], form=TURNS)[0]
    assert [message["role"] for message in first["prompt"]] == ["system", "user"]
    assert [message["role"] for message in second["prompt"]] == ["system", "user", "assistant", "tool"]
    assert second["completion"] == [{"role": "assistant", "content": "Three."}]
    assert first["completion"][0]["tool_calls"][0]["function"]["arguments"] == '{"c":  "ls \\u00e9"}'
    assert [line["metadata"]["call_ids"] for line in (first, second)] == [["s-c0"], ["s-c1"]]
    same = [taken(answered(name, "x")) for name in ("a", "b")]
    found, context = written(tmp_path, same, TextOptions(dedup=True), TURNS)
    assert (len(found), context.account.texts) == (2, {"lines": 2, "written already": 2})


def test_what_chat_cannot_say_is_counted(tmp_path: Path) -> None:
    talk = Talk(Dialect.MESSAGES)
    talk.say("user", "Do it.")
    talk.ask(ToolUse("t1", "bash", "{}"))
    talk.say("tool", ToolResult("t1", (Text("no"),), is_error=True))
    talk.ask(Text("It failed."))
    _, context = written(tmp_path, [taken(talk)])
    assert context.account.texts == {"lines": 1, "parts that chat says in another way, or not": 1}


def test_the_best_of_a_group(tmp_path: Path) -> None:
    group = [taken(answered(name, name), reward) for name, reward in (("a", 0.1), ("b", 0.9), ("c", 0.9), ("d", None))]
    other = taken(answered("e", "e"), -1.0, "h")
    found, context = written(tmp_path, [*group, other], TextOptions(best_of=1))
    assert [line["metadata"]["session_id"] for line in found] == ["b", "e"]
    assert context.account.texts["sessions not among the best of their group"] == 3
    two, _ = written(tmp_path, [*group, other], TextOptions(best_of=2))
    assert [line["metadata"]["session_id"] for line in two] == ["b", "c", "e"]


def test_the_same_conversation_is_written_once(tmp_path: Path) -> None:
    same = [taken(answered(name, answer)) for name, answer in (("a", "x"), ("b", "x"), ("c", "y"))]
    found, context = written(tmp_path, same, TextOptions(dedup=True))
    assert [line["metadata"]["session_id"] for line in found] == ["a", "c"]
    assert context.account.texts == {"lines": 2, "written already": 1}
    everything, _ = written(tmp_path, same)
    assert len(everything) == 3


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    talk = Talk()
    talk.say("user", "1+1?")
    talk.say("assistant", "It is")
    talk.ask(Text(" 2"))
    found, context = written(tmp_path, [taken(talk)])
    assert found == []
    assert context.account.texts == {"turns without a text: prefilled_reply": 1}


def test_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadExport, match="--best-of keeps at least one session of a group; it cannot be 0"):
        TextOptions(best_of=0)
    with pytest.raises(BadExport, match="--margin is a difference of rewards"):
        TextOptions(margin=float("nan"))
    with pytest.raises(BadExport, match="--margin does not fit the format sft; it takes --best-of, --dedup"):
        TextOptions(margin=0.5).check(("best_of", "dedup"), "sft")
    with pytest.raises(BadExport, match="--dedup does not fit the format parquet; it takes none"):
        TextOptions(dedup=True).check((), "parquet")
    TextOptions().check((), "parquet")


@settings(max_examples=50, deadline=None)
@given(talks())
def test_each_sampled_turn_has_weight_once_and_its_arguments_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, told: tuple[Talk, list[tuple[Part, ...]]]
) -> None:
    talk, said = told
    found, _ = written(tmp_path_factory.mktemp("sft"), [taken(talk)])
    weighed = [message for line in found for message in line["messages"] if message.get("weight")]
    meant = [
        (
            "".join(part.text for part in parts if isinstance(part, Text)),
            [part.arguments for part in parts if isinstance(part, ToolUse)],
        )
        for parts in said
    ]
    told_back = [
        (message["content"] or "", [use["function"]["arguments"] for use in message.get("tool_calls", ())])
        for message in weighed
    ]
    assert sorted(told_back) == sorted(meant)
    turns, _ = written(tmp_path_factory.mktemp("turns"), [taken(talk)], form=TURNS)
    alone = [line["completion"][0] for line in turns]
    assert sorted(
        (message["content"] or "", [use["function"]["arguments"] for use in message.get("tool_calls", ())])
        for message in alone
    ) == sorted(meant)

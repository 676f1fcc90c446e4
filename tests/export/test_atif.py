"""ATIF trajectories: steps of all that happened, exact tokens, results with their calls, sub-agents embedded."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from polarproxy.cli.conversation import read_request
from polarproxy.cli.recipes import known_recipes
from polarproxy.export.format import Context, Reading, Taken
from polarproxy.export.texts.atif import TEXT_ONLY, WITH_TOKENS, write_atif
from polarproxy.model import CallKind, CapturedCall, Dialect, Reward, Session
from polarproxy.trajectory.rebuilt import rebuild
from polarproxy.wire.neutral.request import Media, Message, Part, Text, Thinking, ToolResult, ToolUse
from tests.export.exported import account
from tests.export.talk import TEXTS, Talk, answered
from tests.export.test_dialogues import SPOKEN, talks
from tests.export.test_sft import lines
from tests.trajectory.build import WHEN

TRAINERS = os.environ.get("POLARPROXY_TEST_TRAINERS")
HARBOR = TRAINERS is not None and any(Path(TRAINERS).glob("lib/*/site-packages/harbor"))
JUDGE = """
import json, sys
from harbor.utils.trajectory_validator import TrajectoryValidator
for line in sys.stdin.buffer:
    validator = TrajectoryValidator()
    assert validator.validate(json.loads(line)), validator.errors
    print("valid")
"""


def taken(calls: list[CapturedCall], session_id: str = "s", harness: str | None = "h") -> Taken:
    session = Session(session_id, WHEN, harness=harness, task_id="t", reward=Reward(0.5))
    rebuilt = rebuild(session_id, calls, known_recipes())
    return Taken(session, rebuilt, rebuilt.trajectory, ())


def written(folder: Path, *sessions: Taken, form: str = WITH_TOKENS) -> list[Any]:
    context = Context(account(), form, Reading(read_request, lambda _model: TEXTS))
    write_atif(folder / "x.atif.jsonl", sessions, context)
    found = lines(folder / "x.atif.jsonl")
    for one in found:
        check(one)
    return found


def check(trajectory: Any) -> None:
    """What harbor's own types ask for, in short; they judge themselves below, where they are installed."""
    steps = trajectory["steps"]
    assert [step["step_id"] for step in steps] == list(range(1, len(steps) + 1))
    assert steps
    for step in steps:
        if step["source"] != "agent":
            assert step.keys() <= {"step_id", "source", "message", "is_copied_context", "observation"}
        if step.get("llm_call_count") == 0:
            assert step.keys().isdisjoint({"metrics", "reasoning_content"})
        calls = {call["tool_call_id"] for call in step.get("tool_calls", ())}
        for result in step.get("observation", {"results": ()})["results"]:
            assert result.get("source_call_id", next(iter(calls), None)) in (calls or {None})
    embedded = trajectory.get("subagent_trajectories", ())
    assert len({one["trajectory_id"] for one in embedded}) == len(embedded)
    for one in embedded:
        check(one)


def judged(*files: Path) -> int:
    """How many trajectories harbor's own validator finds valid."""
    assert TRAINERS is not None
    data = b"".join(file.read_bytes() for file in files)
    done = subprocess.run([f"{TRAINERS}/bin/python", "-c", JUDGE], input=data, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout.count(b"valid")


@pytest.mark.parametrize("dialect", SPOKEN)
def test_a_session(tmp_path: Path, dialect: Dialect) -> None:
    talk = answered("s", "Three.", dialect=dialect)
    (made,) = written(tmp_path, taken(talk.calls))
    assert (made["schema_version"], made["session_id"], made["trajectory_id"]) == ("ATIF-v1.8", "s", "s")
    assert (made["agent"]["name"], made["agent"]["model_name"]) == ("h", "tiny")
    assert made["agent"]["tool_definitions"][0]["function"]["name"] == "bash"
    system, user, look, last = made["steps"]
    assert (system["source"], system["message"]) == ("system", "Be good.")
    assert (user["source"], user["message"]) == ("user", "How many?")
    (call,) = look["tool_calls"]
    assert (look["message"], call["function_name"], call["arguments"]) == ("I look.", "bash", {"c": "ls é"})
    assert look["observation"] == {"results": [{"source_call_id": call["tool_call_id"], "content": "3 files"}]}
    recorded = talk.calls[0].call
    assert recorded.prompt_token_ids is not None
    sampled = recorded.completions[0]
    assert sampled.logprobs is not None
    metrics = look["metrics"]
    assert metrics["prompt_token_ids"] == list(recorded.prompt_token_ids)
    assert metrics["completion_token_ids"] == list(sampled.token_ids)
    assert metrics["logprobs"] == sampled.logprobs.array.tolist()
    assert (look["llm_call_count"], look["extra"]["trained"]) == (1, True)
    assert last["message"] == "Three."
    assert made["final_metrics"]["total_completion_tokens"] == sum(
        len(one.call.completions[0].token_ids) for one in talk.calls
    )
    assert made["extra"]["reward"]["value"] == 0.5
    (bare,) = written(tmp_path, taken(talk.calls), form=TEXT_ONLY)
    assert "prompt_token_ids" not in bare["steps"][2]["metrics"]
    assert bare["steps"][2]["metrics"]["prompt_tokens"] == len(recorded.prompt_token_ids)


def compacted() -> Talk:
    """A history that is replaced by a summary, of which the last message stays."""
    talk = Talk(tools=())
    talk.say("system", "Be good.")
    talk.say("user", "1+1?")
    talk.ask(Text("2"))
    talk.say("user", "2+2?")
    talk.ask(Text("4"))
    talk.messages = [talk.messages[0], Message("user", (Text("Summary: sums."),)), *talk.messages[-2:]]
    talk.say("user", "3+3?")
    talk.ask(Text("6"))
    return talk


def test_what_a_compaction_repeats_is_copied_context(tmp_path: Path) -> None:
    (made,) = written(tmp_path, taken(compacted().calls))
    said = [(step["source"], step["message"], step.get("is_copied_context", False)) for step in made["steps"]]
    assert said == [
        ("system", "Be good.", False),
        ("user", "1+1?", False),
        ("agent", "2", False),
        ("user", "2+2?", False),
        ("agent", "4", False),
        ("system", "Be good.", True),
        ("user", "Summary: sums.", False),
        ("user", "2+2?", True),
        ("agent", "4", True),
        ("user", "3+3?", False),
        ("agent", "6", False),
    ]
    assert [step["extra"]["call_id"] for step in made["steps"] if "metrics" in step] == ["s-c0", "s-c1", "s-c2"]


def test_reasoning_that_is_stripped_from_history_repeats_nothing(tmp_path: Path) -> None:
    talk = Talk(tools=())
    talk.say("user", "1+1?")
    talk.ask(Thinking("Two."), Text("2"), keep=False)
    talk.messages.append(Message("assistant", (Text("2"),)))
    talk.say("user", "2+2?")
    talk.ask(Thinking("Four."), Text("4"))
    (made,) = written(tmp_path, taken(talk.calls))
    said = [(step["message"], step.get("reasoning_content")) for step in made["steps"]]
    assert said == [("1+1?", None), ("2", "Two."), ("2+2?", None), ("4", "Four.")]
    assert not any("is_copied_context" in step for step in made["steps"])


def test_what_the_client_wrote_for_the_assistant_is_no_call_of_the_model(tmp_path: Path) -> None:
    talk = Talk()
    talk.say("user", "1+1?")
    talk.messages.append(Message("assistant", (Text("2"),)))
    talk.say("user", "2+2?")
    talk.ask(Text("4"))
    (made,) = written(tmp_path, taken(talk.calls))
    assert [step.get("llm_call_count") for step in made["steps"]] == [None, 0, None, 1]


def with_subagent() -> Talk:
    """A sub-agent of Claude Code, whose id the parent's next request tells."""
    talk = Talk()
    talk.say("user", "Do it.")
    talk.ask(ToolUse("t1", "bash", "{}"))
    own = Talk(session_id="s")
    own.say("user", "Find it.")
    own.calls = [*talk.calls]
    own.ask(Text("Found."), kind=CallKind.SUBAGENT)
    said = own.calls[-1]
    talk.calls.append(said)
    talk.say("tool", ToolResult("t1", (Text("Found. agentId: agent-7"),)))
    talk.ask(Text("Done."))
    main = (("x-claude-code-session-id", "session"), ("user-agent", "claude-cli/2.1.3 (external)"))
    for place, one in enumerate(talk.calls):
        headers = (*main, ("x-claude-code-agent-id", "agent-7")) if one is said else main
        talk.calls[place] = replace(one, call=replace(one.call, headers=headers))
    return talk


def test_a_subagent_is_embedded_and_named_where_it_was_made(tmp_path: Path) -> None:
    (made,) = written(tmp_path, taken(with_subagent().calls))
    (inner,) = made["subagent_trajectories"]
    assert [step["message"] for step in inner["steps"]] == ["Find it.", "Found."]
    assert inner["agent"]["version"] == "2.1.3"
    assert [step["message"] for step in made["steps"]] == ["Do it.", "", "Done."]
    (result,) = made["steps"][1]["observation"]["results"]
    assert result["subagent_trajectory_ref"] == [{"trajectory_id": inner["trajectory_id"], "session_id": "s"}]


def with_media() -> Talk:
    talk = Talk()
    talk.say(
        "user",
        "Look.",
        Media("image/png", "https://example.org/a.png?v=1"),
        Media("image/png", "data:image/png;base64,AA=="),
    )
    talk.ask(Text("A dot."))
    return talk


def test_images_with_an_address_are_images(tmp_path: Path) -> None:
    talk = with_media()
    talk.calls = [replace(one, call=replace(one.call, caveat=None)) for one in talk.calls]
    (made,) = written(tmp_path, taken(talk.calls))
    assert made["steps"][0]["message"] == [
        {"type": "text", "text": "Look."},
        {"type": "image", "source": {"media_type": "image/png", "path": "https://example.org/a.png?v=1"}},
        {"type": "text", "text": "[image/png]"},
    ]


def test_results_stand_with_the_calls_that_they_answer(tmp_path: Path) -> None:
    talk = Talk()
    talk.say("user", "Do it.")
    talk.ask(ToolUse("t1", "bash", '{"c": 1}'), ToolUse("t2", "bash", '{"c": 2}'))
    talk.say("tool", ToolResult("t2", (Text("two"),)), ToolResult("t1", (Text("one"),)))
    talk.ask(Text("Done."))
    (made,) = written(tmp_path, taken(talk.calls))
    step = made["steps"][1]
    assert [call["tool_call_id"] for call in step["tool_calls"]] == ["t1", "t2"]
    assert step["observation"]["results"] == [
        {"source_call_id": "t2", "content": "two"},
        {"source_call_id": "t1", "content": "one"},
    ]


def test_arguments_that_are_no_object_are_wrapped(tmp_path: Path) -> None:
    talk = Talk()
    talk.say("user", "Do it.")
    talk.ask(ToolUse("t1", "bash", "no JSON"))
    talk.say("tool", ToolResult("t1", (Text("bad"),)))
    talk.ask(Text("Done."))
    (made,) = written(tmp_path, taken(talk.calls))
    (call,) = made["steps"][1]["tool_calls"]
    assert call["arguments"] == {"_malformed_arguments": "no JSON"}


def test_a_result_of_no_call_stands_without_one(tmp_path: Path) -> None:
    talk = Talk()
    talk.say("user", "Do it.")
    talk.ask(ToolUse("t1", "bash", "{}"))
    talk.say("tool", ToolResult("t1", (Text("bad"),)), ToolResult("t9", (Text("what?"),)))
    talk.ask(Text("Done."))
    (made,) = written(tmp_path, taken(talk.calls))
    step = made["steps"][1]
    assert [one.get("source_call_id") for one in step["observation"]["results"]] == ["t1", None]


@settings(max_examples=40, deadline=None)
@given(talks())
def test_every_sampled_turn_is_one_step_with_its_tokens(
    tmp_path_factory: pytest.TempPathFactory, told: tuple[Talk, list[tuple[Part, ...]]]
) -> None:
    talk, said = told
    (made,) = written(tmp_path_factory.mktemp("atif"), taken(talk.calls))
    sampled = [step for step in made["steps"] if "metrics" in step]
    assert [step["metrics"]["completion_token_ids"] for step in sampled] == [
        list(one.call.completions[0].token_ids) for one in talk.calls
    ]
    for step, parts in zip(sampled, said, strict=True):
        assert step["message"] == "".join(part.text for part in parts if isinstance(part, Text))
        uses = [json.loads(part.arguments) for part in parts if isinstance(part, ToolUse)]
        assert [call["arguments"] for call in step.get("tool_calls", ())] == uses
        assert len(step.get("observation", {"results": ()})["results"]) in (0, len(uses))


@pytest.mark.skipif(not HARBOR, reason="needs harbor, of .ci/setup-trainers")
def test_harbor_finds_them_valid(tmp_path: Path) -> None:
    many = [answered("s", "Three.", dialect=dialect) for dialect in SPOKEN]
    sessions = [taken(talk.calls) for talk in (*many, compacted(), with_subagent(), with_media())]
    written(tmp_path, *sessions)
    assert judged(tmp_path / "x.atif.jsonl") == len(sessions)
    broken = json.loads((tmp_path / "x.atif.jsonl").read_bytes().splitlines()[0])
    broken["steps"][0]["tokens"] = []
    (tmp_path / "broken").write_text(json.dumps(broken))
    with pytest.raises(AssertionError, match="unexpected field"):
        judged(tmp_path / "broken")

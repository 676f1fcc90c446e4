"""Whose each call is, and under which turn a sub-agent hangs; headers and tokens that disagree are reported."""

import json
from dataclasses import replace
from typing import Any

import pytest

from polarproxy.cli.recipes import known_recipes
from polarproxy.model import CapturedCall, Shape, opening
from polarproxy.trajectory.agents import Agent
from polarproxy.trajectory.integrity import Code, Severity
from polarproxy.trajectory.rebuilt import Rebuilt, rebuild
from tests.trajectory.build import Said, turn


def asked(ordinal: int, prompt: list[int], headers: dict[str, str], body: str = "", **fields: Any) -> CapturedCall:
    captured = turn(ordinal, prompt, Said([100 + ordinal]))
    call = replace(captured.call, headers=tuple(headers.items()), request_body=body.encode(), **fields)
    return replace(captured, call=call)


def built(*calls: CapturedCall) -> Rebuilt:
    return rebuild("s", calls, known_recipes())


def the_sub_agent(*calls: CapturedCall) -> Agent:
    (agent,) = [agent for agent in built(*calls).agents() if agent.is_subagent]
    return agent


def claude(agent: str | None = None) -> dict[str, str]:
    own = {"x-claude-code-session-id": "session"}
    return own if agent is None else own | {"x-claude-code-agent-id": agent}


def codex(
    thread: str, parent: str | None = None, turn_id: str = "t1", parent_turn: str | None = None
) -> dict[str, str]:
    said = {"thread_id": thread, "turn_id": turn_id, "parent_thread_id": parent, "parent_turn_id": parent_turn}
    headers = {"thread-id": thread, "x-codex-window-id": f"{thread}:0", "x-codex-turn-metadata": json.dumps(said)}
    return headers if parent is None else headers | {"x-codex-parent-thread-id": parent, "x-openai-subagent": "spawn"}


def opencode(session: str, parent: str | None = None) -> dict[str, str]:
    own = {"x-session-id": session, "user-agent": "opencode/1"}
    return own if parent is None else own | {"x-parent-session-id": parent}


FAMILIES = {
    "claude code": (claude(), claude("a1"), "a1", "session"),
    "codex": (codex("main"), codex("sub", "main", "t2"), "sub", "main"),
    "opencode": (opencode("ses_1"), opencode("ses_2", "ses_1"), "ses_2", "ses_1"),
}


@pytest.mark.parametrize(("main", "sub", "name", "parent"), FAMILIES.values(), ids=FAMILIES)
def test_a_sub_agent_hangs_under_the_call_whose_result_tells_its_id(
    main: dict[str, str], sub: dict[str, str], name: str, parent: str
) -> None:
    """The parent's second call asks for nothing of it; the fourth tells of it first."""
    agent = the_sub_agent(
        asked(0, [1], main),
        asked(1, [1, 100, 2], main),
        asked(2, [7], sub),
        asked(3, [1, 100, 2, 101, 3], main, f"launched {name}"),
        asked(4, [7, 102, 8], sub),
        asked(5, [1, 100, 2, 101, 3, 103, 4], main, f"{name} said so"),
    )
    assert agent == Agent(name, ("s-c2", "s-c4"), True, parent, "s-c1", "the parent's next request, s-c3, tells its id")


def test_an_id_that_was_told_long_before_is_found_where_it_was_told_first() -> None:
    """The agent waited for its turn while its parent went on."""
    main = [asked(place, [1, place], claude(), "" if place < 2 else "a1") for place in range(9)]
    agent = the_sub_agent(*main, asked(9, [7], claude("a1")))
    assert (agent.parent, agent.spawned_by) == ("session", "s-c1")


def test_an_id_that_is_mentioned_much_later_is_no_evidence() -> None:
    later = [asked(1 + place, [1, place], claude(), "a1" if place > 4 else "") for place in range(8)]
    agent = the_sub_agent(asked(0, [7], claude("a1")), *later)
    assert (agent.parent, agent.spawned_by) == (None, None)


def test_of_two_who_tell_an_id_the_first_made_the_agent() -> None:
    agent = the_sub_agent(
        asked(0, [1], claude()),
        asked(1, [2], {"x-session-id": "other"}),
        asked(2, [7], claude("a1")),
        asked(3, [2, 101, 3], {"x-session-id": "other"}, "a1"),
        asked(4, [1, 100, 2], claude(), "a1"),
    )
    assert (agent.parent, agent.spawned_by) == ("other", "s-c1")


def test_a_title_makes_no_agent() -> None:
    """It has the same agent's id, and may come between the call that made one and the request that tells of it."""
    title = Shape(3, (), False, opening("You are a title generator."))
    agent = the_sub_agent(
        asked(0, [1], opencode("ses_1")),
        asked(1, [9], opencode("ses_1"), shape=title),
        asked(2, [7], opencode("ses_2", "ses_1")),
        asked(3, [1, 100, 2], opencode("ses_1"), "ses_2"),
    )
    assert agent.spawned_by == "s-c0"


def test_codex_names_the_turn_where_no_body_is_kept() -> None:
    calls = [asked(0, [1], codex("main", turn_id="t1")), asked(1, [7], codex("sub", "main", "t2", "t1"))]
    assert (the_sub_agent(*calls).spawned_by, the_sub_agent(*calls).evidence) == (
        "s-c0",
        "its headers name the parent's turn, in which one call came before it",
    )


def test_without_evidence_it_hangs_under_the_session_and_says_so() -> None:
    calls = [asked(0, [1], claude()), asked(1, [1, 100, 2], claude()), asked(2, [7], claude("a1"))]
    agent = the_sub_agent(*calls)
    assert (agent.parent, agent.spawned_by) == (None, None)
    assert agent.evidence == "nothing shows who made it; it hangs under the session"
    two = [
        asked(0, [1], codex("main")),
        asked(1, [1, 100], codex("main")),
        asked(2, [7], codex("sub", "main", "t2", "t1")),
    ]
    assert the_sub_agent(*two).spawned_by is None
    assert the_sub_agent(*two).evidence == "no request of its parent tells its id; it hangs under the session"


def test_a_nested_sub_agent_hangs_under_its_own_parent() -> None:
    agents = built(
        asked(0, [1], opencode("a")),
        asked(1, [2], opencode("b", "a")),
        asked(2, [3], opencode("c", "b")),
        asked(3, [2, 101, 4], opencode("b", "a"), "c"),
        asked(4, [1, 100, 5], opencode("a"), "b"),
    ).agents()
    assert [(agent.name, agent.parent, agent.spawned_by) for agent in agents] == [
        ("a", None, None),
        ("b", "a", "s-c0"),
        ("c", "b", "s-c1"),
    ]


def test_a_sub_agent_without_a_name_is_its_conversation() -> None:
    shape = Shape(2, ("read_file", "complete_task"), False, opening("You are another kind of"))
    agent_calls = [
        asked(1, [7], {"user-agent": "GeminiCLI-tui"}, shape=shape),
        asked(2, [7, 101, 8], {"user-agent": "GeminiCLI-tui"}, shape=shape),
    ]
    agent = the_sub_agent(asked(0, [1], {"user-agent": "GeminiCLI-tui"}), *agent_calls)
    assert (agent.name, agent.calls) == ("conversation of s-c1", ("s-c1", "s-c2"))


def disagreements(*calls: CapturedCall) -> list[tuple[str, str]]:
    found = built(*calls).integrity()
    assert found.counts(Severity.ERROR) == {}
    return [(f.call_id, f.detail) for f in found.findings if f.code is Code.LINEAGE_DISAGREES]


def test_an_agent_may_begin_with_what_its_parent_knew() -> None:
    main, sub = codex("main"), codex("sub", "main")
    assert disagreements(asked(0, [1], main), asked(1, [1, 100, 2], sub), asked(2, [1, 100, 2, 101, 3], sub)) == []


def test_a_call_that_goes_on_from_another_agent_is_reported() -> None:
    calls = [asked(0, [1], opencode("a")), asked(1, [7], opencode("b", "a")), asked(2, [1, 100, 2], opencode("b", "a"))]
    assert disagreements(*calls) == [
        ("s-c2", "its headers name the agent b, its tokens go on from s-c0 of a"),
    ]


def test_a_parent_that_is_not_here_is_reported() -> None:
    calls = [asked(0, [1], opencode("b", "elsewhere"))]
    assert disagreements(*calls) == [
        ("s-c0", "its headers say that elsewhere made it, of which no call is recorded here"),
    ]
    assert the_sub_agent(*calls).evidence == "its parent elsewhere made no call here; it hangs under the session"


def test_agents_that_made_each_other_are_reported_once() -> None:
    made_by = {"a": "b", "b": "c", "c": "b", "d": "d", "e": "a"}
    calls = [asked(place, [place], opencode(one, other)) for place, (one, other) in enumerate(made_by.items())]
    assert disagreements(*calls) == [
        ("s-c1", "headers say that each was made by the next: b, c, b"),
        ("s-c3", "headers say that each was made by the next: d, d"),
    ]


def test_a_long_line_of_agents_is_no_circle() -> None:
    calls = [asked(0, [0], opencode("n0"))]
    calls += [asked(one, [one], opencode(f"n{one}", f"n{one - 1}")) for one in range(1, 300)]
    assert disagreements(*calls) == disagreements(*reversed(calls)) == []


def test_headers_that_cannot_be_read_say_nothing() -> None:
    broken = {"x-codex-window-id": "w", "x-codex-turn-metadata": "{"}
    (agent,) = built(asked(0, [1], broken)).agents()
    assert (agent.name, agent.is_subagent) == ("main", False)

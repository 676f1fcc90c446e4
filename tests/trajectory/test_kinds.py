"""What calls are for: labels, headers, recipes and shapes, in this order; and work is never left out by mistake."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.cli.recipes import known_recipes
from polarproxy.model import CallKind, CapturedCall, Label, Sampling, Shape, opening
from polarproxy.trajectory.branches import build_trajectory
from polarproxy.trajectory.kinds import Judged, Source, judge
from polarproxy.trajectory.recipes import Condition, Recipe, Rule
from tests.trajectory.build import WHEN, Said, turn
from tests.trajectory.sessions import sessions

BASH = Shape(2, ("bash", "edit"), False, opening("You are the best agent"), None)
BARE = Shape(1, (), False, opening("You name things very well"), None)
MAIN, UNKNOWN, TITLE, PROBE, SUBAGENT, COMPACTION, SUMMARY = (
    CallKind.MAIN,
    CallKind.UNKNOWN,
    CallKind.TITLE,
    CallKind.PROBE,
    CallKind.SUBAGENT,
    CallKind.COMPACTION,
    CallKind.SUMMARY,
)


def made(ordinal: int, prompt: list[int], shape: Shape | None = BASH, **fields: Any) -> CapturedCall:
    captured = turn(ordinal, prompt, Said([100 + ordinal]))
    return replace(captured, call=replace(captured.call, shape=shape, **fields))


def kinds(*calls: CapturedCall, recipes: tuple[Recipe, ...] = (), harness: str | None = None) -> list[CallKind]:
    return [captured.kind for captured in judge(calls, recipes, harness).calls]


def evidence(judged: Judged, ordinal: int) -> tuple[CallKind, Source]:
    verdict = judged.verdicts[f"s-c{ordinal}"]
    return verdict.kind, verdict.source


MAIN_TURNS = (made(0, [1]), made(2, [1, 100, 3]))


def test_a_call_of_which_nothing_is_said_is_work() -> None:
    judged = judge([made(0, [1], None)])
    assert evidence(judged, 0) == (MAIN, Source.NOTHING)


def test_a_small_model_without_tools_is_unknown_and_reported() -> None:
    judged = judge([*MAIN_TURNS, made(1, [7], BARE, requested_model="small")])
    assert evidence(judged, 1) == (UNKNOWN, Source.SHAPE)
    assert judged.verdicts["s-c1"].sentence == (
        "it stands alone and asks for small where the others ask for tiny and offers no tools where the others do"
    )
    assert judged.kinds() == {"main": 2, "unknown": 1}
    assert build_trajectory("s", judged.calls).left_out_by_reason() == {"unknown_kind": 1}


def test_two_of_them_do_not_vouch_for_each_other() -> None:
    small = [made(place, [7 + place], BARE, requested_model="small") for place in (1, 3)]
    assert kinds(*MAIN_TURNS, *small) == [MAIN, MAIN, UNKNOWN, UNKNOWN]


def test_a_tiny_limit_without_tools_is_a_probe() -> None:
    judged = judge([*MAIN_TURNS, made(1, [7], BARE, sampling=Sampling(max_tokens=1))])
    assert evidence(judged, 1) == (PROBE, Source.SHAPE)


WORK = {
    "no tools, the same model: a planner": made(1, [7], BARE),
    "no tools and JSON, the same model": made(1, [7], replace(BARE, wants_json=True)),
    "another model with tools: the user changed it": made(1, [7], requested_model="large"),
    "a tiny limit with tools": made(1, [7], sampling=Sampling(max_tokens=8)),
    "a small model that continues the conversation": made(3, [1, 100, 3, 102, 4], BARE, requested_model="small"),
    "not streamed, the same model": made(1, [7], streamed=False),
    "no shape": made(1, [7], None, requested_model="small"),
}


@pytest.mark.parametrize("odd", WORK.values(), ids=WORK)
def test_one_sign_alone_takes_nothing_out(odd: CapturedCall) -> None:
    assert kinds(*MAIN_TURNS, odd) == [MAIN, MAIN, MAIN]


def test_a_conversation_on_a_small_model_is_work() -> None:
    """Its calls continue each other, so none stands alone."""
    first = made(1, [7], BARE, requested_model="small")
    assert kinds(*MAIN_TURNS, first, made(3, [7, 101, 9], BARE, requested_model="small")) == [MAIN] * 4


def test_a_conversation_that_comes_back_without_its_reasoning_is_work() -> None:
    """Each prompt begins with the one before, and tells the reply again in other tokens."""
    small = [made(1 + 2 * turn, [7, *[8] * turn], BARE, requested_model="small") for turn in range(3)]
    assert kinds(*MAIN_TURNS, *small) == [MAIN] * 5
    asked_again = [made(ordinal, [7], BARE, requested_model="small") for ordinal in (1, 3)]
    assert kinds(*MAIN_TURNS, *asked_again) == [MAIN, MAIN, UNKNOWN, UNKNOWN]
    other = made(3, [1, 8, 8], BARE, requested_model="small")
    assert kinds(*MAIN_TURNS, other) == [MAIN, MAIN, UNKNOWN]


def test_two_calls_of_which_each_looks_odd_beside_the_other_are_work() -> None:
    tooled = made(0, [1], streamed=False, requested_model="large")
    assert kinds(tooled, made(1, [7], BARE, requested_model="small")) == [MAIN, MAIN]


def test_where_all_look_odd_none_does() -> None:
    calls = [made(place, [7 + place], BARE, sampling=Sampling(max_tokens=1), streamed=False) for place in range(3)]
    assert kinds(*calls) == [MAIN] * 3


def named(name: str) -> tuple[Recipe, ...]:
    return tuple(recipe for recipe in known_recipes() if recipe.name == name)


RECIPE = Recipe(format=1, name="x", version="1", kinds=(Rule(kind=TITLE, what="names it", tools=False),))


def test_a_recipe_counts_where_its_harness_is_named_or_shows_itself() -> None:
    title = made(1, [7], BARE)
    assert kinds(title, recipes=(RECIPE,)) == [MAIN]
    assert kinds(title, recipes=(RECIPE,), harness="X") == [TITLE]
    seen = Recipe(format=1, name="x", version="1", recognised_by=(Condition(header="x-x"),), kinds=RECIPE.kinds)
    signed = made(1, [7], BARE, headers=(("x-x", ""),))
    assert kinds(signed, made(2, [8]), recipes=(seen,)) == [TITLE, MAIN]
    assert judge([title], (RECIPE,), "x").verdicts["s-c1"].sentence == "x 1: names it"


def test_a_named_harness_outranks_what_others_show() -> None:
    """Qwen Code calls itself Claude Code over the Messages API."""
    assert judge([made(0, [1], headers=(("originator", "codex"),))], known_recipes(), "pi").harnesses == ("pi",)


def label(kind: CallKind | None, note: str | None = None) -> Label:
    return Label(kind, "ann", WHEN, note)


def test_a_label_outranks_everything_until_it_is_taken_back() -> None:
    sub = made(0, [1], headers=(("x-claude-code-session-id", "s"), ("x-claude-code-agent-id", "a1")))
    assert kinds(sub) == [SUBAGENT]
    judged = judge([replace(sub, labels=(label(TITLE), label(PROBE, "a test")))])
    assert evidence(judged, 0) == (PROBE, Source.LABEL)
    assert judged.verdicts["s-c0"].sentence == "ann said so on 2026-01-01: a test"
    assert kinds(replace(sub, labels=(label(TITLE), label(None)))) == [SUBAGENT]


def test_a_label_brings_back_what_the_shape_took_out() -> None:
    odd = made(1, [7], BARE, requested_model="small")
    assert kinds(*MAIN_TURNS, replace(odd, labels=(label(MAIN),))) == [MAIN] * 3


def test_labels_on_the_work_take_no_measure_away() -> None:
    """What was said to be work is still what the others are compared with."""
    odd = made(1, [7], BARE, requested_model="small")
    work = [replace(captured, labels=(label(MAIN),)) for captured in MAIN_TURNS]
    assert kinds(*work, odd) == [MAIN, MAIN, UNKNOWN]


def codex(**turn_metadata: str) -> tuple[tuple[str, str], ...]:
    return (("thread-id", "t1"), ("x-codex-turn-metadata", json.dumps({"thread_id": "t1", **turn_metadata})))


SUBAGENTS = {
    "claude code": (("x-claude-code-session-id", "s"), ("x-claude-code-agent-id", "a1")),
    "codex": codex(request_kind="turn", thread_source="subagent"),
    "codex, a review": (*codex(request_kind="turn"), ("x-openai-subagent", "review")),
    "opencode": (("x-session-id", "ses_2"), ("x-parent-session-id", "ses_1")),
}


@pytest.mark.parametrize("headers", SUBAGENTS.values(), ids=SUBAGENTS)
def test_headers_name_sub_agents(headers: tuple[tuple[str, str], ...]) -> None:
    assert evidence(judge([made(0, [1], headers=headers)]), 0) == (SUBAGENT, Source.HEADER)


@pytest.mark.parametrize(
    ("said", "kind"),
    [("turn", MAIN), ("compaction", COMPACTION), ("prewarm", PROBE), ("a new word", MAIN)],
)
def test_codex_says_what_a_request_is_for(said: str, kind: CallKind) -> None:
    assert kinds(made(0, [1], headers=codex(request_kind=said))) == [kind]


def test_a_sub_agents_compaction_is_one() -> None:
    headers = (*SUBAGENTS["claude code"], ("anthropic-beta", "a-1,fallback-credit-2026"))
    assert kinds(made(0, [1], headers=headers), recipes=named("claude-code")) == [COMPACTION]


def of(system: str | None = None, last: str | None = None, *tools: str, wants_json: bool = False) -> Shape:
    return Shape(2, tools, wants_json, opening(system or ""), opening(last or ""))


SIDE_CALLS: dict[str, tuple[str, Shape, dict[str, Any], CallKind]] = {
    "claude code's title": ("claude-code", of(wants_json=True), {}, TITLE),
    "claude code's search": ("claude-code", of(None, None, "web_search"), {}, PROBE),
    "claude code's compaction": (
        "claude-code",
        of(None, "CRITICAL: Respond with TEXT ONLY. Do NOT", "Bash", "Edit"),
        {},
        COMPACTION,
    ),
    "qwen code's compaction": ("qwen-code", of(None, "You are the component that summarizes", "edit"), {}, COMPACTION),
    "qwen code's sub-agent": ("qwen-code", of("You are a general-purpose subagent working", None, "a"), {}, SUBAGENT),
    "gemini's router": ("gemini-cli", of("You are a specialized Task", wants_json=True), {"streamed": False}, PROBE),
    "gemini's search": ("gemini-cli", of(None, None, "googleSearch"), {"streamed": False}, PROBE),
    "gemini's compaction": (
        "gemini-cli",
        of("You are a specialized system component"),
        {"streamed": False},
        COMPACTION,
    ),
    "gemini's summary": ("gemini-cli", of(), {"streamed": False}, SUMMARY),
    "gemini's sub-agent": ("gemini-cli", of(None, None, "read_file", "complete_task"), {}, SUBAGENT),
    "pi's compaction": ("pi", of("You are a context summarization assistant."), {}, COMPACTION),
    "opencode's title": ("opencode", of("You are a title generator. You"), {}, TITLE),
    "opencode's compaction": ("opencode", of("You are a context summarization agent."), {}, COMPACTION),
    "aider's commit message": ("aider", of("You are an expert software engineer"), {"streamed": False}, SUMMARY),
    "aider's chat summary": ("aider", of("*Briefly* summarize this partial conversation about"), {}, SUMMARY),
}


@pytest.mark.parametrize(("harness", "shape", "fields", "kind"), SIDE_CALLS.values(), ids=SIDE_CALLS)
def test_side_calls_are_recognised(harness: str, shape: Shape, fields: dict[str, Any], kind: CallKind) -> None:
    judged = judge([*MAIN_TURNS, made(1, [7], shape, **fields)], known_recipes(), harness)
    assert evidence(judged, 1) == (kind, Source.RECIPE)
    assert [captured.kind for captured in judged.calls[:2]] == [MAIN, MAIN]


@given(sessions(), st.sampled_from(known_recipes()))
def test_every_call_gets_one_kind_and_nothing_else_changes(calls: list[CapturedCall], recipe: Recipe) -> None:
    judged = judge(calls, (recipe,), recipe.name)
    assert [captured.call for captured in judged.calls] == [captured.call for captured in calls]
    assert list(judged.verdicts) == [captured.call.call_id for captured in calls]
    assert sum(judged.kinds().values()) == len(calls)


@given(sessions(), st.randoms())
def test_the_order_of_storage_changes_no_kind(calls: list[CapturedCall], chance: Any) -> None:
    shuffled = list(calls)
    chance.shuffle(shuffled)
    assert dict(judge(shuffled, known_recipes()).verdicts) == dict(judge(calls, known_recipes()).verdicts)

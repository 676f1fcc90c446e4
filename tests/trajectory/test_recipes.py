"""The rules that tell a harness's calls apart: data, read strictly, and true only of what is known."""

from dataclasses import replace
from typing import Any

import pytest

from polarproxy.cli.recipes import known_recipes
from polarproxy.errors import BadSettings
from polarproxy.model import CallKind, CapturedCall, Shape, opening
from polarproxy.trajectory.kinds import judge
from polarproxy.trajectory.recipes import Condition, read_recipe
from tests.trajectory.build import Said, call

HEAD = 'format = 1\nname = "x"\nversion = "1"\n'
MAIN = CallKind.MAIN
SYSTEM = "You are a title generator. Be short."
SHAPE = Shape(3, ("bash", "read"), False, opening(SYSTEM), opening("Say one two three four"))
CALL = replace(call(0, [1], Said([2])), shape=SHAPE, headers=(("user-agent", "tool/1.2"), ("x-id", "7")))

TRUE: list[dict[str, Any]] = [
    {"header": "x-id"},
    {"header": "user-agent", "starts": "tool/"},
    {"header": "user-agent", "contains": "/1"},
    {"tools": True},
    {"offers": ("read",)},
    {"offers": ("read", "bash")},
    {"json": False},
    {"streamed": True},
    {"system": "You are a title generator."},
    {"last": "Say one two three four"},
    {"tools": True, "header": "x-id", "json": False},
]
FALSE: list[dict[str, Any]] = [
    {"header": "x-other"},
    {"header": "user-agent", "starts": "cool/"},
    {"header": "user-agent", "contains": "2.0"},
    {"tools": False},
    {"offers": ("read", "write")},
    {"only": "bash"},
    {"json": True},
    {"streamed": False},
    {"system": "You are a coding agent"},
    {"last": "Say one two three five"},
    {"tools": True, "header": "x-other"},
]


@pytest.mark.parametrize("conditions", TRUE, ids=str)
def test_a_condition_holds(conditions: dict[str, Any]) -> None:
    assert Condition(**conditions).holds(CALL)


@pytest.mark.parametrize("conditions", FALSE, ids=str)
def test_a_condition_does_not_hold(conditions: dict[str, Any]) -> None:
    assert not Condition(**conditions).holds(CALL)


def test_one_tool_is_the_only_one() -> None:
    assert Condition(only="bash").holds(replace(CALL, shape=replace(SHAPE, tools=("bash",))))


@pytest.mark.parametrize("conditions", [{"tools": False}, {"only": "a"}, {"json": False}, {"offers": ("a",)}], ids=str)
def test_of_a_call_without_a_shape_nothing_is_known(conditions: dict[str, Any]) -> None:
    assert not Condition(**conditions).holds(replace(CALL, shape=None))


BAD = {
    "an unknown member": HEAD + 'colour = "red"',
    "an unknown condition": HEAD + '[[kinds]]\nkind = "title"\nwhat = "t"\nmood = "good"',
    "an unknown kind": HEAD + '[[kinds]]\nkind = "poem"\nwhat = "t"\ntools = false',
    "a rule without a condition": HEAD + '[[kinds]]\nkind = "title"\nwhat = "t"',
    "a harness that everything shows": HEAD + "[[recognised_by]]",
    "four words": HEAD + '[[kinds]]\nkind = "title"\nwhat = "t"\nsystem = "You are a title"',
    "a value of no header": HEAD + '[[kinds]]\nkind = "title"\nwhat = "t"\ntools = false\nstarts = "x"',
    "another format": 'format = 2\nname = "x"\nversion = "1"',
    "no name": 'format = 1\nversion = "1"',
    "an unknown dialect": HEAD + 'dialect = "morse"',
    "an npm package of any version": HEAD + '[install]\nnpm = ["left-pad"]',
    "an npm package of a range": HEAD + '[install]\nnpm = ["left-pad@^1.0.0"]',
    "a Python package of a range": HEAD + '[install]\npip = ["six>=1"]',
    "a Python package from elsewhere": HEAD + '[install]\npip = ["six @ https://example.invalid/six.whl"]',
    "a program outside": HEAD + '[install]\nprograms = {sh = "../../bin/sh"}',
    "another program outside": HEAD + '[install]\nprograms = {sh = "/bin/sh"}',
    "a version of node that is a range": HEAD + '[install]\nnode = "22"',
    "a version of Python that is none": HEAD + '[install]\npython = "three"',
    "no command": HEAD + "[start]\ncommand = []",
    "a file outside the home": HEAD + '[start]\ncommand = ["a"]\n[start.files]\n"../.bashrc" = ""',
    "a check without turns": HEAD + "[check]\nturns = []",
    "an empty turn": HEAD + "[check]\nturns = [{}]",
    "no TOML": "format = ",
    "no text": b"\xff".decode("latin-1"),
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_malformed_recipe_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadSettings, match="the file is not a recipe"):
        read_recipe(text.encode("latin-1"), "the file")


def test_the_recipes_of_all_harnesses_are_read() -> None:
    names = [recipe.name for recipe in known_recipes()]
    assert names == sorted(names)
    assert set(names) >= {
        *("claude-code", "codex", "qwen-code", "gemini-cli", "pi", "opencode", "mini-swe-agent", "aider"),
        *("calculator", "shell"),
    }


def test_no_recipe_makes_work_of_a_side_call_or_the_reverse() -> None:
    """`main` is what is left when nothing says otherwise; a rule for it would hide what the others say."""
    kinds = {rule.kind for recipe in known_recipes() for rule in recipe.kinds}
    assert kinds <= {CallKind.TITLE, CallKind.SUMMARY, CallKind.COMPACTION, CallKind.PROBE, CallKind.SUBAGENT}


SIGNED = {
    "gemini-cli": (("user-agent", "GeminiCLI/0.61.0"),),
    "claude-code": (("x-claude-code-session-id", "1"),),
}
SCRIPTS = {
    "gemini-cli": (Shape(1, (), False, None, None), CallKind.SUMMARY),
    "claude-code": (Shape(1, (), True, None, None), CallKind.TITLE),
}


@pytest.mark.parametrize("harness", SCRIPTS)
def test_a_script_that_the_agent_runs_asks_for_no_summary_of_its_harness(harness: str) -> None:
    """It looks like the harness's own side call, and lacks the header that those have."""
    shape, kind = SCRIPTS[harness]
    work = replace(call(0, [1], Said([2])), headers=SIGNED[harness], shape=SHAPE)
    script = replace(call(1, [5], Said([6])), shape=shape, streamed=False)
    own = replace(call(2, [7], Said([8])), headers=SIGNED[harness], shape=shape, streamed=False)
    given = [CapturedCall(one, delivered=True) for one in (work, script, own)]
    for name in (None, harness):
        assert [captured.kind for captured in judge(given, known_recipes(), name).calls] == [MAIN, MAIN, kind]


@pytest.mark.parametrize("harness", SCRIPTS)
def test_where_no_call_is_signed_the_rules_hold_for_all(harness: str) -> None:
    """A relay dropped the headers, and somebody named the harness."""
    shape, kind = SCRIPTS[harness]
    given = [call(0, [1], Said([2])), replace(call(1, [5], Said([6])), shape=shape, streamed=False)]
    judged = judge([CapturedCall(one, delivered=True) for one in given], known_recipes(), harness)
    assert [captured.kind for captured in judged.calls] == [MAIN, kind]


def test_words_tell_a_side_call_whoever_sends_it() -> None:
    work = replace(call(0, [1], Said([2])), headers=SIGNED["gemini-cli"], shape=SHAPE)
    words = Shape(1, (), False, opening("You are a specialized system component"), None)
    given = [CapturedCall(one, delivered=True) for one in (work, replace(call(1, [5], Said([6])), shape=words))]
    assert judge(given, known_recipes()).calls[1].kind is CallKind.COMPACTION

"""Built-in judges, each by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.credit.counting import count_tests, passed_share
from polarproxy.credit.judges import JUDGES
from polarproxy.credit.spec import Component, judge_options
from polarproxy.credit.transcript import SaidTurn, ToolCall, Transcript
from polarproxy.errors import BadReward
from polarproxy.model import Session
from tests.trajectory.build import WHEN

SESSION = Session("s", WHEN, metadata=(("answer", "85"), ("word", "Yes")))


def said(*turns: str | tuple[str, str] | tuple[str, str, str | None], tokens: int = 10) -> Transcript:
    """A text, or a tool call: name, arguments, and what it answered."""
    made = []
    for place, turn in enumerate(turns):
        tools = () if isinstance(turn, str) else (ToolCall(*turn),)
        made.append(SaidTurn((f"c{place}", 0), turn if isinstance(turn, str) else "", tools=tools, tokens=tokens))
    return Transcript("do it", tuple(made))


def judged(name: str, transcript: Transcript, **options: Any) -> float | None:
    judge = {known: function for known, _, function in JUDGES}[name]
    return judge(SESSION, transcript, judge_options(Component(name="x", judge=name, options=options)))


CASES: list[tuple[str, dict[str, Any], Transcript, float | None]] = [
    ("exact_match", {"expected": "85"}, said("no", " 85\n"), 1.0),
    ("exact_match", {"expected": "85"}, said("85."), 0.0),
    ("exact_match", {"expected_from": "word", "ignore_case": True}, said("YES"), 1.0),
    ("exact_match", {"expected_from": "word"}, said("YES"), 0.0),
    ("exact_match", {"expected": "85", "last_line": True}, said("so:\n 85 \n"), 1.0),
    ("exact_match", {"expected": "", "last_line": True}, said(""), 1.0),
    ("exact_match", {"expected_from": "nothing"}, said("85"), None),
    ("numeric_match", {"expected_from": "answer"}, said("47 + 38 = 85.0"), 1.0),
    ("numeric_match", {"expected_from": "answer"}, said("85, no: 84"), 0.0),
    ("numeric_match", {"expected": "1234"}, said("1,234"), 1.0),
    ("numeric_match", {"expected": "0.3", "tolerance": 0.05}, said("0.34"), 1.0),
    ("numeric_match", {"expected": "-3"}, said("-3"), 1.0),
    ("numeric_match", {"expected": "3"}, said("none"), 0.0),
    ("json_schema", {"schema": {"type": "object", "required": ["a"]}}, said('{"a": 1}'), 1.0),
    ("json_schema", {"schema": {"type": "object"}}, said('Here:\n```json\n{"a": 1}\n```'), 1.0),
    ("json_schema", {"schema": {"type": "object"}}, said("[1]"), 0.0),
    ("json_schema", {"schema": True}, said("{"), 0.0),
    ("regex", {"pattern": "a+"}, said("b", "caat"), 1.0),
    ("regex", {"pattern": "a+", "whole": True}, said("caat"), 0.0),
    ("tests", {}, said(("bash", "{}", "3 passed, 1 failed"), ("bash", "{}", "ok"), "done"), 0.75),
    ("tests", {"tool": "^run"}, said(("bash", "{}", "3 passed"), ("read", "{}", None)), None),
    ("length", {"free": 10, "most": 30}, said("a", "b"), 0.5),
    ("length", {"free": 20, "most": 30}, said("a", "b"), 0.0),
    ("length", {"free": 0, "most": 5}, said("a"), 1.0),
    ("repetition", {"ngram": 2}, said("a b a b"), 1 / 3),
    ("repetition", {}, said("one two"), 0.0),
    ("loop", {}, said("look again at it", "look again at it", "and now something else"), 0.5),
    ("loop", {}, said(("bash", '{"a": 1}'), ("bash", '{"a": 1}'), ("bash", '{"a": 1}')), 1.0),
    ("loop", {}, said("alone"), 0.0),
    ("asked_before_acting", {}, said("Which file?", ("bash", "{}")), 1.0),
    ("asked_before_acting", {}, said(("ask_user", "{}"), ("bash", "{}")), 1.0),
    ("asked_before_acting", {}, said(("bash", "{}"), "Was that right?"), 0.0),
    ("asked_before_acting", {}, said(("read_file", "{}"), "Which one?", ("write", "{}")), 1.0),
    ("asked_before_acting", {}, said("I run `what?` now.", ("bash", "{}")), 0.0),
    ("asked_before_acting", {}, said("Which?"), 1.0),
    ("asked_before_acting", {}, said(("Task", "{}"), ("bash", "{}")), 0.0),
    ("asked_before_acting", {}, said(("AskUserQuestion", "{}"), ("Task", "{}")), 1.0),
    ("asked_before_acting", {}, said(("user_ask", "{}"), ("bash", "{}")), 1.0),
    ("acted_at_once", {}, said(("task", "{}")), 1.0),
    ("acted_at_once", {}, said(("create_thread", "{}")), 1.0),
    ("never_committed", {}, said(("Task", "{}")), 0.0),
    ("acted_at_once", {}, said(("bash", "{}"), "done"), 1.0),
    ("acted_at_once", {}, said(("grep", "{}"), ("bash", "{}")), 0.0),
    ("acted_at_once", {"looks": "^bash$"}, said(("bash", "{}")), 0.0),
    ("never_committed", {}, said(("grep", "{}"), "I think it is fine"), 1.0),
    ("never_committed", {}, said("hm", ("edit", "{}")), 0.0),
]


@pytest.mark.parametrize(("name", "options", "transcript", "expected"), CASES)
def test_by_hand(name: str, options: dict[str, Any], transcript: Transcript, expected: float | None) -> None:
    assert judged(name, transcript, **options) == (None if expected is None else pytest.approx(expected))


def test_an_expected_answer_that_is_no_number_is_said() -> None:
    with pytest.raises(BadReward, match="'Yes' is no number"):
        judged("numeric_match", said("1"), expected_from="word")


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ("==== 3 passed in 0.1s ====", (3, 0)),
        ("==== 1 failed, 2 passed, 1 error in 3s ====", (2, 2)),
        ("2 passed\nthen again\n5 passed, 1 failed", (5, 1)),
        ("Tests:       1 failed, 5 passed, 6 total", (5, 1)),
        ("test result: FAILED. 4 passed; 2 failed; 0 ignored", (4, 2)),
        ("Ran 5 tests in 0.1s\n\nOK", (5, 0)),
        ("Ran 5 tests in 0.1s\n\nFAILED (failures=1, errors=2)", (2, 3)),
        ("--- PASS: TestA (0.0s)\n--- FAIL: TestB (0.0s)\nFAIL", (1, 1)),
        ("nothing ran", None),
    ],
)
def test_what_test_runners_print(output: str, counts: tuple[int, int] | None) -> None:
    assert count_tests(output) == counts


def test_the_share_of_tests() -> None:
    assert (passed_share("3 passed, 1 failed"), passed_share("0 passed"), passed_share("")) == (0.75, None, None)


_texts = st.lists(
    st.text(max_size=20) | st.tuples(st.sampled_from(["bash", "read", "ask"]), st.text(max_size=10)), max_size=4
)
_NEEDED: dict[str, dict[str, Any]] = {"exact_match": {"expected": "1"}, "numeric_match": {"expected": "1"}}


@pytest.mark.parametrize("name", [name for name, _, _ in JUDGES])
@given(turns=_texts)
def test_whatever_was_said_a_judge_gives_a_share_or_nothing(name: str, turns: list[Any]) -> None:
    value = judged(name, said(*turns), **_NEEDED.get(name, {}))
    assert value is None or 0 <= value <= 1


def test_what_a_turn_is() -> None:
    broken = SaidTurn(("c", 0), "", tools=(ToolCall("bash", "{"),))
    assert not broken.well_formed
    assert not SaidTurn(("c", 0), "<tool_call>{").well_formed
    assert not SaidTurn(("c", 0), "x", cut=True).well_formed
    whole = SaidTurn(("c", 0), "x", tools=(ToolCall("bash", '{"a": 1}'), ToolCall("bash", "{}")))
    assert whole.well_formed
    assert whole.code == '{"a": 1}\n{}'
    assert not ToolCall("bash", "[1]").readable
    assert not ToolCall("bash", "[" * 100_000).readable


def test_the_final_text_is_that_of_the_main_agent() -> None:
    main, other = SaidTurn(("c0", 0), "42"), SaidTurn(("c1", 0), "17", subagent=True)
    assert Transcript("", (main, other)).final_text == "42"
    assert (Transcript("", (other,)).final_text, Transcript("", ()).final_text) == ("17", "")

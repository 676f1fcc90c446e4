"""What `--where` keeps, and what it says when it cannot be understood."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.errors import BadExport
from polarproxy.export.where import KEYS, read_where
from polarproxy.model import Reward, RewardComponent, Session, SessionStatus

ONE = Session(
    "s1",
    datetime(2026, 11, 1, 12, tzinfo=UTC),
    status=SessionStatus.COMPLETED,
    task_id="math-1",
    group_id="math",
    harness="codex",
    reward=Reward(0.5, (RewardComponent("Tests", 1.0), RewardComponent("my style", -2.0))),
)
BARE = Session("s2", datetime(2026, 11, 2, tzinfo=timezone(timedelta(hours=2))))


@pytest.mark.parametrize(
    ("text", "one", "bare"),
    [
        ("", True, True),
        ("harness=codex", True, False),
        ("harness=none", False, True),
        ("harness!=none", True, False),
        ("harness=opencode,codex", True, False),
        ("harness!=opencode,codex", False, True),
        ("task=math-*", True, False),
        ("task!=math-?", False, True),
        ('task="math-1"', True, False),
        ('harness="none"', False, False),
        ("harness=codex task=math-2", False, False),
        ("harness=codex and task = math-1", True, False),
        ("HARNESS==codex", True, False),
        ("session=s?", True, True),
        ("session=[s]1", False, False),
        ("session!=[!x]*", True, True),
        ("status=completed,timeout", True, False),
        ("group=math", True, False),
        ("time>=2026-11-01", True, True),
        ("time>2026-11-01", False, False),
        ("time=2026-11-01", True, True),
        ("time<=2026-11-01", True, True),
        ("time<2026-11-01", False, False),
        ("time>2026-11-01T12:00", False, True),
        ("time>=2026-11-01T12:00Z", True, True),
        ("time<2026-11-01T14:00+02:00", False, False),
    ],
)
def test_which_sessions_are_kept(text: str, one: bool, bare: bool) -> None:
    """2026-11-02 in a zone two hours ahead is the first of November still."""
    where = read_where([text])
    assert (where.session(ONE), where.session(BARE)) == (one, bare)
    assert where.reward(ONE)
    assert not where.of_turns


@pytest.mark.parametrize(
    ("text", "one", "bare"),
    [
        ("reward>0.4", True, False),
        ("reward>=0.5 reward<=0.5", True, False),
        ("reward<0.5", False, False),
        ("reward=5e-1", True, False),
        ("reward=none", False, True),
        ("reward!=none", True, False),
        ("reward!=1", True, True),
        ("reward.tests>=1", True, False),
        ("reward.style>=1", False, False),
        ("reward.style=none", True, True),
        ("reward>-1", True, False),
    ],
)
def test_which_rewards_are_kept(text: str, one: bool, bare: bool) -> None:
    where = read_where([text])
    assert (where.reward(ONE), where.reward(BARE)) == (one, bare)
    assert where.session(ONE)
    assert where.session(BARE)


def test_several_texts_must_all_hold() -> None:
    where = read_where(["harness=codex", "task=math-1 kind=main"])
    assert (where.session(ONE), where.of_turns, len(where.terms)) == (True, True, 3)
    assert where.text == "harness=codex task=math-1 kind=main"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("harnes=codex", "no 'harnes'; did you mean harness?"),
        ("colour=red", "there are session, task, group, harness, status, time, reward, kind, model, version"),
        ("kind=mian", "no kind 'mian'; did you mean main?"),
        ("status=complete", "did you mean completed?"),
        ("reward>high", "'high' is not a finite number"),
        ("reward>nan", "not a finite number"),
        ("reward=1e999", "not a finite number"),
        ("version>=3.5", "not a whole number"),
        ("time>yesterday", "not a date (2026-11-01)"),
        ("time>2026-13-01", "not a date"),
        ("harness>codex", "> compares numbers and times"),
        ("reward>1,2", "one at a time"),
        ("reward>none", "compares numbers"),
        ("reward", "cannot be read from 'reward' on"),
        ("harness=codex or task=x", "cannot be read from 'or task=x' on"),
        ("harness=", "cannot be read"),
        ('task="a b', "cannot be read"),
        ("harness=codex,", "cannot be read"),
        ("=x", "cannot be read"),
    ],
)
def test_what_cannot_be_understood_is_said_with_the_nearest(text: str, said: str) -> None:
    with pytest.raises(BadExport) as error:
        read_where([text])
    assert said in str(error.value)


def test_an_empty_selection_says_which_term_and_what_there_is() -> None:
    assert read_where(["harness=codx"]).nothing([ONE]) == "no session has the harness codx; did you mean codex?"
    assert "there are: codex" in read_where(["harness=zzz"]).nothing([ONE])
    assert "there are: none at all" in read_where(["harness=codex"]).nothing([BARE])
    assert read_where(["harness!=codex"]).nothing([ONE]) == "every session has the harness codex"
    assert read_where(["harness!=none"]).nothing([BARE]) == "every session has the harness none"
    both = read_where(["harness=codex time<2026-01-01"])
    assert both.nothing([ONE]) == "no session fulfils all of: harness=codex time<2026-01-01"


@given(st.text(max_size=60))
def test_any_text_is_understood_or_refused_in_a_sentence(text: str) -> None:
    try:
        where = read_where([text])
    except BadExport:
        return
    assert all(term.key in KEYS or term.key.startswith("reward.") for term in where.terms)
    where.session(ONE)
    where.reward(replace(ONE, reward=None))


NAMES = st.text(st.characters(exclude_characters='"*?\x00', exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1)


@given(NAMES, NAMES)
def test_a_quoted_name_is_that_name(name: str, other: str) -> None:
    where = read_where([f'task="{name}"'])
    assert where.session(replace(ONE, task_id=name))
    assert where.session(replace(ONE, task_id=other)) == (name == other)


@given(st.text("ab[]!-]^{}().+\\$", min_size=1, max_size=8))
def test_a_name_without_wildcards_is_itself_and_no_other(name: str) -> None:
    own, other = replace(ONE, task_id=name), replace(ONE, task_id=f"{name}a")
    where, without = read_where([f'task="{name}"']), read_where([f'task!="{name}"'])
    assert (where.session(own), where.session(other)) == (True, False)
    assert (without.session(own), without.session(other)) == (False, True)


def test_what_no_report_could_repeat_is_refused() -> None:
    with pytest.raises(BadExport, match="must be UTF-8"):
        read_where(["session!=\udcff"])

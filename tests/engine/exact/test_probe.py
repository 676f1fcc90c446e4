"""What the probe says of a template, for each way in which templates differ where turns end."""

from __future__ import annotations

import pytest

from polarproxy.engine.exact.probe import probe, read
from polarproxy.engine.exact.template import Refused, Standing, TemplateFacts
from polarproxy.model import FallbackReason
from tests.engine.exact.toys import TEMPLATES, facts_of

NONE, FULL, SHORT = Standing.NONE, Standing.FULL, Standing.SHORT

EXPECTED = {
    "plain": (SHORT, SHORT, SHORT),
    "tool list in front": (SHORT, SHORT, SHORT),
    "numbered turns": (FULL, FULL, FULL),
    "tools before the last question": (NONE, SHORT, NONE),
    "system in front": (SHORT, SHORT, NONE),
    "ids of calls": (SHORT, SHORT, SHORT),
    "calls end otherwise": (SHORT, SHORT, SHORT),
    "calls are not shown": (SHORT, NONE, SHORT),
    "no tools at all": (SHORT, NONE, SHORT),
    "a space before the end": (SHORT, SHORT, SHORT),
    "words for marks": (SHORT, SHORT, SHORT),
    "a header before the text": (SHORT, SHORT, SHORT),
    "several calls are numbered": (SHORT, FULL, SHORT),
}
"""For turns without and with calls, and before a system message."""
REFUSED = (
    "numbered turns, from the end",
    "length in front",
    "the assistant is not shown",
    "nothing is shown",
    "a hidden turn is marked in front",
)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_template_is_known(name: str) -> None:
    facts = facts_of(TEMPLATES[name], tools=True)
    assert isinstance(facts, TemplateFacts)
    assert (facts.after_text, facts.after_calls, facts.before_system) == EXPECTED[name]
    assert facts.ids_shown == (name == "ids of calls")
    assert (facts.header is not None) == (name == "a header before the text")


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_without_a_stable_cut_is_refused(name: str) -> None:
    facts = facts_of(TEMPLATES[name], tools=True)
    assert isinstance(facts, Refused)
    assert facts.reason is FallbackReason.TEMPLATE_REFUSED
    assert len(facts.detail) > 40


def test_every_template_is_expected_to_be_something() -> None:
    assert EXPECTED.keys() | set(REFUSED) == TEMPLATES.keys()


def test_an_engine_that_renders_nothing_is_refused() -> None:
    asked = probe({})
    assert isinstance(read(asked, [None] * len(asked.bodies)), Refused)


def test_another_template_has_another_fingerprint() -> None:
    found = [facts_of(TEMPLATES[name]) for name in ("plain", "plain", "numbered turns")]
    prints = [facts.fingerprint for facts in found if isinstance(facts, TemplateFacts)]
    assert prints[0] == prints[1] != prints[2]

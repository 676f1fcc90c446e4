"""What an engine would refuse is not sent to it, where the client speaks another dialect than its own."""

import json
from dataclasses import replace
from typing import Any

import pytest

from polarproxy.engine.probe import EngineFacts
from polarproxy.model import Dialect
from polarproxy.proxy.asking import Asking, fit, understand
from polarproxy.proxy.routes import Action, Route
from polarproxy.proxy.visit import Said

ASKED: dict[str, Any] = {"model": "m", "max_tokens": 900, "messages": [{"role": "user", "content": "hi"}]}
THINKING = {"type": "enabled", "budget_tokens": 700}
VLLM = EngineFacts("vllm", "m", 1000, thinking_budgets=True)


def fitted(facts: EngineFacts, dialect: Dialect = Dialect.MESSAGES, **more: Any) -> Asking:
    body = json.dumps(ASKED | more).encode()
    asking = understand(Route(dialect, Action.GENERATE), {}, Said(body, body), "c1", keep_reply=False)
    fit(asking, facts)
    return asking


@pytest.mark.parametrize("counts", [True, False])
def test_a_budget_of_thinking_goes_to_engines_that_count_it(counts: bool) -> None:
    asking = fitted(replace(VLLM, thinking_budgets=counts), thinking=THINKING)
    assert ("thinking_token_budget" in asking.request.fields) is counts
    assert ("reasoning.budget" in [loss.where for loss in asking.losses]) is not counts


@pytest.mark.parametrize(("context", "kept"), [(None, True), (901, True), (900, False)])
def test_a_limit_beyond_the_context_is_none(context: int | None, kept: bool) -> None:
    asking = fitted(replace(VLLM, max_model_len=context))
    assert ("max_tokens" in asking.request.fields) is kept
    assert [loss.where for loss in asking.losses] == ([] if kept else ["max_tokens"])


def test_in_its_own_dialect_the_engine_refuses_by_itself() -> None:
    facts = EngineFacts("vllm", "m", 10)
    asking = fitted(facts, Dialect.CHAT, thinking_token_budget=5)
    assert {"max_tokens", "thinking_token_budget"} <= asking.request.fields.keys()
    assert asking.losses == []

"""The whole tree of a session of a real coding agent: for each call what it is, what it goes on from, and what became of it.

What is expected of each run lies in `tests/fixtures/harnesses/trees.json`, by test: calls are named by the rule of the scenario
that answered them and counted from 0, so that nothing depends on ids, or on which of two parallel calls came first.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from polarproxy.model import Call
from polarproxy.trajectory.rebuilt import Rebuilt
from tests.fakes.toy_tokenizer import token_bytes
from tests.harnesses.scripted import Played

EXPECTED = Path(__file__).parent.parent / "fixtures" / "harnesses" / "trees.json"
Tree = dict[str, str]
OPEN = frozenset(
    f"test_{name}"
    for name in (
        "claude_code::test_a_failure_and_cuts_are_tried_again",
        "codex::test_a_failure_and_cuts_are_tried_again[socket]",
        "codex::test_a_failure_and_cuts_are_tried_again[sse]",
        "gemini_cli::test_a_failure_and_a_cut_are_tried_again",
        "opencode::test_a_failure_and_a_cut_are_tried_again",
        "qwen_code::test_a_failure_and_cuts_are_tried_again",
    )
)
"""Runs in which the agent may go on from a reply that broke off or ask anew, by what had arrived; `story` says what holds of
them."""


@cache
def _all() -> dict[str, list[Tree]]:
    trees: dict[str, list[Tree]] = json.loads(EXPECTED.read_text())
    return trees


def expected(test: str) -> list[Tree]:
    """The trees that a test's run may rebuild into; empty when nobody has said, or for one that is open."""
    return _all().get(test, [])


def names(calls: Sequence[Call], played: Sequence[Played]) -> Mapping[str, str]:
    """By call id, the rule that answered it and how many it had answered before. What the engine refused has no id of its
    reply: such calls are the rules that are left, in order."""
    count: Counter[str] = Counter()
    said: list[str] = []
    for one in played:
        said.append(f"{one.rule} {count[one.rule]}")
        count[one.rule] += 1
    by_reply = {f"chatcmpl-{number:016x}": name for number, name in enumerate(said, 1)}
    found = {call.call_id: by_reply.pop(call.engine_request_id) for call in calls if call.engine_request_id is not None}
    left = [call.call_id for call in sorted(calls, key=lambda call: call.ordinal) if call.call_id not in found]
    return found | dict(zip(left, by_reply.values(), strict=True))


def tree(rebuilt: Rebuilt, named: Mapping[str, str]) -> Tree:
    """Kind, place and outcome of every call, by name."""
    places, outcomes, spawned = _places(rebuilt, named), _outcomes(rebuilt), _spawned(rebuilt, named)
    kinds = {call_id: verdict.kind.value for call_id, verdict in rebuilt.judged.verdicts.items()}
    told = {
        named[
            call_id
        ]: f"{kinds[call_id]}{spawned.get(call_id, '')}; {places.get(call_id, 'no prompt')}; {outcomes[call_id]}"
        for call_id in kinds
    }
    return dict(sorted(told.items()))


def _places(rebuilt: Rebuilt, named: Mapping[str, str]) -> dict[str, str]:
    forest = rebuilt.forest
    texts = {token: token_bytes(token) for node in forest.nodes for token in {*node.prompt, *node.completion.token_ids}}
    drifts = {drift.call_id: drift for drift in rebuilt.drifts(texts)}
    found = {}
    for node in forest.nodes:
        call_id = node.captured.call.call_id
        parts = []
        if node.parent is not None:
            parts.append(f"goes on from {named[forest.nodes[node.parent].captured.call.call_id]}")
        if call_id in drifts:
            drift = drifts[call_id]
            parts.append(f"tells {named[drift.earlier_call_id]} again ({drift.drift_class.value})")
        found[call_id] = ", ".join(parts) or "begins"
    return found


def _outcomes(rebuilt: Rebuilt) -> dict[str, str]:
    left_out = {entry.call_id: entry.reason.value for entry in rebuilt.trajectory.left_out}
    turns = (turn for branch in rebuilt.trajectory.branches for turn in branch.turns if turn.trained)
    return left_out | dict.fromkeys((turn.node.captured.call.call_id for turn in turns), "trained")


def _spawned(rebuilt: Rebuilt, named: Mapping[str, str]) -> dict[str, str]:
    """For each call of a sub-agent, what it hangs under."""

    def told() -> Iterator[tuple[str, str]]:
        for agent in rebuilt.agents():
            if agent.is_subagent:
                under = "the session" if agent.spawned_by is None else named[agent.spawned_by]
                yield from ((call_id, f" under {under}") for call_id in agent.calls)

    return dict(told())

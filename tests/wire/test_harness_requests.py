"""Requests of real coding agents: each is understood, and what they say once they say in the same words to the engine."""

import json
import re
from collections import defaultdict

import pytest

from polarproxy.model import Dialect, Loss
from polarproxy.proxy.address import locate
from polarproxy.proxy.headers import to_record
from polarproxy.proxy.keys import Signer
from tests.harnesses.recorded import NAMES, Recorded, recorded
from tests.harnesses.scenes import COMMAND, THOUGHT
from tests.wire.harness_reading import Understood, route_of, scenarios, understood
from tests.wire.harness_tables import LINEAGES, LOSSES, OTHER_TOOLS, Expected, Line

HARNESS = pytest.mark.parametrize("harness", NAMES)
SIGNER = Signer(b"a secret")


@HARNESS
def test_every_request_is_of_a_known_dialect(harness: str) -> None:
    by_name = {"responses": Dialect.RESPONSES, "messages": Dialect.MESSAGES, "gemini": Dialect.GEMINI}
    usual = {
        "claude-code": Dialect.MESSAGES,
        "codex": Dialect.RESPONSES,
        "codex-socket": Dialect.RESPONSES,
        "gemini-cli": Dialect.GEMINI,
    }
    for request in recorded(harness):
        expected = by_name.get(request.scenario, usual.get(harness, Dialect.CHAT))
        assert route_of(request).dialect is expected, request


@HARNESS
def test_what_is_lost_is_explained(harness: str) -> None:
    def fits(expected: Expected, by: str, loss: Loss) -> bool:
        found = re.fullmatch(expected.where, loss.where) is not None
        return found and expected.by == by and expected.why in loss.why

    seen = set()
    for each in understood(harness):
        for by, loss in each.losses:
            matching = [expected for expected in LOSSES[harness] if fits(expected, by, loss)]
            assert len(matching) == 1, (str(each.request), by, loss)
            seen.update(matching)
    assert seen == set(LOSSES[harness])


def line(each: Understood, earlier: list[Understood], written: Line) -> Line:
    """The latest earlier request that this one repeats, with a reply after it; `written` where it begins and so it says."""
    for place in range(len(earlier) - 1, -1, -1):
        before = earlier[place].messages
        after = each.messages[len(before) :]
        if after and after[0]["role"] == "assistant" and each.messages[: len(before)] == before:
            return place
    return written if isinstance(written, str) else "begins"


@HARNESS
def test_a_conversation_goes_on_with_the_same_messages(harness: str) -> None:
    """Engines reuse what they computed of a prompt, and we find a session by it, only where every byte is the same."""
    found = {
        name: tuple(
            line(each, requests[:place], written)
            for place, (each, written) in enumerate(zip(requests, LINEAGES[harness][name], strict=True))
        )
        for name, requests in scenarios(harness).items()
    }
    assert found == LINEAGES[harness]


@HARNESS
def test_a_conversation_goes_on_with_the_same_tools(harness: str) -> None:
    other = set()
    for name, requests in scenarios(harness).items():
        for each, before in zip(requests, LINEAGES[harness][name], strict=True):
            if isinstance(before, int) and each.asked.get("tools") != requests[before].asked.get("tools"):
                other.add(str(each.request))
    assert other == {request for request in OTHER_TOOLS if request.startswith(f"{harness}/")}


@HARNESS
def test_a_thought_and_a_call_come_back(harness: str) -> None:
    """The second request of the first scenario: the thought in the agent's way of sending it, the call, its result."""
    second = next(each for each in scenarios(harness)["tool"] if any("tool_calls" in said for said in each.messages))
    place = next(place for place, said in enumerate(second.messages) if "tool_calls" in said)
    said, result = second.messages[place : place + 2]
    assert said["reasoning"] == THOUGHT
    (call,) = said["tool_calls"]
    assert COMMAND in json.loads(call["function"]["arguments"]).values()
    assert call["function"]["name"] in {tool["function"]["name"] for tool in second.asked["tools"]}
    assert (result["role"], result["tool_call_id"]) == ("tool", call["id"])


OWN_SESSION = {
    "claude-code": ("x-claude-code-session-id",),
    "codex": ("session-id",),
    "codex-socket": ("session-id",),
    "opencode": ("x-parent-session-id", "x-session-id"),
}
"""The headers that name the session; the first one that is there counts."""


def headers(request: Recorded) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers}


@HARNESS
def test_a_scenario_is_one_session(harness: str) -> None:
    """That which the agent names; without one, the conversation itself tells."""
    sessions: dict[str, set[str]] = defaultdict(set)
    for request in recorded(harness):
        named = next((found for name in OWN_SESSION.get(harness, ()) if (found := request.header(name))), None)
        address = locate(request.route, headers(request), {}, SIGNER)
        origin = "root" if named is None else "harness"
        assert (address.session_id, address.origin, address.signed) == (named, origin, False), request
        assert address.route == request.route
        if named is not None:
            sessions[request.scenario].add(named)
    assert all(len(named) == 1 for named in sessions.values()), sessions
    if harness in OWN_SESSION:
        assert set(sessions) == {request.scenario for request in recorded(harness)}
    assert len(set.union(set(), *sessions.values())) == len(sessions)


@HARNESS
def test_a_session_s_key_or_path_counts_before_what_the_agent_says(harness: str) -> None:
    key = SIGNER.key("run-1")
    for request in recorded(harness):
        keyed = {name: value.replace("unused-key", key) for name, value in headers(request).items()}
        by_key = locate(request.route, keyed, {}, SIGNER)
        assert (by_key.session_id, by_key.origin, by_key.route) == ("run-1", "key", request.route), request
        by_path = locate(f"/s/run-1{request.route}", headers(request), {}, SIGNER)
        assert (by_path.session_id, by_path.origin, by_path.route) == ("run-1", "path", request.route), request


LINEAGE = {
    "claude-code": {"x-claude-code-session-id", "x-claude-code-agent-id", "user-agent", "anthropic-beta", "x-app"},
    "codex": {
        "session-id",
        "thread-id",
        "x-codex-parent-thread-id",
        "x-openai-subagent",
        "x-codex-turn-metadata",
        "x-codex-window-id",
        "x-client-request-id",
        "originator",
        "user-agent",
    },
    "codex-socket": {
        "session-id",
        "thread-id",
        "x-codex-parent-thread-id",
        "x-openai-subagent",
        "x-codex-turn-metadata",
        "openai-beta",
        "originator",
        "user-agent",
    },
    "qwen-code": {"user-agent", "x-stainless-retry-count", "x-app"},
    "gemini-cli": {"user-agent", "x-goog-api-client"},
    "opencode": {"x-session-id", "x-session-affinity", "x-parent-session-id", "x-run-id", "user-agent"},
    "mini-swe-agent": {"user-agent", "x-stainless-retry-count"},
}


@HARNESS
def test_what_tells_client_and_lineage_is_kept(harness: str) -> None:
    seen = set()
    for request in recorded(harness):
        sent, kept = headers(request), dict(to_record((name, value) for name, value in request.headers))
        expected = LINEAGE[harness] & set(sent)
        assert {name: kept.get(name) for name in expected} == {name: sent[name] for name in expected}, request
        assert not any("unused-key" in value for value in kept.values())
        seen |= expected
    assert seen == LINEAGE[harness]

"""Every recorded request of the real coding agents: side calls are told by headers and shape, and no work is left out.

Prose was replaced in these recordings, so rules on wording say nothing here; `tests/harnesses` plays those with the real ones.
"""

from dataclasses import replace

import pytest

from polarproxy.cli.recipes import known_recipes
from polarproxy.model import CallKind, CapturedCall, Dialect
from polarproxy.proxy.headers import to_record
from polarproxy.proxy.routes import Action, recognise
from polarproxy.trajectory.eligibility import TRAINED_KINDS
from polarproxy.trajectory.kinds import Source, judge
from polarproxy.wire.responses.items import read_head
from polarproxy.wire.shape import shape_of
from tests.harnesses.recorded import NAMES, Recorded, recorded
from tests.trajectory.build import Said, turn

SIDE_CALLS = {
    "claude-code/compaction/1": CallKind.COMPACTION,
    "claude-code/tool-search/2": CallKind.PROBE,
    "codex/compaction/1": CallKind.COMPACTION,
    "codex-socket/compaction/4": CallKind.COMPACTION,
    "gemini-cli/router/0": CallKind.PROBE,
    "gemini-cli/web-search/1": CallKind.PROBE,
    # By the wording of its system prompt it would be a compaction.
    "gemini-cli/compaction/1": CallKind.SUMMARY,
    "gemini-cli/compaction/2": CallKind.SUMMARY,
}
TOLD_BY_WORDING = {"opencode/compaction/2", "qwen-code/compaction/1"}
"""Without it they pass for work, and beside such a one a title is not the only call without tools."""
SUB_AGENTS = {
    "claude-code/sub-agent/2",
    "codex/sub-agent/2",
    "codex-socket/sub-agent/6",
    "gemini-cli/sub-agent/1",
    "opencode/sub-agent/2",
}
SCENES = sorted({(each.harness, each.scenario) for name in NAMES for each in recorded(name)})


def is_title(request: Recorded) -> bool:
    """OpenCode asks its small model for one, before each conversation."""
    return request.harness == "opencode" and request.sequence == 0


def asked(harness: str, scenario: str) -> list[Recorded]:
    """The requests of a scene that are calls of the model."""
    return [each for each in recorded(harness) if each.scenario == scenario and _is_call(each)]


def _is_call(request: Recorded) -> bool:
    if request.method == "SOCKET":
        return bool(read_head(request.raw).generate)
    route = recognise(request.method, request.route, {name.lower(): value for name, value in request.headers})
    return route is not None and route.action is Action.GENERATE


def captured(request: Recorded, ordinal: int) -> CapturedCall:
    """A call of this request, whose tokens no other one continues."""
    made = turn(ordinal, [ordinal], Said([100 + ordinal]))
    inside = read_head(request.raw).headers if request.method == "SOCKET" else ()
    named = request.path.partition("/models/")[2].partition(":")[0]
    streamed = request.body.get("stream", ":streamGenerateContent" in request.path)
    call = replace(
        made.call,
        call_id=str(request),
        dialect=Dialect.CHAT,
        headers=to_record([(name, value) for name, value in request.headers], inside),
        shape=shape_of(request.raw),
        streamed=bool(streamed),
        requested_model=request.body.get("model") or named,
    )
    return replace(made, call=call)


@pytest.mark.parametrize(("harness", "scenario"), SCENES)
def test_every_request_is_told(harness: str, scenario: str) -> None:
    requests = asked(harness, scenario)
    judged = judge([captured(request, ordinal) for ordinal, request in enumerate(requests)], known_recipes())
    for request in requests:
        name, verdict = str(request), judged.verdicts[str(request)]
        if name in SIDE_CALLS:
            assert verdict.kind is SIDE_CALLS[name], name
        elif is_title(request) and scenario != "compaction":
            assert (verdict.kind, verdict.source) == (CallKind.UNKNOWN, Source.SHAPE), name
        elif name in SUB_AGENTS:
            assert verdict.kind is CallKind.SUBAGENT, name
        elif name not in TOLD_BY_WORDING and not is_title(request):
            assert verdict.kind in TRAINED_KINDS, f"{name} is work: {verdict}"


def test_every_named_request_is_there() -> None:
    names = {str(each) for harness, scenario in SCENES for each in asked(harness, scenario)}
    assert set(SIDE_CALLS) | TOLD_BY_WORDING | SUB_AGENTS <= names

"""The same thing asked twice: which of it is a retry, a sibling, a turn that was thrown away, or a cut that was gone on from.

Three facts are kept apart: a reply was *generated*, it was *delivered*, and a later prompt *used* it as context. That two
requests are alike is no evidence by itself: two delivered answers to one prompt are siblings, and both stand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from polarproxy.model import CallStatus, FinishReason
from polarproxy.trajectory.lineage import identity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polarproxy.model import Call
    from polarproxy.trajectory.forest import Forest, Node

RETRY_COUNT = "x-stainless-retry-count"
"""Which try of its own a client says that a request is, from 0 (the SDKs of OpenAI and Anthropic)."""

CUT = frozenset({CallStatus.ABORTED, CallStatus.ENGINE_ERROR, CallStatus.TIMEOUT})


class RepeatKind(StrEnum):
    """How a request repeats an earlier one."""

    RETRY = "retry"
    """The first never arrived, or the client says that it tries again: one turn."""
    RESENT_UNSTREAMED = "resent_unstreamed"
    """A stream that broke off was asked again without streaming: one turn."""
    REJECTED = "rejected_turn"
    """The first was cut at its limit, and the harness went on from the second."""
    SIBLING = "sibling"
    """Both arrived: two answers to one prompt."""
    CONTINUED_AFTER_CUT = "continued_after_cut"
    """What came of a reply that broke off stands in the history, and the model is asked to go on."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A call that asks again what an earlier one asked."""

    kind: RepeatKind
    call_id: str
    of: str
    """The earlier call."""
    evidence: str
    """For a person to read."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What became of a completion."""

    generated: bool
    delivered: bool
    used: bool
    """Whether a later prompt contains it, token for token."""


def facts_of(forest: Forest, place: int) -> Facts:
    """The three facts of the completion at this place."""
    node = forest.nodes[place]
    generated = len(node.completion.token_ids) > 0
    return Facts(generated, node.captured.delivered, used=bool(forest.children[place]))


def broke_off(node: Node) -> bool:
    """Whether a reply ended before its end."""
    return node.captured.call.status in CUT or node.completion.finish_reason is FinishReason.ABORT


def retry_count(call: Call) -> int:
    """Which try the client says that this is; 0 when it says nothing."""
    said = dict(call.headers).get(RETRY_COUNT, "0")
    return int(said) if said.isascii() and said.isdigit() else 0


def superseded(forest: Forest, place: int) -> str | None:
    """Why the completion at this place counts for nothing because it was asked again. None: it does count.

    What a later prompt contains was not replaced by anything.
    """
    if forest.children[place]:
        return None
    again = _asked_again(forest, place)
    return None if again is None else _retry(forest.nodes[place], forest.nodes[again])


def _asked_again(forest: Forest, place: int) -> int | None:
    """The first later call with exactly this prompt."""
    node = forest.nodes[place]
    same, own = forest.same_prompt[node.prompt.raw], node.captured.call.ordinal
    for index in range(bisect_right(same, place), len(same)):
        if forest.nodes[same[index]].captured.call.ordinal > own:
            return same[index]
    return None


def _asked_before(forest: Forest, place: int) -> int | None:
    """The latest earlier call with exactly this prompt, by its first choice."""
    node = forest.nodes[place]
    same = forest.same_prompt[node.prompt.raw]
    index = bisect_left(same, place) - 1
    if index < 0:
        return None
    before = forest.nodes[same[index]].captured.call.ordinal
    while index and forest.nodes[same[index - 1]].captured.call.ordinal == before:
        index -= 1
    return same[index]


def _retry(first: Node, again: Node) -> str | None:
    """The evidence that one is a retry of the other. None: there is none."""
    if identity(first.captured.call).agent != identity(again.captured.call).agent:
        return None
    if retry_count(again.captured.call) > retry_count(first.captured.call):
        return f"the client says that it is try {retry_count(again.captured.call)}"
    if broke_off(first):
        return f"the first broke off ({first.captured.call.status})"
    return None if first.captured.delivered else "the first is not known to have arrived"


def find_repeats(forest: Forest) -> list[Repeat]:
    """Every repeat in a session, in order of arrival."""
    seen: set[str] = set()
    found: list[Repeat] = []
    for place, node in enumerate(forest.nodes):
        call_id = node.captured.call.call_id
        if call_id in seen:
            continue
        seen.add(call_id)
        found.extend(_repeats(forest, place))
    return found


def _repeats(forest: Forest, place: int) -> Iterator[Repeat]:
    node = forest.nodes[place]
    own = node.captured.call
    before = _asked_before(forest, place)
    if before is not None:
        first = forest.nodes[before]
        kind, evidence = _kind(forest, before, first, node)
        yield Repeat(kind, own.call_id, first.captured.call.call_id, evidence)
    for other in node.beyond:
        cut = forest.nodes[other]
        came_back = node.shared - len(cut.prompt)
        if came_back > 0 and broke_off(cut):
            count = len(cut.completion.token_ids)
            yield Repeat(
                RepeatKind.CONTINUED_AFTER_CUT,
                own.call_id,
                cut.captured.call.call_id,
                f"{came_back} of its {count} sampled tokens stand in the prompt, and then something else",
            )
    parent = None if node.parent is None else forest.nodes[node.parent]
    if parent is not None and broke_off(parent):
        evidence = (
            f"all {len(parent.completion.token_ids)} tokens that were sampled before it broke off stand in the prompt"
        )
        yield Repeat(RepeatKind.CONTINUED_AFTER_CUT, own.call_id, parent.captured.call.call_id, evidence)


def _kind(forest: Forest, place: int, first: Node, again: Node) -> tuple[RepeatKind, str]:
    if forest.children[place]:
        return RepeatKind.SIBLING, "a later prompt contains the first"
    evidence = _retry(first, again)
    if evidence is not None:
        unstreamed = first.captured.call.streamed and not again.captured.call.streamed
        return (RepeatKind.RESENT_UNSTREAMED if unstreamed else RepeatKind.RETRY), evidence
    if first.completion.finish_reason is FinishReason.LENGTH:
        return RepeatKind.REJECTED, "the first was cut at its limit"
    return RepeatKind.SIBLING, "both arrived"

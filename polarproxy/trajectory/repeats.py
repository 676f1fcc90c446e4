"""The same thing asked twice: which of it is a retry, a sibling, a turn that was thrown away, or a cut that was gone on from.

Three facts are kept apart: a reply was *generated*, it was *delivered*, and a later prompt *used* it as context. That two
requests are alike is no evidence by itself: two delivered answers to one prompt are siblings, and both stand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from polarproxy.model import CallStatus, FinishReason
from polarproxy.trajectory.lineage import identity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from polarproxy.model import Call
    from polarproxy.trajectory.forest import Forest, Node

RETRY_COUNT = "x-stainless-retry-count"
"""Which try of its own a client says that a request is, from 0 (the SDKs of OpenAI and Anthropic)."""
_DIGITS = 9
"""A longer number counts no tries."""

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
    """Whether a later prompt contains it, token for token, and does not go on from a longer reply to the same prompt."""


def facts_of(forest: Forest, place: int) -> Facts:
    """The three facts of the completion at this place."""
    node = forest.nodes[place]
    generated = len(node.completion.token_ids) > 0
    return Facts(generated, node.captured.delivered, used=used(forest, place))


def used(forest: Forest, place: int) -> bool:
    """Whether a later prompt goes on from the completion at this place."""
    return bool(forest.children[place]) and longer_try(forest, place) is None


def longer_try(forest: Forest, place: int) -> int | None:
    """The later reply that a cut one is but the beginning of, when all that contains it came after both. None: no such.

    Those prompts go on from the later reply, told again in other tokens: else they would contain it whole.
    """
    node = forest.nodes[place]
    if not (broke_off(node) or node.completion.finish_reason is FinishReason.LENGTH) or not forest.children[place]:
        return None
    onward = forest.nodes[forest.children[place][0]].captured.call.ordinal
    sampled = node.completion.token_ids
    for other in later_tries(forest, place):
        again = forest.nodes[other]
        if again.captured.call.ordinal >= onward:
            return None
        if len(again.completion.token_ids) > len(sampled) and again.completion.token_ids.startswith(sampled):
            return other
    return None


def broke_off(node: Node) -> bool:
    """Whether a reply ended before its end."""
    return node.captured.call.status in CUT or node.completion.finish_reason is FinishReason.ABORT


def retry_count(call: Call) -> int:
    """Which try the client says that this is; 0 when it says nothing."""
    return tries_of(dict(call.headers))


def tries_of(headers: Mapping[str, str]) -> int:
    """The same of headers."""
    said = headers.get(RETRY_COUNT, "0")
    return int(said) if said.isascii() and said.isdigit() and len(said) <= _DIGITS else 0


def superseded(forest: Forest, place: int) -> str | None:
    """Why the completion at this place counts for nothing because it was asked again. None: it does count.

    What a later prompt contains was not replaced by anything.
    """
    if used(forest, place):
        return None
    tries = (other for other in later_tries(forest, place) if len(forest.nodes[other].completion.token_ids))
    again = next(tries, None)
    return None if again is None else _retry(forest, forest.nodes[place], forest.nodes[again])


def later_tries(forest: Forest, place: int) -> Iterator[int]:
    """The completions of later calls of the same agent with exactly this prompt, in order."""
    node = forest.nodes[place]
    same = forest.same_question[node.prompt.raw, forest.agents[place]]
    for index in range(bisect_right(same, place), len(same)):
        if forest.nodes[same[index]].captured is not node.captured:
            yield same[index]


def later_went_on(forest: Forest, place: int) -> bool:
    """Whether a later prompt goes on from one of the `later_tries`."""
    node = forest.nodes[place]
    last = forest.last_continued.get((node.prompt.raw, forest.agents[place]))
    return last is not None and last > place and forest.nodes[last].captured is not node.captured


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


def _retry(forest: Forest, first: Node, again: Node) -> str | None:
    """The evidence that one is a retry of the other. None: there is none."""
    if identity(first.captured.call).agent != identity(again.captured.call).agent:
        return None
    counts_up = retry_count(again.captured.call) > retry_count(first.captured.call)
    if counts_up and not _began_between(forest, first, again):
        return f"the client says that it is try {retry_count(again.captured.call)}"
    if broke_off(first):
        return f"the first broke off ({first.captured.call.status})"
    return None if first.captured.delivered else "the first is not known to have arrived"


def _began_between(forest: Forest, first: Node, again: Node) -> bool:
    """Whether a failed call between the two, no later a try than the first, may be what was tried again."""
    own, later = first.captured.call, again.captured.call
    since = bisect_right(forest.not_completed, own.ordinal, key=lambda call: call.ordinal)
    between = takewhile(lambda call: call.ordinal < later.ordinal, islice(forest.not_completed, since, None))
    return any(
        call.prompt_token_ids in (None, first.prompt)
        and identity(call).agent == identity(own).agent
        and retry_count(call) <= retry_count(own)
        for call in between
    )


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
            more = "and then something else" if node.shared < len(node.prompt) else "at its end"
            evidence = f"{came_back} of its {len(cut.completion.token_ids)} sampled tokens stand in the prompt, {more}"
            yield Repeat(RepeatKind.CONTINUED_AFTER_CUT, own.call_id, cut.captured.call.call_id, evidence)
    parent = None if node.parent is None else forest.nodes[node.parent]
    if node.parent is not None and parent is not None and broke_off(parent) and used(forest, node.parent):
        evidence = (
            f"all {len(parent.completion.token_ids)} tokens that were sampled before it broke off stand in the prompt"
        )
        yield Repeat(RepeatKind.CONTINUED_AFTER_CUT, own.call_id, parent.captured.call.call_id, evidence)


def _kind(forest: Forest, place: int, first: Node, again: Node) -> tuple[RepeatKind, str]:
    if used(forest, place):
        return RepeatKind.SIBLING, "a later prompt contains the first"
    evidence = _retry(forest, first, again)
    if evidence is not None:
        unstreamed = first.captured.call.streamed and not again.captured.call.streamed
        return (RepeatKind.RESENT_UNSTREAMED if unstreamed else RepeatKind.RETRY), evidence
    if first.completion.finish_reason is FinishReason.LENGTH:
        return RepeatKind.REJECTED, "the first was cut at its limit"
    return RepeatKind.SIBLING, "both arrived"

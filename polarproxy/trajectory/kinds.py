"""What each call of a session was for, and the evidence for it.

Asked in this order, and the first that answers decides: a person's label; what the harness's headers say the request is for;
the rules of its recipe; what its headers say of who asked; the request's shape beside its siblings'. A call of which none
says anything is the work itself. The shape alone takes a call out only where two signs agree, and never one that continues
a conversation or is continued: work must not be left out by mistake.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from polarproxy.model import CallKind
from polarproxy.trajectory.eligibility import TRAINED_KINDS
from polarproxy.trajectory.lineage import identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from polarproxy.model import Call, CapturedCall
    from polarproxy.trajectory.lineage import Identity
    from polarproxy.trajectory.recipes import Recipe

TINY = 16
"""A limit of so few sampled tokens leaves no room for work."""


class Source(StrEnum):
    """Where the evidence for a kind comes from."""

    LABEL = "label"
    HEADER = "header"
    RECIPE = "recipe"
    SHAPE = "shape"
    NOTHING = "nothing"
    """Nothing speaks against its being the work."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a call was for, and why that is thought."""

    kind: CallKind
    source: Source
    sentence: str
    """The evidence, for a person to read."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The calls of a session with their kinds."""

    calls: tuple[CapturedCall, ...]
    """As they were given, each with its `kind`."""
    verdicts: Mapping[str, Verdict]
    """By call id."""
    harnesses: tuple[str, ...]
    """The recipes that were asked, by name."""

    def kinds(self) -> dict[str, int]:
        """How many calls are of each kind."""
        return dict(sorted(Counter(verdict.kind.value for verdict in self.verdicts.values()).items()))


_PURPOSES = {
    "compaction": CallKind.COMPACTION,
    "compact": CallKind.COMPACTION,
    "memory_consolidation": CallKind.SUMMARY,
    "prewarm": CallKind.PROBE,
}
"""Codex's words for what a request is for; all its others are work."""


def judge(calls: Iterable[CapturedCall], recipes: Sequence[Recipe] = (), harness: str | None = None) -> Judged:
    """The kinds of one session's calls. `harness`: its name, as the session was made with it. None: nobody said."""
    given = tuple(calls)
    asked = _recipes(given, recipes, harness)
    signing = {recipe.name for recipe in asked if any(recipe.signed(captured.call) for captured in given)}
    verdicts: dict[str, Verdict] = {}
    for captured in given:
        told = _told(captured, asked, signing)
        if told is not None:
            verdicts[captured.call.call_id] = told
    side = {call_id for call_id, verdict in verdicts.items() if verdict.kind not in TRAINED_KINDS}
    work = [captured.call for captured in given if captured.call.call_id not in side]
    verdicts = {**_by_shape(work), **verdicts}
    return Judged(
        calls=tuple(replace(captured, kind=verdicts[captured.call.call_id].kind) for captured in given),
        verdicts={captured.call.call_id: verdicts[captured.call.call_id] for captured in given},
        harnesses=tuple(recipe.name for recipe in asked),
    )


def _recipes(calls: Sequence[CapturedCall], recipes: Sequence[Recipe], harness: str | None) -> list[Recipe]:
    """The recipe of the named harness; else those that the calls show."""
    named = [recipe for recipe in recipes if harness is not None and recipe.name == harness.lower()]
    return named or [recipe for recipe in recipes if any(recipe.recognises(captured.call) for captured in calls)]


def _told(captured: CapturedCall, recipes: Sequence[Recipe], signing: Set[str]) -> Verdict | None:
    """What somebody or something says of this call by itself. None: nothing does.

    `signing`: the harnesses that sign their calls in this session. What an agent's own programs ask for there is not
    theirs, however much it looks like one of their side calls.
    """
    call, label = captured.call, captured.label
    if label is not None and label.kind is not None:
        note = f": {label.note}" if label.note else ""
        return Verdict(label.kind, Source.LABEL, f"{label.by} said so on {label.at:%Y-%m-%d}{note}")
    who = identity(call)
    if who.purpose in _PURPOSES:
        return Verdict(_PURPOSES[who.purpose], Source.HEADER, f"its headers say that it is for {who.purpose}")
    for recipe in recipes:
        foreign = recipe.name in signing and not recipe.signed(call)
        for rule in recipe.kinds:
            if rule.holds(call) and not (foreign and rule.is_general):
                return Verdict(rule.kind, Source.RECIPE, f"{recipe.name} {recipe.version}: {rule.what}")
    return Verdict(CallKind.SUBAGENT, Source.HEADER, _subagent(who)) if who.is_subagent else None


def _subagent(who: Identity) -> str:
    made_by = "" if who.parent is None else f", made by {who.parent}"
    return f"its headers name the sub-agent {who.agent}{made_by}"


@dataclass(frozen=True, slots=True)
class _Look:
    """What is compared between the calls of a session."""

    model: str | None
    streamed: bool
    tiny: bool
    tools: bool | None
    """None: not known; the next one likewise."""
    json: bool | None


def _look(call: Call) -> _Look:
    limit, shape = call.sampling.max_tokens, call.shape
    return _Look(
        model=call.requested_model,
        streamed=call.streamed,
        tiny=limit is not None and limit <= TINY,
        tools=None if shape is None else bool(shape.tools),
        json=None if shape is None else shape.wants_json,
    )


def _by_shape(work: Sequence[Call]) -> Mapping[str, Verdict]:
    """What the shapes of the calls that may all be work say, each beside those that look another way."""
    looks = {call.call_id: _look(call) for call in work}
    different = set(looks.values())
    signs = {look: _signs(look, different - {look}) for look in different}
    found = {call.call_id: _of_signs(call, looks[call.call_id], signs[looks[call.call_id]], work) for call in work}
    if all(verdict.source is Source.SHAPE for verdict in found.values()):
        # Where each looks odd beside the others, none of them is the measure.
        return dict.fromkeys(found, _WORK)
    return found


_WORK = Verdict(CallKind.MAIN, Source.NOTHING, "nothing speaks against its being the work")


def _of_signs(call: Call, look: _Look, signs: Sequence[str], work: Sequence[Call]) -> Verdict:
    if len(signs) < 2 or _is_joined(call, work):
        return _WORK
    kind = CallKind.PROBE if look.tiny else CallKind.UNKNOWN
    return Verdict(kind, Source.SHAPE, f"it stands alone and {' and '.join(signs)}")


def _signs(look: _Look, others: Set[_Look]) -> list[str]:
    """In what it differs from all the others; a different model, or a tiny limit, is always one of them."""
    signs = []
    models = {other.model for other in others}
    if len(models) == 1 and look.model not in models:
        signs.append(f"asks for {look.model} where the others ask for {models.pop()}")
    if look.tiny and others and not any(other.tiny for other in others):
        signs.append(f"allows at most {TINY} tokens")
    if not signs:
        return []
    if look.tools is False and all(other.tools for other in others):
        signs.append("offers no tools where the others do")
    if not look.streamed and all(other.streamed for other in others):
        signs.append("is not streamed where the others are")
    if look.json and all(other.json is False for other in others):
        signs.append("wants JSON where the others do not")
    return signs


def _is_joined(call: Call, others: Sequence[Call]) -> bool:
    """Whether it continues another call's tokens, or another one continues its."""
    return any(other is not call and (_continues(call, other) or _continues(other, call)) for other in others)


def _continues(later: Call, earlier: Call) -> bool:
    """With the reply as it was sampled; a call of the same model may tell the reply again in other tokens."""
    prompt, before = later.prompt_token_ids, earlier.prompt_token_ids
    if prompt is None or before is None or later.ordinal < earlier.ordinal or not prompt.startswith(before):
        return False
    if len(prompt) > len(before) and later.requested_model == earlier.requested_model:
        return True
    sampled = (completion.token_ids for completion in earlier.completions if len(completion.token_ids))
    return any(prompt.raw.startswith(ids.raw, len(before.raw)) for ids in sampled)

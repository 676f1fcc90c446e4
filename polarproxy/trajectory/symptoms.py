"""Kinds of drift, and a small test for each: the first that holds names the difference.

The tests look at nothing but the difference. Some need the texts of tokens; without them a difference that only its text
could tell is `unexplained`, and never guessed.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

from polarproxy.trajectory.differences import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.trajectory.differences import Difference


class DriftClass(StrEnum):
    """How a prompt differs from the conversation that it repeats."""

    COMPACTED = "compacted"
    """The history is replaced by a summary."""
    TOOLS_CHANGED = "tools_changed"
    """The tools are others than before."""
    RETOKENIZED = "retokenized"
    """The same text, in other ids."""
    EMPTY_THINK = "empty_think"
    """An empty think block stands in the generation prompt and not in the history, or the reverse."""
    THINKING_STRIPPED = "thinking_stripped"
    """Reasoning is gone from the history."""
    SEPARATOR = "separator"
    """The glue of the template around the end of a turn differs."""
    ARGUMENTS_RESERIALIZED = "arguments_reserialized"
    """The JSON of a tool call came back with other spacing, order of keys or escapes."""
    NONCE = "nonce"
    """An id, a hash, a date or a time in the prompt has changed."""
    SYSTEM_CHANGED = "system_changed"
    """The prompt differs before the first reply."""
    TRUNCATED = "truncated"
    """A part of a turn, or whole turns, are gone."""
    EDITED = "edited"
    """The text of a turn is another one."""
    UNEXPLAINED = "unexplained"
    """The texts of the tokens that differ are not known, and the ids do not tell."""


_THINK = re.compile(r"</?think>|\[/?THINK\]|<\|channel\|>analysis<\|message\|>")
_THINK_ENDS = ("</think>", "[/THINK]", "<|channel|>analysis")
_MARKER = re.compile(r"<\|?/?[A-Za-z_|]+\|?>|\[/?INST\]")
_VOLATILE = re.compile(
    r"\d|^(mon|tues|wednes|thurs|fri|satur|sun)day\b|^(jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)[a-z]*\W*$",
    re.IGNORECASE,
)
_NONCE_MOST = 256
"""Characters of the words that changed; a longer text is no nonce."""
_TAG_MOST = 4
"""Tokens of a tag."""
_GLUE_MOST = 8
"""Tokens at the end of a generation prompt that may be an empty think block."""
_ARGUMENTS_FAR = 2048
"""Tokens on either side of a difference in which the JSON object around it is looked for."""
_OBJECTS_MOST = 16
_AROUND = 16
"""Tokens on either side whose texts must be known to say that none of the other tests held."""
_decoder = json.JSONDecoder()


def _nothing_but(pattern: re.Pattern[str], text: str) -> bool:
    return not pattern.sub("", text).strip()


def is_compacted(difference: Difference) -> bool:
    """The model was asked for a summary, and the next prompt begins with it."""
    return difference.summary


def are_tools_changed(difference: Difference) -> bool:
    """The head differs, and so do the tools."""
    earlier, later = difference.earlier.captured.call, difference.later.captured.call
    return difference.in_head and earlier.tools_digest != later.tools_digest


def is_retokenized(difference: Difference) -> bool:
    """Both sides say the same; half a character on one is a whole replacement character on the other."""
    removed, inserted = difference.removed_text, difference.spelling.most(difference.inserted)
    if not removed:
        return False
    # A reply that was cut has no end of turn in common with the one that is told again.
    return inserted == removed or (difference.ends and inserted.startswith(removed))


def _begun_tag(difference: Difference) -> str:
    """A tag that began before the difference, where its vocabulary has no token for it."""
    before = difference.before(_TAG_MOST)
    start = before.rfind("<")
    return before[start:] if start >= 0 and ">" not in before[start:] else ""


def is_empty_think(difference: Difference) -> bool:
    """Nothing differs but tags and space; or the prompt had a few tokens right before its reply that history has not."""
    removed, inserted = difference.removed_text, difference.inserted_text
    if removed is not None and inserted is not None:
        begun = _begun_tag(difference)
        both = begun + removed + begun + inserted
        return _THINK.search(both) is not None and _nothing_but(_THINK, both)
    ends_at = difference.position + len(difference.removed)
    glue = 0 < len(difference.removed) <= _GLUE_MOST and not len(difference.inserted)
    return glue and ends_at == difference.earlier.start


def is_thinking_stripped(difference: Difference) -> bool:
    """What is gone ends a think block or stands in one, and in its place is no more than space and tags."""
    begun = _begun_tag(difference)
    removed = begun + difference.spelling.most(difference.removed)
    tags = _THINK.findall(difference.before(64).removesuffix(begun) + removed)
    inside = bool(tags) and not tags[-1].startswith(("</", "[/"))
    if not (inside or any(end in removed for end in _THINK_ENDS)):
        return False
    # Reasoning may say the answer's words, so that the two meet in it already, behind a first word that only one has space
    # before; and space that came together in one token may never have been sampled, so its text may not be known.
    gone, came = difference.apart
    return _nothing_but(_THINK, came.replace(UNKNOWN, "", 2)) and not _nothing_but(_THINK, gone)


def is_separator(difference: Difference) -> bool:
    """Nothing but space and the template's own marks differs, next to such a mark."""
    gone, came = difference.apart
    if UNKNOWN in gone + came or not _nothing_but(_MARKER, gone + came):
        return False
    return _MARKER.search(difference.before(1) + gone + came + difference.after(1)) is not None


def are_arguments_reserialized(difference: Difference) -> bool:
    """A JSON object that spans the difference has the same value on both sides."""
    before, spelling, position = difference.before(_ARGUMENTS_FAR), difference.spelling, difference.position
    there = spelling.most(difference.earlier.context.cut(position, position + _ARGUMENTS_FAR))
    here = spelling.most(difference.later.prompt.cut(position, position + _ARGUMENTS_FAR))
    starts = [found.start() for found in re.finditer(r"\{", before)]
    for start in islice(reversed(starts), _OBJECTS_MOST):
        head = before[start:]
        try:
            one, one_stop = _decoder.raw_decode(head + there)
            other, other_stop = _decoder.raw_decode(head + here)
        except (ValueError, RecursionError):
            continue
        if one == other and min(one_stop, other_stop) > len(head):
            return True
    return False


def is_nonce(difference: Difference) -> bool:
    """Outside what was sampled, single words with digits in them, or names of days and months, differ."""
    removed, inserted = difference.removed_text, difference.inserted_text
    if difference.sampled or not removed or not inserted:
        return False
    left = re.split(r"\s", difference.before(16))[-1]
    right = re.split(r"\s", difference.after(16))[0]
    there, here = (left + removed + right), (left + inserted + right)
    if max(len(there), len(here)) > _NONCE_MOST or UNKNOWN in there + here:
        return False
    pairs = list(zip(there.split(), here.split(), strict=False))
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    same_count = len(there.split()) == len(here.split())
    return same_count and bool(changed) and all(_VOLATILE.search(word) for pair in changed for word in pair)


def is_system_changed(difference: Difference) -> bool:
    """The head differs in some other way."""
    return difference.in_head


def is_truncated(difference: Difference) -> bool:
    """Something is gone and nothing is in its place."""
    gone, came = difference.apart
    return bool(gone) and not came


def is_edited(difference: Difference) -> bool:
    """The texts here and around are known, and are others."""
    around = difference.before(_AROUND) + difference.after(_AROUND)
    known = difference.removed_text is not None and difference.inserted_text is not None
    return known and UNKNOWN not in around


TESTS: tuple[tuple[DriftClass, Callable[[Difference], bool]], ...] = (
    (DriftClass.COMPACTED, is_compacted),
    (DriftClass.TOOLS_CHANGED, are_tools_changed),
    (DriftClass.RETOKENIZED, is_retokenized),
    (DriftClass.EMPTY_THINK, is_empty_think),
    (DriftClass.THINKING_STRIPPED, is_thinking_stripped),
    (DriftClass.SEPARATOR, is_separator),
    (DriftClass.ARGUMENTS_RESERIALIZED, are_arguments_reserialized),
    (DriftClass.NONCE, is_nonce),
    (DriftClass.SYSTEM_CHANGED, is_system_changed),
    (DriftClass.TRUNCATED, is_truncated),
    (DriftClass.EDITED, is_edited),
)
"""In this order; what none of them knows is `unexplained`."""


def classify(difference: Difference) -> DriftClass:
    """The kind of a difference."""
    return next((kind for kind, holds in TESTS if holds(difference)), DriftClass.UNEXPLAINED)

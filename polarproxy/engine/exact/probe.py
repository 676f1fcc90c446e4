"""Finding out how a chat template ends turns: what to render, and what the renderings say.

Turns with and without tool calls, each before what may follow it, are rendered after three different beginnings of a
conversation. Where the same tokens follow the turn each time, a short rendering will do for long conversations too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from polarproxy.engine.exact.conversation import FIRST, SECOND, render_body, user
from polarproxy.engine.exact.cut import common_prefix, end_of_words
from polarproxy.engine.exact.template import Refused, Standing, TemplateFacts
from polarproxy.model import FallbackReason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polarproxy.engine.exact.conversation import Json, Settings
    from polarproxy.model import TokenIds

_WORD = "maple"
"""What everything but the turns says."""
_TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": _WORD, "parameters": {"type": "object", "properties": {}}},
    }
    for name in ("walk", "swim")
]


def _called(word: str, *names: str, ids: str = "call", arguments: str | None = None) -> Json:
    said = f'{{"{FIRST}": "{word}"}}' if arguments is None else arguments
    calls = [
        {"id": f"{ids}0000{place}", "type": "function", "function": {"name": name, "arguments": said}}
        for place, name in enumerate(names)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _text(word: str) -> Json:
    return {"role": "assistant", "content": word}


def _result(place: int = 0, ids: str = "call") -> Json:
    return {"role": "tool", "tool_call_id": f"{ids}0000{place}", "content": _WORD}


_SYSTEM: Json = {"role": "system", "content": _WORD}
_USER = user(_WORD)

_HEADS: tuple[tuple[Json, ...], ...] = (
    (user(),),
    (_SYSTEM, _USER, _text(_WORD), _USER, _text(_WORD), _USER),
    (
        _USER,
        _called(_WORD, "walk"),
        _result(),
        _text(_WORD),
        _USER,
        _called(_WORD, "walk", "swim"),
        _result(),
        _result(1),
    ),
)
"""Beginnings. The first is the one that short renderings stand after."""


@dataclass(frozen=True, slots=True)
class _Scene:
    """A turn in two wordings, and what follows it."""

    turns: tuple[Json, Json]
    after: tuple[Json, ...]


_SCENES = {
    "text": _Scene((_text(FIRST), _text(SECOND)), (_USER,)),
    "system": _Scene((_text(FIRST), _text(SECOND)), (_SYSTEM, _USER)),
    "call": _Scene((_called(FIRST, "walk"), _called(SECOND, "walk")), (_result(),)),
    "calls": _Scene(
        (_called(FIRST, "walk", "swim"), _called(SECOND, "walk", "swim")),
        (_result(), _result(1)),
    ),
    "answered": _Scene((_called(FIRST, "walk"), _called(SECOND, "walk")), (_result(), _USER)),
}


@dataclass(frozen=True, slots=True)
class Probe:
    """The bodies to be rendered; the answers go to `read`, None for each that the engine refused."""

    bodies: tuple[bytes, ...]
    names: tuple[tuple[str, int, int], ...]
    """What each body is: a scene, its head, its wording."""


def probe(settings: Settings) -> Probe:
    """What to render for a template under these settings (members of a chat request; tools and choices are left out)."""
    given = {name: value for name, value in settings.items() if name not in ("tools", "tool_choice")}
    given["tools"] = msgspec.Raw(msgspec.json.encode(_TOOLS))
    wanted: dict[tuple[str, int, int], bytes] = {}
    for place, head in enumerate(_HEADS):
        wanted["head", place, 0] = render_body(given, head, prompt=False)
        for name, scene in _SCENES.items():
            for wording, turn in enumerate(scene.turns):
                wanted[name, place, wording] = render_body(given, [*head, turn, *scene.after])
    wanted["prompt", 0, 0] = render_body(given, _HEADS[0])
    wanted["ids", 0, 0] = render_body(given, [*_HEADS[0], _called(FIRST, "walk", ids="used"), _result(0, "used")])
    for wording, word in enumerate((FIRST, SECOND)):
        bare = _called(_WORD, "walk", arguments=word)
        wanted["bare", 0, wording] = render_body(given, [*_HEADS[0], bare, _result()])
    return Probe(tuple(wanted.values()), tuple(wanted))


def read(probe: Probe, answers: Sequence[TokenIds | None]) -> TemplateFacts | Refused:
    """What the renderings of a probe's bodies tell, in their order."""
    found = dict(zip(probe.names, answers, strict=True))
    text, system = _standing(found, "text"), _standing(found, "system")
    calls = min(
        _standing(found, "call"),
        *(_standing(found, name) for name in ("calls", "answered") if found[name, 0, 0] is not None),
    )
    if text is Standing.NONE and calls is Standing.NONE:
        reason = FallbackReason.TEMPLATE_REFUSED
        return Refused(reason, f"{reason.sentence}: of two different turns nothing, or not the end, can be told apart")
    return TemplateFacts(
        fingerprint=_fingerprint(answers),
        after_text=text,
        after_calls=calls,
        before_system=system,
        call_close=_call_close(found),
        ids_shown=found["ids", 0, 0] != found["call", 0, 0],
        header=_header(found),
    )


_Found: TypeAlias = "Mapping[tuple[str, int, int], TokenIds | None]"


def _after(found: _Found, scene: str, place: int) -> TokenIds | None:
    """What follows the words of a scene's turn. None: the template refuses it, hides the turn, or changes what came before."""
    head, first, second = found["head", place, 0], found[scene, place, 0], found[scene, place, 1]
    if head is None or first is None or second is None or not first.startswith(head):
        return None
    start = end_of_words(first, second)
    return None if start is None or start < len(head) else first.cut(start)


def _standing(found: _Found, scene: str) -> Standing:
    after = [_after(found, scene, place) for place in range(len(_HEADS)) if found["head", place, 0] is not None]
    if not after or after[0] is None:
        return Standing.NONE
    if len(after) > 1 and all(other == after[0] for other in after):
        return Standing.SHORT
    return Standing.FULL


def _call_close(found: _Found) -> int | None:
    """The token that ends a turn with calls: the one that ends a text, or the first after arguments that are no JSON.

    Templates that show such arguments show them as they are; the others show the same for both.
    """
    text, call = _after(found, "text", 0), _after(found, "call", 0)
    if text and call and text.array[0] in call.array.tolist():
        return int(text.array[0])
    bare = _after(found, "bare", 0)
    return int(bare.array[0]) if bare else None


def _header(found: _Found) -> int | None:
    begun, text, other = found["prompt", 0, 0], found["text", 0, 0], found["text", 0, 1]
    if begun is None or text is None or other is None:
        return None
    start, words = common_prefix(begun, text), common_prefix(text, other)
    return int(text.array[words - 1]) if words > start else None


def _fingerprint(answers: Sequence[TokenIds | None]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for ids in answers:
        digest.update(b"-" if ids is None else len(ids).to_bytes(8, "little") + ids.raw)
    return digest.hexdigest()

"""Finding out how a chat template ends turns: what to render, and what the renderings say.

Turns with and without tool calls, each before what may follow it, are rendered after different beginnings of a
conversation. Where the same tokens follow the turn each time, a short rendering will do for long conversations too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from polarproxy.engine.exact.conversation import FIRST, RENDERED_FIELDS, SECOND, render_body, user
from polarproxy.engine.exact.cut import common_prefix, end_of_words, overlap
from polarproxy.engine.exact.template import Refused, Standing, TemplateFacts
from polarproxy.model import FallbackReason, TokenIds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from polarproxy.engine.exact.conversation import Json, Settings

_WORDS = ("maple", "tiger")
"""What everything but the turns says."""
_TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": _WORDS[0], "parameters": {"type": "object", "properties": {}}},
    }
    for name in ("walk", "swim")
]


def _text(word: str = _WORDS[0]) -> Json:
    return {"role": "assistant", "content": word}


def _called(*names: str, word: str = _WORDS[0], ids: str = "call", arguments: str | None = None) -> Json:
    said = f'{{"{FIRST}": "{word}"}}' if arguments is None else arguments
    calls = [
        {"id": f"{ids}0000{place}", "type": "function", "function": {"name": name, "arguments": said}}
        for place, name in enumerate(names)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _result(word: str = _WORDS[0], place: int = 0, ids: str = "call") -> Json:
    return {"role": "tool", "tool_call_id": f"{ids}0000{place}", "content": word}


def _system(word: str = _WORDS[0]) -> Json:
    return {"role": "system", "content": word}


_USER = user(_WORDS[0])

_HEADS: tuple[tuple[Json, ...], ...] = (
    (user(),),
    (_system(), _USER, _text(), _USER, _text(), _USER),
    (_USER, _called("walk"), _result(), _text(), _USER, _called("walk", "swim"), _result(), _result(place=1)),
    (_system("/no_think"), *(user("/no_think"), _text("/think")) * 12, user("/no_think")),
)
"""Beginnings. The first is the one that short renderings stand after. The last is long, and says what some templates heed:
SmolLM3 and Nemotron begin a turn otherwise after a system prompt with `/no_think`.
"""


@dataclass(frozen=True, slots=True)
class _Scene:
    """A turn, and what follows it, by the words that each says."""

    turn: Callable[[str], Json]
    after: Callable[[str], tuple[Json, ...]]


_SCENES = {
    "text": _Scene(_text, lambda word: (user(word),)),
    "system": _Scene(_text, lambda word: (_system(word), user(word))),
    "call": _Scene(lambda word: _called("walk", word=word), lambda word: (_result(word),)),
    "calls": _Scene(
        lambda word: _called("walk", "swim", word=word), lambda word: (_result(word), _result(word, place=1))
    ),
    "answered": _Scene(lambda word: _called("walk", word=word), lambda word: (_result(word), user(word))),
    "bare": _Scene(lambda word: _called("walk", arguments=word), lambda word: (_result(word),)),
}
_WORDINGS = ((FIRST, _WORDS[0]), (SECOND, _WORDS[0]), (FIRST, _WORDS[1]))
"""The words of the turn and of what follows: anchor, other and whole of a cut."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The bodies to be rendered; the answers go to `read`, None for each that the engine refused."""

    bodies: tuple[bytes, ...]
    names: tuple[tuple[str, int, int], ...]
    """What each body is: a scene, its head, its wording."""


def template_settings(fields: Settings) -> dict[str, msgspec.Raw]:
    """The members of a chat request on which a template's facts depend; of its tools only whether there are any.

    Tools, their choice and the form of the output differ too often; they stand in what is rendered for each request.
    """
    varying = ("tools", "tool_choice", "response_format")
    given = {name: fields[name] for name in RENDERED_FIELDS if name in fields and name not in varying}
    if bytes(fields.get("tools", b"null")).strip() not in (b"null", b"[]"):
        given["tools"] = msgspec.Raw(msgspec.json.encode(_TOOLS))
    return given


def probe(fields: Settings) -> Probe:
    """What to render for the template of a chat request with these members."""
    given = template_settings(fields)
    wanted: dict[tuple[str, int, int], bytes] = {}
    for place, head in enumerate(_HEADS):
        wanted["head", place, 0] = render_body(given, head, prompt=False)
        scenes = _SCENES if place == 0 else {name: scene for name, scene in _SCENES.items() if name != "bare"}
        for name, scene in scenes.items():
            for wording, (said, follows) in enumerate(_WORDINGS):
                wanted[name, place, wording] = render_body(given, [*head, scene.turn(said), *scene.after(follows)])
    for wording, word in enumerate((FIRST, SECOND)):
        wanted["alone", 0, wording] = render_body(given, [*_HEADS[0], _text(word)], prompt=False)
    wanted["prompt", 0, 0] = render_body(given, _HEADS[0])
    answered = [*_HEADS[0], _called("walk", word=FIRST), _result()]
    wanted["called", 0, 0] = render_body(given, answered, prompt=False)
    used = [*_HEADS[0], _called("walk", word=FIRST, ids="used"), _result(ids="used")]
    wanted["ids", 0, 0] = render_body(given, used)
    return Probe(tuple(wanted.values()), tuple(wanted))


def read(probe: Probe, answers: Sequence[TokenIds | None]) -> TemplateFacts | Refused:
    """What the renderings of a probe's bodies tell, in their order."""
    found = dict(zip(probe.names, answers, strict=True))
    text, system = _standing(found, "text"), _standing(found, "system")
    # Where one of these shows no end, neither does a request like it; only whether it depends on what came before counts.
    others = [standing for name in ("calls", "answered") if (standing := _standing(found, name))]
    calls = min(_standing(found, "call"), *others, Standing.SHORT)
    if text is Standing.NONE and calls is Standing.NONE:
        reason = FallbackReason.TEMPLATE_REFUSED
        return Refused(reason, f"{reason.sentence}: of two different turns nothing, or not the end, can be told apart")
    begins = _begins(found["head", 0, 0], found["prompt", 0, 0])
    after_result = _begins(found["called", 0, 0], found["call", 0, 0])
    if begins is None or (after_result is None and calls is not Standing.NONE):
        # Where a generation prompt is no mere addition, nothing short can be compared with what was recorded.
        text, system, calls = min(text, Standing.FULL), min(system, Standing.FULL), min(calls, Standing.FULL)
    return TemplateFacts(
        fingerprint=_fingerprint(found),
        after_text=text,
        after_calls=calls,
        before_system=system,
        call_close=_call_close(found),
        ids_shown=found["ids", 0, 0] != found["call", 0, 0],
        begins=TokenIds() if begins is None else begins,
        begins_after_result=TokenIds() if after_result is None else after_result,
        header=_header(found),
    )


_Found: TypeAlias = "Mapping[tuple[str, int, int], TokenIds | None]"


@dataclass(frozen=True, slots=True)
class _Ending:
    """What follows the words of a scene's turn."""

    glue: TokenIds
    """Up to where it depends on what the next message says."""
    after: TokenIds
    """To the end of the rendering."""


def _ending(found: _Found, scene: str, place: int) -> _Ending | None:
    """None: the template refuses the scene, hides its turn, has no end of it, or changes what came before."""
    head, *three = found["head", place, 0], *(found[scene, place, wording] for wording in range(3))
    if head is None or any(ids is None for ids in three):
        return None
    anchor, other, whole = (ids for ids in three if ids is not None)
    between = overlap(head, anchor, other, whole)
    if isinstance(between, FallbackReason):
        return None
    return _Ending(anchor.cut(between.start, between.stop), anchor.cut(between.start))


def _standing(found: _Found, scene: str) -> Standing:
    endings = [_ending(found, scene, place) for place in range(len(_HEADS)) if found["head", place, 0] is not None]
    if not endings or endings[0] is None:
        return Standing.NONE
    if len(endings) > 1 and all(ending == endings[0] for ending in endings):
        return Standing.SHORT
    return Standing.FULL


def _call_close(found: _Found) -> int | None:
    """The token that ends a turn with calls: the one that ends a text, or the first after arguments that are no JSON.

    Templates that show such arguments show them as they are; of the others nothing can be told.
    """
    call, bare = _ending(found, "call", 0), _ending(found, "bare", 0)
    close = _text_close(found)
    if close is not None and call is not None and call.glue.array.tolist().count(close) == 1:
        return close
    return None if bare is None else int(bare.glue.array[0])


def _text_close(found: _Found) -> int | None:
    """The token that ends a text that nothing follows yet."""
    first, second = found["alone", 0, 0], found["alone", 0, 1]
    if first is None or second is None:
        return None
    start = end_of_words(first, second)
    return None if start is None or start == len(first) else int(first.array[start])


def _begins(said: TokenIds | None, prompt: TokenIds | None) -> TokenIds | None:
    """What a generation prompt adds to the same conversation without one. None: the template writes more than that anew."""
    return prompt.cut(len(said)) if said is not None and prompt is not None and prompt.startswith(said) else None


def _header(found: _Found) -> int | None:
    """The last token between the generation prompt and a text, where a turn in the history begins as the prompt ends."""
    begun, text, other = found["prompt", 0, 0], found["text", 0, 0], found["text", 0, 1]
    if begun is None or text is None or other is None:
        return None
    words = common_prefix(text, other)
    return int(text.array[words - 1]) if text.startswith(begun) and words > len(begun) else None


def _fingerprint(found: _Found) -> str:
    """Of what follows turns, whatever stands before them: in many templates that is the day."""
    digest = hashlib.blake2b(digest_size=16)
    for scene, place, wording in found:
        ending = _ending(found, scene, place) if scene in _SCENES and wording == 0 else None
        for ids in () if ending is None else (ending.glue, ending.after):
            digest.update(len(ids).to_bytes(8, "little") + ids.raw)
        digest.update(b"-")
    return digest.hexdigest()

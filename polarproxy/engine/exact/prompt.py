"""From a recorded turn and the conversation that goes on from it to the exact prompt, or to the reason why there is none.

`plan` says what the engine is to render, `exact` makes the prompt of the renderings. Nothing is ever assumed of a rendering
that the renderings themselves do not show.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from polarproxy.engine.exact import conversation
from polarproxy.engine.exact.conversation import (
    Message,
    opening_like,
    read_message,
    render_body,
    turn_like,
    user,
    with_ids,
    without_reasoning,
)
from polarproxy.engine.exact.cut import only_place, overlap
from polarproxy.engine.exact.template import Standing
from polarproxy.errors import BadRequest
from polarproxy.model import FallbackReason, FinishReason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import msgspec

    from polarproxy.engine.exact.conversation import Json, Settings
    from polarproxy.engine.exact.template import TemplateFacts
    from polarproxy.model import TokenIds

_ABSENT = (b"null", b"false")
_UNFIT = (
    "continue_final_message",
    "echo",
    "use_beam_search",
    "truncate_prompt_tokens",
    "kv_transfer_params",
    "prompt_embeds",
)
_PROMPT_KWARGS = (b'"add_generation_prompt"', b'"continue_final_message"')


@dataclass(frozen=True, slots=True)
class Recorded:
    """A turn as it was recorded."""

    prompt: TokenIds
    """P: what the engine conditioned on."""
    completion: TokenIds
    """C: what was sampled; not empty."""
    finish_reason: FinishReason | None
    stop_reason: str | None


@dataclass(frozen=True, slots=True)
class Fallback:
    """The engine's own rendering is to be used."""

    reason: FallbackReason
    detail: str | None = None
    """More about this very case. None: the reason says all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the engine is to render: bodies for its render route."""

    head: bytes
    anchor: bytes
    other: bytes
    """These three are the same for every turn of the same shape when `reusable`; their renderings may be kept, by body."""
    whole: bytes
    """Holds the rest of the conversation, and is rendered for each request."""
    reusable: bool
    calls: bool
    """Whether the turn has tool calls."""
    begins: TokenIds | None
    """What begins the next turn, and the whole must end with. None: anything, for all that came before is rendered."""
    facts: TemplateFacts


@dataclass(frozen=True, slots=True)
class Renderings:
    """The ids that the engine made of a plan's bodies."""

    head: TokenIds
    anchor: TokenIds
    other: TokenIds
    whole: TokenIds


@dataclass(frozen=True, slots=True)
class Exact:
    """A prompt that begins with recorded tokens."""

    prompt: TokenIds
    kept: int
    """How many of its tokens are recorded ones: P and C."""


def unfit(fields: Settings) -> bool:
    """Whether a chat request asks for another prompt than the conversation and the beginning of a turn."""
    if any(bytes(fields[name]).strip() not in _ABSENT for name in _UNFIT if name in fields):
        return True
    if bytes(fields.get("add_generation_prompt", b"true")).strip() != b"true":
        return True
    kwargs = bytes(fields.get("chat_template_kwargs", b""))
    return any(name in kwargs for name in _PROMPT_KWARGS)


def plan(
    fields: Settings,
    messages: Sequence[msgspec.Raw],
    turn: int,
    facts: TemplateFacts,
    prompt: TokenIds,
    *,
    same_ids: bool,
) -> Plan | Fallback:
    """What to render so that a chat request can go on from its message number `turn`, which is a recorded turn.

    `fields`: the members of the request as the engine is told them; `prompt`: that turn's own, as it was recorded;
    `same_ids`: whether the ids of that turn's tool calls are those that were recorded.
    """
    if unfit(fields):
        return Fallback(FallbackReason.UNFIT_REQUEST)
    try:
        every = [read_message(raw) for raw in messages]
    except BadRequest as error:
        return Fallback(FallbackReason.UNREADABLE, str(error))
    if any(message.media for message in every):
        return Fallback(FallbackReason.MEDIA)
    said, tail = every[turn], every[turn + 1 :]
    if said.role != "assistant" or not tail or tail[-1].role == "assistant":
        return Fallback(FallbackReason.PREFILL)
    if tail[0].role == "assistant":
        return Fallback(FallbackReason.NO_BOUNDARY, "another message of the assistant follows at once")
    standing = _standing(facts, said, tail, head=every[:turn])
    if standing is Standing.NONE:
        return Fallback(FallbackReason.TEMPLATE_REFUSED)
    if facts.ids_shown and not same_ids:
        return Fallback(FallbackReason.CALL_IDS)
    # What the recorded prompt ends with was rendered after all that was said. If a stand-in's would end otherwise, then
    # something in the conversation tells the template how a turn is to begin.
    short = standing is Standing.SHORT and prompt.endswith(_begins(facts, every[:turn]))
    ids: Callable[[str], str] = _Ids() if short and not facts.ids_shown else _same
    head = _stand_in(every[:turn]) if short else [without_reasoning(message) for message in every[:turn]]
    rest = [with_ids(message, ids) for message in tail]
    return _plan(fields, head, _Shape(said, tail, ids), rest, facts, begins=_begins(facts, tail) if short else None)


_SYSTEM = ("system", "developer")
_SMALL = 4096
"""Bytes of system messages that are rendered as they are."""


def _begins(facts: TemplateFacts, before: Sequence[Message]) -> TokenIds:
    """What begins a turn of the assistant after these messages, as far as templates go by roles."""
    return facts.begins_after_result if before and before[-1].role == "tool" else facts.begins


def _stand_in(head: Sequence[Message]) -> list[Json | msgspec.Raw]:
    """For all that came before a turn: a word of the user's, after the system messages where these are small."""
    first = [message.raw for message in takewhile(lambda message: message.role in _SYSTEM, head)]
    return [*(first if sum(len(bytes(raw)) for raw in first) <= _SMALL else ()), user()]


def _standing(facts: TemplateFacts, said: Message, tail: Sequence[Message], head: Sequence[Message]) -> Standing:
    standing = facts.after_calls if said.calls else facts.after_text
    if any(message.role == "tool" for message in tail) != bool(said.calls):
        # A call without a result, or a result without a call.
        standing = min(facts.after_calls, facts.after_text)
    if any(message.role in _SYSTEM for message in tail):
        standing = min(standing, facts.before_system)
        if any(message.role == "developer" for message in head):
            # Where vLLM makes system messages of a developer's, it moves all of them to the front.
            standing = min(standing, Standing.FULL)
    if any(message.role == "assistant" for message in tail):
        # How a template renders other turns of the assistant may depend on all that came before.
        standing = min(standing, Standing.FULL)
    return standing


@dataclass(frozen=True, slots=True)
class _Shape:
    said: Message
    tail: Sequence[Message]
    ids: Callable[[str], str]

    def turn(self, word: str) -> Json:
        return turn_like(self.said, word, self.ids)

    def opening(self) -> list[Json]:
        return opening_like(self.tail, self.ids)


def _plan(
    fields: Settings,
    head: list[Json | msgspec.Raw],
    shape: _Shape,
    rest: list[Json | msgspec.Raw],
    facts: TemplateFacts,
    *,
    begins: TokenIds | None,
) -> Plan:
    turn, opening = shape.turn(conversation.FIRST), shape.opening()
    return Plan(
        head=render_body(fields, head, prompt=False),
        anchor=render_body(fields, [*head, turn, *opening]),
        other=render_body(fields, [*head, shape.turn(conversation.SECOND), *opening]),
        whole=render_body(fields, [*head, turn, *rest]),
        reusable=begins is not None,
        calls=bool(shape.said.calls),
        begins=begins,
        facts=facts,
    )


def _same(id: str) -> str:
    return id


@dataclass(slots=True)
class _Ids:
    """Ids by the order in which they are met, so that a turn's shape does not depend on what its ids are."""

    _made: dict[str, str] = field(default_factory=dict)

    def __call__(self, id: str) -> str:
        return self._made.setdefault(id, f"call{len(self._made):05}")


def exact(plan: Plan, rendered: Renderings, recorded: Recorded) -> Exact | Fallback:
    """The prompt: the recorded tokens, then what the template puts after such a turn."""
    if not recorded.prompt or not recorded.completion:
        return Fallback(FallbackReason.NO_TOKENS)
    between = overlap(rendered.head, rendered.anchor, rendered.other, rendered.whole)
    if isinstance(between, FallbackReason):
        return Fallback(between)
    if plan.begins is not None and not rendered.whole.endswith(plan.begins):
        return Fallback(FallbackReason.NO_BOUNDARY, "how the next turn begins depends on what was said")
    place: int | None = between.start
    if plan.calls:
        close = plan.facts.call_close
        place = None if close is None else only_place(rendered.whole, close, between)
    if place is None:
        return Fallback(FallbackReason.NO_BOUNDARY)
    close = int(rendered.whole.array[place])
    if recorded.completion.array[-1] == close:
        place += 1
    elif not is_open(recorded):
        last = int(recorded.completion.array[-1])
        return Fallback(FallbackReason.CLOSE_DIFFERS, f"it ended with token {last}, the template ends it with {close}")
    elif _cut_in_header(recorded.completion, plan.facts.header, close):
        return Fallback(FallbackReason.CUT_IN_HEADER)
    kept = recorded.prompt + recorded.completion
    return Exact(kept + rendered.whole.cut(place), len(kept))


def is_open(recorded: Recorded) -> bool:
    """Whether the turn did not end by a token that ends turns: it was cut, or ended by one of the client's stop strings."""
    if recorded.finish_reason not in (FinishReason.STOP, FinishReason.TOOL_CALLS):
        return True
    return recorded.stop_reason is not None and recorded.stop_reason != str(int(recorded.completion.array[-1]))


def _cut_in_header(completion: TokenIds, header: int | None, close: int) -> bool:
    """Whether nothing says that a turn's text had begun where it was cut, in a template with a header before the text."""
    if header is None:
        return False
    ids = completion.array.tolist()
    if header not in ids:
        return True
    begun = len(ids) - 1 - ids[::-1].index(header)
    return close in ids[begun:]

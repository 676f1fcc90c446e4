"""From a request of any dialect to what the engine is asked, and how its reply is to be said."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from polarproxy.model import Dialect, Loss
from polarproxy.proxy.dialects import read, spoken
from polarproxy.proxy.planning import CHAT_ROUTE, COMPLETIONS_ROUTE
from polarproxy.proxy.speech import Native, Translated
from polarproxy.wire.chat import fields as chat
from polarproxy.wire.chat.request import encode_request
from polarproxy.wire.chat.unfold import unfold as unfold_chat
from polarproxy.wire.completions import fields as completions
from polarproxy.wire.completions.unfold import unfold as unfold_completion
from polarproxy.wire.neutral.reply import Envelope
from polarproxy.wire.responses.response import context_of
from polarproxy.wire.shape import read_shape, shape_of
from polarproxy.wire.surrogates import HALVES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polarproxy.engine.probe import EngineFacts
    from polarproxy.model import Caveat, Sampling, Shape
    from polarproxy.proxy.routes import Route
    from polarproxy.proxy.speech import Speech
    from polarproxy.proxy.visit import Said
    from polarproxy.wire.chat.begun import Begun
    from polarproxy.wire.chat.fields import Fields


_LIMITS = ("max_tokens", "max_completion_tokens")
_BUDGET = "thinking_token_budget"


class EngineRequest(Protocol):
    """A request in the engine's own words, as far as the proxy must know it."""

    @property
    def fields(self) -> Fields: ...
    @property
    def model(self) -> str | None: ...
    @property
    def stream(self) -> bool: ...
    @property
    def stream_usage(self) -> bool: ...
    @property
    def sampling(self) -> Sampling: ...
    @property
    def tools_digest(self) -> str | None: ...
    @property
    def choices(self) -> int: ...
    @property
    def caveat(self) -> Caveat | None: ...

    def messages(self) -> list[msgspec.Raw]: ...
    def resampled(self) -> EngineRequest: ...


@dataclass(slots=True)
class Asking:
    """One request, understood."""

    call_id: str
    dialect: Dialect
    body: bytes
    """Decompressed, and with whole characters only where it is translated."""
    sent: bytes
    """As the client sent it, decompressed."""
    model: str | None
    """The name that the client used. None: it used none."""
    streamed: bool
    """Whether the client wants a stream."""
    engine_route: str
    request: EngineRequest
    speech: Speech
    shape: Shape | None
    """What the client's request looks like. None: it is not a JSON object."""
    losses: list[Loss] = field(default_factory=list)
    """What could not be translated, of the request and, once it is there, of the reply."""
    store_reply: bool = False
    """Whether the client may ask for the reply again (Responses)."""
    begun: Begun | None = None
    """Where the next request of its conversation may go on from. None: nowhere."""
    previous_id: str | None = None
    """The stored response that it continues. None: none."""
    reply: bytes | None = None
    """The whole reply in the client's dialect. None: it is not there yet, or not wanted."""


def understand(
    route: Route,
    query: Mapping[str, str],
    said: Said,
    call_id: str,
    *,
    earlier: Begun | None = None,
    goes_on: bool = False,
    keep_reply: bool = False,
) -> Asking:
    """The same whichever engine is to be asked; raises `BadRequest`. `earlier`: a request that this one may go on
    from; `goes_on`: whether a next one may go on from this."""
    elapsed_ms = _stopwatch()
    spoken_as = spoken(route, query)
    if spoken_as is None:
        return _native(route, said, call_id, earlier, goes_on=goes_on)
    decoded = read(route, said.whole)
    asked = replace(decoded.request, stream=True, stream_usage=True)
    encoded = encode_request(asked)
    head = said.head
    store = head is not None and head.store
    envelope = Envelope(
        id=call_id,
        created=int(time.time()),
        model=asked.model or "",
        request=decoded.request,
        context={} if head is None else context_of(said.body),
        elapsed_ms=elapsed_ms,
    )
    losses = [*decoded.losses, *encoded.losses]
    if said.sent is not None:
        losses.append(HALVES)
    streamed = decoded.request.stream
    return Asking(
        call_id=call_id,
        dialect=route.dialect,
        body=said.body,
        shape=shape_of(said.whole),
        sent=said.body if said.sent is None else said.sent,
        model=asked.model,
        streamed=streamed,
        engine_route=CHAT_ROUTE,
        request=chat.read_request(encoded.body),
        speech=Translated(streamed, spoken_as, envelope, keep=store or keep_reply or not streamed, losses=losses),
        losses=losses,
        store_reply=store,
        previous_id=None if head is None else head.previous_response_id,
    )


def _stopwatch() -> Callable[[], int]:
    """Milliseconds since now."""
    start = time.monotonic_ns()
    return lambda: (time.monotonic_ns() - start) // 1_000_000


def _native(route: Route, said: Said, call_id: str, earlier: Begun | None, *, goes_on: bool) -> Asking:
    request: EngineRequest
    body, begun = said.body, None
    if route.dialect is Dialect.COMPLETIONS:
        request, engine_route, cut = completions.read_request(body), COMPLETIONS_ROUTE, unfold_completion
        shape = read_shape(request.fields)
    else:
        request, engine_route = (asked := chat.read_request(body, earlier, goes_on=goes_on)), CHAT_ROUTE
        begun = asked.begun
        cut = partial(unfold_chat, usage=request.stream_usage)
        shape = read_shape(request.fields, asked.ends)
    return Asking(
        call_id=call_id,
        dialect=route.dialect,
        body=body,
        shape=shape,
        sent=body if said.sent is None else said.sent,
        model=request.model,
        streamed=request.stream,
        engine_route=engine_route,
        request=request,
        speech=Native(request.stream, cut),
        losses=[] if said.sent is None else [HALVES],
        begun=begun,
    )


def serve_as(asking: Asking, served: str | None) -> None:
    """The engine is asked for the model of this name; the client goes on to see the name it used."""
    if served is None or served == asking.model or (asking.model is None and not asking.speech.translated):
        return
    asking.request.fields["model"] = msgspec.Raw(msgspec.json.encode(served))
    if isinstance(asking.speech, Native):
        asking.speech.asked_model = msgspec.json.encode(asking.model)


def fit(asking: Asking, facts: EngineFacts) -> None:
    """Leaves out what this engine would refuse, for harnesses that know other models.

    That is a limit of tokens that its context cannot hold, which is no limit, and a budget of thinking where vLLM counts
    none. In the engine's own dialects refusing is for it to say.
    """
    if not asking.speech.translated:
        return
    fields, limit = asking.request.fields, asking.request.sampling.max_tokens
    context = facts.max_model_len
    if not facts.thinking_budgets and fields.pop(_BUDGET, None) is not None:
        asking.losses.append(Loss("reasoning.budget", "the engine does not count the tokens of reasoning; left out"))
    if context is None or limit is None or limit < context:
        return
    for name in _LIMITS:
        fields.pop(name, None)
    asking.losses.append(
        Loss("max_tokens", f"{limit} is more than the engine's context of {context}; no limit was sent")
    )

"""From what was seen of an exchange to a durable call."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from polarproxy.engine import llamacpp, plain, vllm
from polarproxy.errors import BadReply, StoreUnavailable
from polarproxy.model import Call, CallStatus, Dialect, LogprobsMode, Sampling, Session, Timing, TokenSource
from polarproxy.proxy.prompts import RecentPrompts
from polarproxy.proxy.spellings import Spellings
from polarproxy.store.ids import new_id
from polarproxy.store.repository import DELIVERED
from polarproxy.store.writer import Fact, NewCall

if TYPE_CHECKING:
    from polarproxy.engine.capture import Capture, ParsedIds
    from polarproxy.engine.plan import Plan
    from polarproxy.engine.probe import EngineFacts
    from polarproxy.model import Completion
    from polarproxy.settings import Settings
    from polarproxy.store.arrivals import Arrivals
    from polarproxy.store.writer import Writer
    from polarproxy.wire.chat.fields import ChatRequest

_PLANS = {"llamacpp": llamacpp.plan, "plain": plain.plan}


@dataclass(slots=True)
class Exchange:
    """What is known of a call while it is under way."""

    session: Session
    ordinal: int
    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...]
    request: ChatRequest
    plan: Plan
    facts: EngineFacts
    policy_version: int
    call_id: str = field(default_factory=lambda: new_id("c"))
    arrived_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    arrived_ns: int = field(default_factory=time.monotonic_ns)
    http_status: int | None = None
    first_byte_us: int | None = None
    last_byte_us: int | None = None
    error: str | None = None
    """What went wrong with reading the reply. None: nothing."""
    exact: tuple[Completion, ...] | None = None
    """What was sampled before a piece that could not be read. None: everything could."""
    recorded: bool = False
    """Whether the call was handed to the store."""

    @property
    def capture(self) -> Capture:
        """The tokens seen so far."""
        return self.plan.reader.capture

    def saw_bytes(self) -> None:
        """Bytes of the engine's reply arrived just now."""
        elapsed = (time.monotonic_ns() - self.arrived_ns) // 1000
        if self.first_byte_us is None:
            self.first_byte_us = elapsed
        self.last_byte_us = elapsed

    def lose_track(self, error: BadReply) -> None:
        """A piece of the reply cannot be read: what came before it is exact, with what comes after there would be a gap."""
        if self.error is not None:
            return
        self.error = str(error)
        try:
            self.exact = self.capture.completions()
        except BadReply:
            self.exact = ()


def plan_for(facts: EngineFacts, request: ChatRequest, earlier: ParsedIds | None = None) -> Plan:
    """How to ask this engine for this request. `earlier`: the session's latest prompt, if it is at hand."""
    if facts.name == "vllm":
        return vllm.plan(request.fields, stream=request.stream, earlier=earlier)
    return _PLANS[facts.name](request.fields, stream=request.stream)


def _sampling(asked: Sampling, applied: Sampling | None, facts: EngineFacts) -> Sampling:
    """What the engine says it applied, else what was asked for, else the engine's known defaults."""
    if applied is not None:
        return replace(applied, n=asked.n)
    defaults = facts.defaults

    def either(given: float | None, default: float | None) -> float | None:
        return default if given is None else given

    return replace(
        asked,
        temperature=either(asked.temperature, defaults.temperature),
        top_p=either(asked.top_p, defaults.top_p),
        top_k=defaults.top_k if asked.top_k is None else asked.top_k,
        min_p=either(asked.min_p, defaults.min_p),
        presence_penalty=either(asked.presence_penalty, defaults.presence_penalty),
        frequency_penalty=either(asked.frequency_penalty, defaults.frequency_penalty),
        repetition_penalty=either(asked.repetition_penalty, defaults.repetition_penalty),
        logprobs_mode=facts.logprobs_mode if facts.name == "vllm" else LogprobsMode.UNKNOWN,
    )


def build_call(exchange: Exchange, status: CallStatus, error: str | None, policy_version: int) -> Call:
    """The call as it is to be stored. Tokens that cannot be read make it an engine error, never a shorter completion."""
    capture, request = exchange.capture, exchange.request
    unreadable = exchange.error
    try:
        completions = capture.completions() if exchange.exact is None else exchange.exact
    except BadReply as bad:
        completions, unreadable = (), str(bad)
    if unreadable is not None:
        error = unreadable if error is None else f"{error}; {unreadable}"
        status = CallStatus.ENGINE_ERROR if status is CallStatus.COMPLETED else status
    has_ids = capture.prompt is not None and any(len(completion.token_ids) for completion in completions)
    return Call(
        call_id=exchange.call_id,
        session_id=exchange.session.session_id,
        ordinal=exchange.ordinal,
        arrived_at=exchange.arrived_at,
        dialect=Dialect.CHAT,
        path=exchange.path,
        streamed=request.stream,
        engine=exchange.facts.name,
        status=status,
        http_status=exchange.http_status,
        error=error,
        requested_model=request.model,
        served_model=capture.model,
        prompt_token_ids=capture.prompt,
        completions=completions,
        token_source=TokenSource.ENGINE if has_ids else TokenSource.NONE,
        usage=capture.usage,
        sampling=_sampling(request.sampling, capture.applied, exchange.facts),
        headers=exchange.headers,
        request_body=exchange.body,
        tools_digest=request.tools_digest,
        template_digest=exchange.facts.template_digest,
        caveat=request.caveat,
        engine_request_id=capture.request_id,
        policy_version_min=min(exchange.policy_version, policy_version),
        policy_version_max=max(exchange.policy_version, policy_version),
        timing=Timing(exchange.first_byte_us, exchange.last_byte_us),
    )


class Recorder:
    """Stores exchanges, and remembers which spellings of tokens are stored already."""

    def __init__(self, writer: Writer, arrivals: Arrivals, settings: Settings, latest_policy: int = 0) -> None:
        self._writer = writer
        self._arrivals = arrivals
        self._timeout = settings.store_timeout
        self._spelled: dict[str, Spellings] = {}
        self.prompts = RecentPrompts()
        self.policy_version = max(settings.policy_version, latest_policy)
        """Version of the weights that sample now; a restart does not take it back."""

    @property
    def full(self) -> bool:
        """Whether the store cannot take another call now."""
        return self._writer.full

    async def record(self, exchange: Exchange, status: CallStatus, error: str | None = None) -> None:
        """Returns when the call is durably stored; raises `StoreUnavailable`, `StoreConflict`."""
        await self._writer.write(self._item(exchange, status, error), self._timeout)

    def record_later(self, exchange: Exchange, status: CallStatus, error: str | None = None) -> str | None:
        """Queues the call without waiting: its client is gone. Returns why it could not be queued, None when it was."""
        if exchange.recorded:
            return None
        try:
            self._writer.submit(self._item(exchange, status, error))
        except StoreUnavailable as refused:
            return str(refused)
        return None

    def delivered(self, exchange: Exchange) -> None:
        """The whole reply was handed to the client. Only a full queue can lose this fact, and then the call still stands."""
        try:
            self._writer.submit(Fact(exchange.call_id, datetime.now(UTC), DELIVERED, "yes"))
        except StoreUnavailable:
            return

    def _item(self, exchange: Exchange, status: CallStatus, error: str | None) -> NewCall:
        call = build_call(exchange, status, error, self.policy_version)
        exchange.recorded = True
        self._arrivals.leave(exchange.session.session_id)
        if exchange.capture.prompt_parsed is not None:
            self.prompts.remember(call.session_id, exchange.capture.prompt_parsed)
        spelled = self._spelled.setdefault(call.served_model or "", Spellings())
        return NewCall(call, exchange.session, spelled.new(call.completions, exchange.capture))

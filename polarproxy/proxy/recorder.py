"""From what was seen of an exchange to a durable call."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from polarproxy.errors import BadReply, StoreUnavailable
from polarproxy.model import Call, CallStatus, LogprobsMode, Sampling, Timing, TokenSource
from polarproxy.proxy.spellings import Spellings
from polarproxy.store.items import Fact, NewCall
from polarproxy.store.recent import Recent
from polarproxy.store.schema import DELIVERED

if TYPE_CHECKING:
    from polarproxy.engine.ids import ParsedIds
    from polarproxy.engine.probe import EngineFacts
    from polarproxy.proxy.exchange import Exchange
    from polarproxy.settings import Settings
    from polarproxy.store.arrivals import Arrivals
    from polarproxy.store.keeper import Keeper


def _sampling(asked: Sampling, applied: Sampling | None, facts: EngineFacts) -> Sampling:
    """What the engine says it applied, else what was asked for, else the engine's known defaults."""
    if applied is not None:
        return replace(applied, n=asked.n)
    defaults = facts.defaults
    return Sampling(
        temperature=_either(asked.temperature, defaults.temperature),
        top_p=_either(asked.top_p, defaults.top_p),
        top_k=defaults.top_k if asked.top_k is None else asked.top_k,
        min_p=_either(asked.min_p, defaults.min_p),
        presence_penalty=_either(asked.presence_penalty, defaults.presence_penalty),
        frequency_penalty=_either(asked.frequency_penalty, defaults.frequency_penalty),
        repetition_penalty=_either(asked.repetition_penalty, defaults.repetition_penalty),
        max_tokens=asked.max_tokens,
        seed=asked.seed,
        n=asked.n,
        logprobs_mode=facts.logprobs_mode if facts.name == "vllm" else LogprobsMode.UNKNOWN,
    )


def _either(given: float | None, default: float | None) -> float | None:
    return default if given is None else given


def build_call(exchange: Exchange, status: CallStatus, error: str | None, policy_version: int) -> Call:
    """The call as it is to be stored. Tokens that cannot be read make it an engine error, never a shorter completion."""
    capture, asking = exchange.capture, exchange.asking
    request = asking.request
    prompted, unreadable = exchange.prompted, exchange.error
    try:
        completions = capture.completions() if exchange.exact is None else exchange.exact
    except BadReply as bad:
        completions, unreadable = (), str(bad)
    if unreadable is not None:
        error = unreadable if error is None else f"{error}; {unreadable}"
        status = CallStatus.ENGINE_ERROR if status is CallStatus.COMPLETED else status
    caveat = request.caveat or (None if prompted is None else prompted.caveat(capture))
    if prompted is not None and status is CallStatus.COMPLETED and caveat is None:
        # What broke off, or was sampled after an unknown prompt, is nothing to go on from.
        completions = prompted.marked(completions)
    has_ids = capture.prompt is not None and any(len(completion.token_ids) for completion in completions)
    return Call(
        call_id=exchange.call_id,
        session_id=exchange.session.session_id,
        ordinal=exchange.place.ordinal,
        arrived_at=exchange.arrived_at,
        dialect=asking.dialect,
        path=exchange.path,
        streamed=asking.streamed,
        engine=exchange.facts.name,
        upstream=exchange.upstream.name,
        status=status,
        http_status=exchange.http_status,
        error=error,
        requested_model=asking.model,
        served_model=capture.model,
        prompt_token_ids=capture.prompt,
        completions=completions,
        token_source=TokenSource.ENGINE if has_ids else TokenSource.NONE,
        usage=capture.usage,
        sampling=_sampling(request.sampling, capture.applied, exchange.facts),
        headers=exchange.headers,
        request_body=asking.sent,
        tools_digest=request.tools_digest,
        shape=asking.shape,
        template_digest=exchange.facts.template_digest,
        caveat=caveat,
        losses=tuple(asking.losses),
        engine_request_id=capture.request_id,
        policy_version_min=min(exchange.policy_version, policy_version),
        policy_version_max=max(exchange.policy_version, policy_version),
        timing=Timing(exchange.first_byte_us, exchange.last_byte_us),
        prompting=None if prompted is None else prompted.judge(capture),
    )


class Recorder:
    """Stores exchanges, and remembers which spellings of tokens are stored already."""

    def __init__(self, writer: Keeper, arrivals: Arrivals, settings: Settings) -> None:
        self._writer = writer
        self._arrivals = arrivals
        self._timeout = settings.store_timeout
        self._keep_bodies = settings.keep_bodies
        self._spelled: defaultdict[str, Spellings] = defaultdict(Spellings)
        self.prompts: Recent[ParsedIds] = Recent()

    @property
    def full(self) -> bool:
        """Whether the store cannot take another call now."""
        return self._writer.full

    @property
    def policy_version(self) -> int:
        """Version of the weights that sample now."""
        return self._arrivals.policy_version

    async def record(self, exchange: Exchange, status: CallStatus, error: str | None = None) -> Call:
        """Returns when the call is durably stored; raises `StoreUnavailable`, `StoreConflict`."""
        await self._arrivals.catch_up()
        item = self._item(exchange, status, error)
        await self._writer.write(item, self._timeout)
        return item.call

    def record_later(self, exchange: Exchange, status: CallStatus, error: str | None = None) -> str | None:
        """Queues the call without waiting: its client is gone. Returns why it could not be queued, None when it was."""
        if exchange.recorded:
            return None
        try:
            self._writer.submit(self._item(exchange, status, error))
        except StoreUnavailable as refused:
            return str(refused)
        return None

    def delivered(self, exchange: Exchange, said: str = "yes") -> None:
        """The whole reply was handed to a client. Only a full queue can lose this fact, and then the call still stands."""
        try:
            self._writer.note(Fact(exchange.call_id, datetime.now(UTC), DELIVERED, said))
        except StoreUnavailable:
            return

    def _item(self, exchange: Exchange, status: CallStatus, error: str | None) -> NewCall:
        call = build_call(exchange, status, error, self.policy_version)
        if self._keep_bodies == "none" or (self._keep_bodies == "errors" and call.status is CallStatus.COMPLETED):
            call = replace(call, request_body=b"")
        exchange.recorded = True
        self._arrivals.leave(exchange.session.session_id)
        if (prompt := exchange.capture.prompt_parsed) is not None:
            self.prompts.remember(call.session_id, prompt, len(prompt.text) + len(prompt.ids.raw))
        spelled = self._spelled[call.served_model or ""]
        texts = spelled.new(call.completions, exchange.capture)
        place = None if exchange.place.arrived is None else exchange.place
        return NewCall(call, exchange.session, texts, exchange.response, place)

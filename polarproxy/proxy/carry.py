"""One model call from the engine to the client: commit first, then let the client see the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.engine.plan import Plan
from polarproxy.errors import (
    BadReply,
    EngineTimeout,
    EngineUnreachable,
    Paused,
    PolarproxyError,
    StoreConflict,
    StoreUnavailable,
)
from polarproxy.model import CallStatus, FallbackReason, PromptOutcome
from polarproxy.proxy import headers
from polarproxy.proxy.gate import WaitingOutlet
from polarproxy.proxy.keepalive import KeepAlive
from polarproxy.proxy.relay import StreamRelay
from polarproxy.proxy.replies import Refusal, refusal, status_of
from polarproxy.proxy.responses import stored_response
from polarproxy.wire.chat.errors import read_error
from polarproxy.wire.chat.fold import fold_message
from polarproxy.wire.conversation import reply_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Iterable, Mapping

    from polarproxy.proxy.exact.prompted import Prompted
    from polarproxy.proxy.exchange import Exchange
    from polarproxy.proxy.http.answer import Answer
    from polarproxy.proxy.outlet import Outlet
    from polarproxy.proxy.parts import Parts
    from polarproxy.proxy.roots import Place
    from polarproxy.proxy.speech import Speech
    from polarproxy.proxy.upstream import Upstream

_STORE_ERRORS = (StoreUnavailable, StoreConflict)
_REFUSALS = (400, 413, 422)
"""What an engine answers to a request that it does not take."""
_DRAIN_S = 0.5
"""How long the engine has to end a stream that is over, so that its connection can serve the next request."""


@dataclass(slots=True)
class Carrier:
    """Carries one request through; every way out records it exactly once."""

    parts: Parts
    outlet: Outlet
    exchange: Exchange
    place: Place | None
    """Among the unattributed conversations. None: the client named its session."""
    sent: Mapping[str, str]
    """The headers for the engine."""
    query: str
    """The query string for the engine, with its question mark; may be empty."""
    elsewhere: Callable[[Exchange, Container[Upstream]], Awaitable[bool]]
    """Turns a call that could not be sent to an engine that was not tried; whether there is one."""
    _whole: bool = False
    """Whether the reply is whole and stored, and is being given to its end."""

    @property
    def speech(self) -> Speech:
        """How the reply is said."""
        return self.exchange.asking.speech

    async def run(self) -> None:
        """Asks the engine and answers the client."""
        try:
            await self._run()
        finally:
            if self.exchange.prompted is not None:
                self._count(self.exchange.prompted)

    async def _run(self) -> None:
        try:
            await self._ask()
        except (asyncio.CancelledError, ConnectionResetError):
            self._record_lost(CallStatus.ABORTED, "the client left before the end of the reply")
            raise
        except (EngineTimeout, EngineUnreachable) as error:
            await self._engine_failed(error)
        except _STORE_ERRORS as error:
            self.parts.stats.store_failures += 1
            await self._refuse(refusal(error))
        except Paused as error:
            self._record_lost(CallStatus.TIMEOUT, str(error))
            await self._refuse(refusal(error))
        except Exception as error:  # a fault of ours must not cost the record of what was sampled until then
            self._record_lost(CallStatus.ENGINE_ERROR, f"polarproxy failed: {error!r}")
            raise

    async def _ask(self) -> None:
        exchange = self.exchange
        if self.parts.gate.paused:
            await self._wait()
        upstream = await self._send()
        # It is with the engine now; a stream may stay open for minutes, and need not hold on to it.
        exchange.plan = Plan(b"", exchange.plan.stream, exchange.plan.reader)
        async with upstream:
            exchange.http_status = upstream.status
            is_stream = upstream.headers.get("Content-Type", "").startswith("text/event-stream")
            # A client that wants no stream from the engine itself gets what came, stream or not.
            if upstream.status == 200 and is_stream and (self.speech.streamed or self.speech.translated):
                await self._relay(upstream)
                return
            body = await upstream.read()
            exchange.saw_bytes()
            if upstream.status != 200:
                await self._refused(upstream, body)
                return
            await self._answer(upstream, body)

    async def _wait(self) -> None:
        """Until generation is resumed; what is sampled then is stamped with the version of then."""
        self.outlet = waiting = WaitingOutlet(self.outlet, self.speech)
        await self.parts.gate.pass_through(waiting, self.parts.settings.keepalive)
        await self.parts.arrivals.catch_up()
        self.exchange.policy_version = self.parts.recorder.policy_version

    async def _send(self) -> Answer:
        """Never again what an engine may have taken: it would sample twice, and only one of the two would be recorded."""
        exchange = self.exchange
        tried: set[Upstream] = set()
        while True:
            tried.add(exchange.upstream)
            try:
                return await self._send_there(exchange.asking.engine_route + self.query)
            except (EngineTimeout, EngineUnreachable) as error:
                if error.sent or not await self.elsewhere(exchange, tried):
                    raise

    async def _send_there(self, path: str) -> Answer:
        """With an exact prompt where there is one. An engine that refuses it is asked without: its error must be the one
        that any client would get."""
        exchange, prompted = self.exchange, self.exchange.prompted
        body = None if prompted is None else await self.parts.exact.body(exchange, prompted, self.sent)
        if body is not None and prompted is not None:
            answer = await self._post(path, body)
            if answer.status not in _REFUSALS:
                return answer
            async with answer:
                said = (await answer.read())[:500].decode("utf-8", "replace")
            prompted.fall_back(FallbackReason.ENGINE_REFUSED, f"{answer.status}: {said}")
        return await self._post(path, exchange.plan.body)

    async def _post(self, path: str, body: bytes) -> Answer:
        """Not while generation is paused, which it may be since the request came in."""
        if self.parts.gate.paused:
            await self._wait()
        return await self.exchange.upstream.send("POST", path, self.sent, body)

    async def _refused(self, upstream: Answer, body: bytes) -> None:
        """The engine's own error, word for word: harnesses know its wording."""
        status = CallStatus.REJECTED if upstream.status < 500 else CallStatus.ENGINE_ERROR
        await self.parts.recorder.record(self.exchange, status, body[:2000].decode("utf-8", "replace"))
        if not self.speech.translated:
            await self.outlet.answer(upstream.status, headers.to_client(upstream.headers), body)
            return
        _, message = read_error(body)
        await self._refuse(Refusal(upstream.status, message, upstream.headers.get("Retry-After")))

    async def _answer(self, upstream: Answer, body: bytes) -> None:
        exchange, speech = self.exchange, self.speech
        try:
            view = exchange.plan.reader.body(body)
            if exchange.prompted is not None:
                exchange.prompted.hear_whole(view)
            await self._follow_up()
            said = speech.whole(view, exchange.capture)
        except BadReply as error:
            await self._unreadable(upstream, body, error)
            return
        await self._record(CallStatus.COMPLETED)
        if self.place is not None:
            self._remember(self.place, reply_messages(view))
        head = speech.head(upstream.headers)
        self._whole = True
        if not speech.streamed:
            await self.outlet.answer(200, head, said)
        else:
            await self.outlet.begin(head)
            await self.outlet.end(said)
        self._delivered()

    async def _unreadable(self, upstream: Answer, body: bytes, error: BadReply) -> None:
        """A client of the engine itself would get these bytes; what cannot be made of them is refused."""
        self.exchange.error = str(error)
        await self.parts.recorder.record(self.exchange, CallStatus.COMPLETED)
        if not self.speech.translated and not self.speech.streamed:
            await self.outlet.answer(200, headers.to_client(upstream.headers), body)
            return
        await self._refuse(refusal(error))

    async def _follow_up(self) -> None:
        """What the engine must be asked besides, to know the exact ids. Without an answer the call has none."""
        follow_up = self.exchange.plan.reader.follow_up()
        if follow_up is None:
            return
        try:
            status, answer = await self.exchange.upstream.ask("POST", follow_up.path, follow_up.body)
            if status == 200:
                self.exchange.plan.reader.answer(answer)
        except (BadReply, EngineTimeout, EngineUnreachable) as error:
            self.exchange.error = str(error)

    async def _relay(self, upstream: Answer) -> None:
        speech, outlet, capture = self.speech, self.outlet, self.exchange.capture
        head = speech.head(upstream.headers)
        if speech.streamed:
            await outlet.begin(head)
        relay = StreamRelay(self.exchange, speech, keep=self.place is not None)
        try:
            with KeepAlive(outlet, speech, self.parts.settings.keepalive, relay):
                await relay.run(upstream, outlet)
                relay.finish()
                await self._record(CallStatus.COMPLETED if capture.error is None else CallStatus.ENGINE_ERROR)
        except (BadReply, EngineTimeout, EngineUnreachable, *_STORE_ERRORS) as error:
            await self._break_off(error)
            return
        if capture.error is not None and speech.translated:
            await self._engine_said_error(relay, capture.error)
            return
        if self.place is not None:
            self._remember(self.place, [fold_message(relay.kept)])
        self._whole = True
        if speech.streamed:
            await outlet.end(b"".join(relay.held) + speech.rest(relay.rest()))
        else:
            await outlet.answer(200, head, speech.folded())
        self._delivered()
        await upstream.drain(_DRAIN_S)

    async def _engine_said_error(self, relay: StreamRelay, error: str) -> None:
        """The engine ended its stream with an error; in the client's dialect such a stream must not end cleanly."""
        if self.speech.streamed:
            await self.outlet.break_off(b"".join(relay.held))
            return
        await self._refuse(Refusal(*read_error(error)))

    async def _break_off(self, error: PolarproxyError) -> None:
        """After the head of a stream has been sent only an error event and a cut connection can tell the client."""
        if isinstance(error, _STORE_ERRORS):
            self.parts.stats.store_failures += 1
        else:
            self.exchange.upstream.failed(error)
            self._record_lost(_failed(error), str(error))
        if not self.speech.streamed:
            await self._refuse(refusal(error))
            return
        await self.outlet.break_off(self.speech.failure(status_of(error), str(error)))

    async def _engine_failed(self, error: EngineTimeout | EngineUnreachable) -> None:
        self.exchange.upstream.failed(error)
        try:
            await self.parts.recorder.record(self.exchange, _failed(error), str(error))
        except _STORE_ERRORS as refused:
            self.parts.stats.store_failures += 1
            await self._refuse(refusal(refused))
            return
        await self._refuse(refusal(error))

    def _count(self, prompted: Prompted) -> None:
        prompting = prompted.judge(self.exchange.capture)
        if prompting.outcome is not PromptOutcome.EXACT or self.exchange.http_status == 200:
            # Where the engine failed, nothing went on from the prompt.
            self.parts.exact.count(prompting)
        if prompting.outcome is PromptOutcome.FAULT:
            # It may have been replaced by one that takes no prompts.
            self.exchange.upstream.doubt()

    async def _refuse(self, refused: Refusal) -> None:
        await self.outlet.refuse(refused, self.exchange.asking.dialect)

    async def _record(self, status: CallStatus) -> None:
        exchange, asking = self.exchange, self.exchange.asking
        if self.speech.keep and exchange.capture.error is None:
            # What the whole reply cannot say belongs into the record too.
            asking.reply = self.speech.folded()
            if asking.store_reply:
                exchange.response = stored_response(asking, asking.reply)
        call = await self.parts.recorder.record(exchange, status, exchange.capture.error)
        if exchange.prompted is not None:
            self.parts.exact.recorded(exchange.prompted, call)

    def _record_lost(self, status: CallStatus, reason: str) -> None:
        refused = self.parts.recorder.record_later(self.exchange, status, reason)
        if refused is not None:
            self.parts.stats.store_failures += 1

    def _remember(self, place: Place, messages: Iterable[bytes]) -> None:
        for message in messages:
            self.parts.roots.answered(place, message)

    def delivered_again(self, said: str) -> None:
        """Somebody else was given what the client was; counts only if that was the whole reply."""
        if self._whole:
            self._deliver(said)

    def _delivered(self) -> None:
        if self.outlet.open:
            self._deliver("yes")

    def _deliver(self, said: str) -> None:
        self.parts.recorder.delivered(self.exchange, said)
        if self.exchange.prompted is not None:
            self.exchange.prompted.delivered()


def _failed(error: PolarproxyError) -> CallStatus:
    return CallStatus.TIMEOUT if isinstance(error, EngineTimeout) else CallStatus.ENGINE_ERROR

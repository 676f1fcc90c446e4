"""One model call from arrival to record: commit first, then let the client see the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from polarproxy.errors import (
    BadReply,
    EngineTimeout,
    EngineUnreachable,
    PolarproxyError,
    StoreConflict,
    StoreUnavailable,
)
from polarproxy.model import CallStatus, Session
from polarproxy.proxy import headers
from polarproxy.proxy.recorder import Exchange, plan_for
from polarproxy.proxy.relay import StreamRelay, drain
from polarproxy.proxy.replies import refuse_for, status_of
from polarproxy.proxy.upstream import engine_errors
from polarproxy.wire.chat.fields import encode_error, read_request
from polarproxy.wire.chat.fold import fold_message
from polarproxy.wire.chat.unfold import unfold
from polarproxy.wire.conversation import reply_messages
from polarproxy.wire.sse import encode_event

if TYPE_CHECKING:
    from polarproxy.proxy.address import Address
    from polarproxy.proxy.parts import Parts
    from polarproxy.proxy.roots import Place

CHAT_ROUTE = "/v1/chat/completions"

_SSE_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8"}
_STORE_ERRORS = (StoreUnavailable, StoreConflict)


@dataclass(slots=True)
class ChatCall:
    """Carries one request through; every way out records it exactly once."""

    parts: Parts
    http: web.Request
    exchange: Exchange
    place: Place | None
    """Among the unattributed conversations. None: the client named its session."""

    async def run(self) -> web.StreamResponse:
        """Asks the engine and answers the client."""
        try:
            return await self._ask()
        except (asyncio.CancelledError, ConnectionResetError):
            self._record_lost(CallStatus.ABORTED, "the client left before the end of the reply")
            raise
        except (EngineTimeout, EngineUnreachable) as error:
            return await self._engine_failed(error)
        except _STORE_ERRORS as error:
            self.parts.stats.store_failures += 1
            return refuse_for(error)
        except Exception as error:  # a fault of ours must not cost the record of what was sampled until then
            self._record_lost(CallStatus.ENGINE_ERROR, f"polarproxy failed: {error!r}")
            raise

    async def _ask(self) -> web.StreamResponse:
        exchange = self.exchange
        sent = headers.to_engine(self.http.headers.items(), self.parts.settings.upstream_key)
        sent.setdefault("Content-Type", "application/json")
        query = headers.query_to_engine(self.http.rel_url.raw_query_string, self.parts.settings.upstream_key)
        upstream = await self.parts.upstream.send("POST", CHAT_ROUTE + query, sent, exchange.plan.body)
        # It is with the engine now; a stream may stay open for minutes, and need not hold on to it.
        exchange.plan = replace(exchange.plan, body=b"")
        async with upstream:
            exchange.http_status = upstream.status
            is_stream = upstream.headers.get("Content-Type", "").startswith("text/event-stream")
            if upstream.status == 200 and is_stream:
                return await self._relay(upstream)
            async with engine_errors():
                body = await upstream.read()
            exchange.saw_bytes()
            if upstream.status != 200:
                return await self._refused(upstream, body)
            return await self._answer(upstream, body)

    async def _refused(self, upstream: aiohttp.ClientResponse, body: bytes) -> web.Response:
        """The engine's own error, word for word: harnesses know its wording."""
        status = CallStatus.REJECTED if upstream.status < 500 else CallStatus.ENGINE_ERROR
        await self.parts.recorder.record(self.exchange, status, body[:2000].decode("utf-8", "replace"))
        return web.Response(status=upstream.status, headers=headers.to_client(upstream.headers), body=body)

    async def _answer(self, upstream: aiohttp.ClientResponse, body: bytes) -> web.StreamResponse:
        exchange = self.exchange
        unreadable: BadReply | None = None
        try:
            view = exchange.plan.reader.body(body)
        except BadReply as error:
            exchange.error, view, unreadable = str(error), body, error
        await self._follow_up()
        await self.parts.recorder.record(exchange, CallStatus.COMPLETED)
        if self.place is not None:
            for message in reply_messages(view):
                self.parts.roots.answered(self.place, message)
        if exchange.request.stream:
            if unreadable is not None:
                return refuse_for(unreadable)
            events = unfold(view, usage=exchange.request.stream_usage)
            response = web.Response(headers=_SSE_HEADERS, body=b"".join(events))
        else:
            response = web.Response(headers=headers.to_client(upstream.headers), body=view)
        await response.prepare(self.http)
        await response.write_eof()
        self._delivered()
        return response

    async def _follow_up(self) -> None:
        """What the engine must be asked besides, to know the exact ids. Without an answer the call has none."""
        follow_up = self.exchange.plan.reader.follow_up()
        if follow_up is None:
            return
        try:
            status, answer = await self.parts.upstream.ask("POST", follow_up.path, follow_up.body)
            if status == 200:
                self.exchange.plan.reader.answer(answer)
        except (BadReply, EngineTimeout, EngineUnreachable) as error:
            self.exchange.error = str(error)

    async def _relay(self, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        client = web.StreamResponse(headers=headers.to_client(upstream.headers))
        await client.prepare(self.http)
        relay = StreamRelay(self.exchange, keep=self.place is not None)
        try:
            await relay.run(upstream, client)
            self._require_end(relay)
            error = self.exchange.capture.error
            await self.parts.recorder.record(
                self.exchange, CallStatus.COMPLETED if error is None else CallStatus.ENGINE_ERROR, error
            )
        except (EngineTimeout, EngineUnreachable, *_STORE_ERRORS) as error:
            return await self._break_off(client, error)
        if self.place is not None:
            self.parts.roots.answered(self.place, fold_message(relay.kept))
        await client.write_eof(b"".join(relay.held) + relay.rest())
        self._delivered()
        await drain(upstream)
        return client

    def _require_end(self, relay: StreamRelay) -> None:
        capture = self.exchange.capture
        if not relay.ended and capture.error is None and capture.finished() < self.exchange.request.sampling.n:
            raise EngineUnreachable("the engine ended its stream before the reply was finished")

    async def _break_off(self, client: web.StreamResponse, error: PolarproxyError) -> web.StreamResponse:
        """After the head of a stream has been sent only an error event and a cut connection can tell the client."""
        if isinstance(error, _STORE_ERRORS):
            self.parts.stats.store_failures += 1
        else:
            self.parts.forget_engine()
            self._record_lost(_failed(error), str(error))
        await client.write(encode_event(encode_error(status_of(error), str(error))))
        if self.http.transport is not None:
            self.http.transport.close()
        return client

    async def _engine_failed(self, error: EngineTimeout | EngineUnreachable) -> web.Response:
        self.parts.forget_engine()
        try:
            await self.parts.recorder.record(self.exchange, _failed(error), str(error))
        except _STORE_ERRORS as refused:
            self.parts.stats.store_failures += 1
            return refuse_for(refused)
        return refuse_for(error)

    def _record_lost(self, status: CallStatus, reason: str) -> None:
        refused = self.parts.recorder.record_later(self.exchange, status, reason)
        if refused is not None:
            self.parts.stats.store_failures += 1

    def _delivered(self) -> None:
        transport = self.http.transport
        if transport is not None and not transport.is_closing():
            self.parts.recorder.delivered(self.exchange)


def _failed(error: PolarproxyError) -> CallStatus:
    return CallStatus.TIMEOUT if isinstance(error, EngineTimeout) else CallStatus.ENGINE_ERROR


async def chat(parts: Parts, http: web.Request, address: Address) -> web.StreamResponse:
    """Serves one chat completion; raises the errors that mean it was refused before the engine was asked."""
    body = await http.read()
    request = read_request(body)
    facts = await parts.engine_facts()
    if parts.recorder.full:
        raise StoreUnavailable("too many calls are waiting to be stored; the proxy takes new ones when they are")
    place = None if address.session_id is not None else parts.roots.place([bytes(m) for m in request.messages()])
    session_id = address.session_id if place is None else place.session_id
    assert session_id is not None
    plan = plan_for(facts, request, parts.recorder.prompts.of(session_id))
    ordinal = await parts.arrivals.arrive(session_id)
    exchange = Exchange(
        session=Session(session_id, datetime.now(UTC), address.origin, model=request.model),
        ordinal=ordinal,
        path=address.path,
        body=body,
        headers=headers.to_record(http.headers.items()),
        request=request,
        plan=plan,
        facts=facts,
        policy_version=parts.recorder.policy_version,
    )
    return await ChatCall(parts, http, exchange, place).run()

"""From a request that came in to a carrier that is ready to go."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from polarproxy.errors import StoreUnavailable
from polarproxy.model import Loss, PromptMode, Session
from polarproxy.proxy import headers
from polarproxy.proxy.asking import fit, serve_as, understand
from polarproxy.proxy.carry import Carrier
from polarproxy.proxy.exact.modes import asked_mode
from polarproxy.proxy.exact.prompted import Prompted
from polarproxy.proxy.exchange import Exchange
from polarproxy.proxy.forced import force
from polarproxy.proxy.planning import CHAT_ROUTE, plan_for
from polarproxy.store.ids import new_id
from polarproxy.store.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from polarproxy.engine.plan import Plan
    from polarproxy.engine.probe import EngineFacts
    from polarproxy.proxy.asking import Asking
    from polarproxy.proxy.fleet import Chosen
    from polarproxy.proxy.outlet import Outlet
    from polarproxy.proxy.parts import Parts
    from polarproxy.proxy.roots import Place
    from polarproxy.proxy.upstream import Upstream
    from polarproxy.proxy.visit import Said, Visit


async def generate(parts: Parts, visit: Visit, outlet: Outlet, said: Said, *, keep_reply: bool = False) -> Carrier:
    """Makes a request into a call of its session.

    Raises `BadRequest` when it cannot be understood, `StoreUnavailable`, `SessionClosed`, when it is not taken. Must be
    followed by the carrier's `run`, which records the call whatever comes.
    """
    named = visit.address.session_id
    earlier = None if named is None else parts.requests.of(named)
    understood = partial(
        understand,
        visit.route,
        visit.query,
        said,
        new_id("c"),
        earlier=earlier,
        goes_on=named is not None,
        keep_reply=keep_reply,
    )
    asking = understood()
    if named is not None and asking.begun is not None:
        parts.requests.remember(named, asking.begun, len(asking.begun.body))
    if parts.recorder.full:
        raise StoreUnavailable("too many calls are waiting to be stored; the proxy takes new ones when they are")
    asked = asked_mode(parts, visit)
    if isinstance(asked, Loss):
        asking.losses.append(asked)
    session_id, origin, place = _session(parts, visit, said, asking)
    sent, query = _to_engine(parts, visit, asking)
    # All that may refuse the request comes before its place is taken.
    chosen, facts = await _engine_for(parts, asking, session_id)
    arrived = await parts.arrivals.arrive(session_id)
    # A conversation that names no session was made with nothing.
    terms = Terms() if place is not None else parts.arrivals.terms(session_id)
    plan = _plan(parts, asking, session_id, chosen, facts, terms)
    exchange = Exchange(
        session=Session(session_id, datetime.now(UTC), origin, model=asking.model),
        place=arrived,
        path=visit.address.path,
        headers=headers.to_record(visit.headers.items(), said.head.headers if said.head else ()),
        asking=asking,
        plan=plan,
        upstream=chosen.upstream,
        facts=facts,
        policy_version=parts.recorder.policy_version,
        prompted=Prompted() if _is_exact(parts, asked, terms, asking) else None,
    )
    return Carrier(parts, outlet, exchange, place, sent, query, elsewhere=partial(_turn, parts, understood, terms))


async def _engine_for(parts: Parts, asking: Asking, session_id: str) -> tuple[Chosen, EngineFacts]:
    """The session's engine, and what is known of it."""
    chosen = await parts.fleet.choose(session_id, asking.model)
    return chosen, await chosen.upstream.facts()


def _plan(
    parts: Parts, asking: Asking, session_id: str, chosen: Chosen, facts: EngineFacts, terms: Terms | None
) -> Plan:
    """How the engine is to be asked."""
    serve_as(asking, chosen.model)
    force(asking, None if terms is None else terms.sampling)
    fit(asking, facts)
    earlier = parts.recorder.prompts.of(session_id)
    return plan_for(facts, asking.engine_route, asking.request, earlier, translated=asking.speech.translated)


async def _turn(
    parts: Parts,
    understood: Callable[[], Asking],
    terms: Terms | None,
    exchange: Exchange,
    tried: Container[Upstream],
) -> bool:
    """Turns a call of which nothing was sent to the engine that has its session now, unless that was tried."""
    asking, session_id = understood(), exchange.session.session_id
    chosen, facts = await _engine_for(parts, asking, session_id)
    if chosen.upstream in tried:
        return False
    exchange.plan = _plan(parts, asking, session_id, chosen, facts, terms)
    exchange.asking, exchange.upstream, exchange.facts = asking, chosen.upstream, facts
    return True


def _is_exact(parts: Parts, asked: PromptMode | Loss | None, terms: Terms | None, asking: Asking) -> bool:
    """Whether the prompt is to be exact. A text completion brings its own."""
    said = None if terms is None else terms.prompts
    mode = asked if isinstance(asked, PromptMode) else said
    return (mode or parts.settings.prompts) == PromptMode.EXACT and asking.engine_route == CHAT_ROUTE


def _session(parts: Parts, visit: Visit, said: Said, asking: Asking) -> tuple[str, str, Place | None]:
    """Session, origin, and the place among the unattributed conversations."""
    if visit.address.session_id is not None:
        return visit.address.session_id, visit.address.origin, None
    if said.session_id is not None:
        return said.session_id, visit.address.origin, None
    place = parts.roots.place([bytes(message) for message in asking.request.messages()])
    return place.session_id, visit.address.origin, place


def _to_engine(parts: Parts, visit: Visit, asking: Asking) -> tuple[Mapping[str, str], str]:
    key = parts.settings.upstream_key
    if asking.speech.translated:
        return headers.of_translation(visit.headers, visit.query, key), ""
    sent = headers.to_engine(visit.headers.items(), key)
    sent.setdefault("Content-Type", "application/json")
    return sent, headers.query_to_engine(visit.raw_query, key)

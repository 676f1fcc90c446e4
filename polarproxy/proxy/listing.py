"""Lists of models, for clients that expect another shape than the engine's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polarproxy.errors import BadRequest, NotFound
from polarproxy.model import Dialect
from polarproxy.proxy.routes import Action
from polarproxy.proxy.server.response import Response
from polarproxy.wire.gemini import models as gemini
from polarproxy.wire.messages import models as messages

if TYPE_CHECKING:
    from polarproxy.engine.probe import EngineFacts
    from polarproxy.proxy.parts import Parts
    from polarproxy.proxy.visit import Visit


async def serve_models(parts: Parts, visit: Visit) -> Response:
    """All models, or one; raises `BadRequest`, `NotFound`."""
    await parts.fleet.look()
    facts = await parts.fleet.facts()
    anthropic = visit.route.dialect is Dialect.MESSAGES
    if visit.route.action is Action.MODELS:
        return Response.of_json(
            _page(facts, visit) if anthropic else gemini.encode_models(facts.models, facts.max_model_len)
        )
    wanted = visit.route.model or ""
    if wanted not in facts.models:
        raise NotFound(f"the engine serves no model {wanted!r}; it serves {', '.join(facts.models) or 'none'}")
    return Response.of_json(
        messages.encode_model(wanted) if anthropic else gemini.encode_model(wanted, facts.max_model_len)
    )


def _page(facts: EngineFacts, visit: Visit) -> bytes:
    limit, after, before = (visit.query.get(name) for name in ("limit", "after_id", "before_id"))
    return messages.encode_models(facts.models, _limit(limit), after_id=after, before_id=before)


def _limit(text: str | None) -> int | None:
    if text is not None and not text.isdigit():
        raise BadRequest(f"limit must be a number, not {text!r}")
    return None if text is None else int(text)

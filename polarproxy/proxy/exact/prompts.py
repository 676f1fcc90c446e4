"""From a request in exact mode to the body that goes to the engine: with the recorded tokens, or as it would be without us.

Whatever is missing, late, unclear or at fault on the way ends in the engine's own rendering, with the reason on record.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from polarproxy.engine import vllm
from polarproxy.engine.exact.prompt import Fallback, Recorded, Renderings, exact, is_open, plan, unfit
from polarproxy.engine.exact.template import Refused
from polarproxy.engine.exact.unkeyed import unkeyed
from polarproxy.errors import BadReply, BadRequest, EngineTimeout, EngineUnreachable, StoreDamaged
from polarproxy.model import Caveat, Continued, FallbackReason, Prompting, PromptOutcome
from polarproxy.proxy.discovery import why_no_exact_prompts
from polarproxy.proxy.exact.engines import RESTING, Engines
from polarproxy.proxy.exact.known import KnownTurns, Match
from polarproxy.wire.chat.request import decode_request
from polarproxy.wire.neutral.history import has_media, turns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polarproxy.engine.exact.prompt import Exact
    from polarproxy.engine.exact.template import TemplateFacts
    from polarproxy.model import Call
    from polarproxy.proxy.asking import EngineRequest
    from polarproxy.proxy.exact.prompted import Prompted
    from polarproxy.proxy.exact.renders import Renders
    from polarproxy.proxy.exchange import Exchange
    from polarproxy.proxy.upstream import Upstream
    from polarproxy.store.repository import Repository
    from polarproxy.wire.neutral.request import Request

PATIENCE_S = 5.0
"""How long a request may wait for its exact prompt before the engine is asked as it would be without one."""


class ExactPrompts:
    """Makes exact prompts, and counts what became of them."""

    def __init__(self, repository: Repository) -> None:
        self._known = KnownTurns(repository)
        self._engines = Engines()
        self.outcomes: Counter[str] = Counter()
        """Calls in exact mode since the start: `first`, `exact`, `fault`, and each reason of a fallback."""
        self.reused_tokens = 0
        """Recorded tokens that exact prompts began with."""

    async def why_unable(self, upstream: Upstream) -> str | None:
        """Why an engine cannot be given exact prompts, for a person to read. None: it can. It is asked once.

        Raises `EngineTimeout` when it does not answer, `BadReply` when it is at fault; it is asked again then.
        """
        engine = self._engines.of(upstream)
        if engine.able is None or (engine.able.done() and engine.able.exception() is not None):
            engine.able = asyncio.create_task(why_no_exact_prompts(upstream, await upstream.facts()))
        return await asyncio.shield(engine.able)

    async def refusal(self, upstream: Upstream) -> str | None:
        """Why there will be no exact prompts with an engine and its own template, for a person to read. None: there will.

        Raises `EngineTimeout`, `EngineUnreachable`, `BadReply` when it cannot be found out now.
        """
        unable = await self.why_unable(upstream)
        if unable is not None:
            return unable
        facts = await upstream.facts()
        fields = {} if facts.model is None else {"model": msgspec.Raw(msgspec.json.encode(facts.model))}
        template = await self._engines.of(upstream).renders.template(fields, upstream.own_head)
        return template.detail if isinstance(template, Refused) else None

    async def body(self, exchange: Exchange, prompted: Prompted, sent: Mapping[str, str]) -> bytes | None:
        """The body with an exact prompt. None: the engine is to be asked as it would be without us. Never raises."""
        prompted.begin()
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = await self._prompt(exchange, prompted, _head(sent))
        except (TimeoutError, EngineTimeout):
            self._engines.of(exchange.upstream).was_late()
            found = Fallback(FallbackReason.RENDER_FAILED, f"there was no prompt within {PATIENCE_S:g} s")
        except (BadReply, EngineUnreachable) as error:
            found = Fallback(FallbackReason.RENDER_FAILED, str(error))
        except (StoreDamaged, SQLAlchemyError) as error:
            found = Fallback(FallbackReason.STORE_FAILED, str(error))
        except Exception as error:  # noqa: BLE001  (a fault of ours here must not cost the client its reply)
            found = Fallback(FallbackReason.UNREADABLE, f"polarproxy failed: {error!r}")
        if isinstance(found, Prompting):
            prompted.prompting = found
            return None
        if isinstance(found, Fallback):
            prompted.fall_back(found.reason, found.detail)
            return None
        self._engines.of(exchange.upstream).late = 0
        prompted.take(found.prompt)
        return vllm.forced(exchange.plan.body, found.prompt)

    async def _prompt(
        self, exchange: Exchange, prompted: Prompted, head: Mapping[str, str]
    ) -> Exact | Fallback | Prompting:
        """Raises whatever stands in the way."""
        asked, engine = exchange.asking.request, await self._engines.looked_at(exchange.upstream, head)
        renders = engine.renders
        if engine.rests and not engine.knows(asked.fields):
            return _RESTS
        unable = await self.why_unable(exchange.upstream)
        if unable is not None:
            return Fallback(FallbackReason.ENGINE_UNABLE, unable)
        try:
            request = decode_request(msgspec.json.encode(asked.fields)).request
        except BadRequest as error:
            return Fallback(FallbackReason.UNREADABLE, str(error))
        prefill = bool(request.messages) and request.messages[-1].role == "assistant"
        unsuited = _unsuited(asked, request, prefill=prefill)
        if unsuited is not None:
            return unsuited
        template = await renders.template(asked.fields, head)
        if isinstance(template, Refused):
            return Fallback(template.reason, template.detail)
        prompted.request, prompted.template = request, template.fingerprint
        if prefill:
            return Fallback(FallbackReason.PREFILL)
        sent = turns(request)
        if not sent:
            return Prompting(PromptOutcome.FIRST)
        match = await self._known.find(exchange.session.session_id, sent)
        if isinstance(match, FallbackReason):
            return Fallback(match)
        known = match.known
        length = len(known.prompt) + len(known.completion.token_ids)
        prompted.goes_on_from(Continued(known.call_id, known.choice, length))
        if engine.rests:
            return _RESTS
        made = await _continue(renders, asked, match, template, head)
        limit = exchange.facts.max_model_len
        if not isinstance(made, Fallback) and limit is not None and len(made.prompt) >= limit:
            return Fallback(FallbackReason.TOO_LONG)
        return made

    def recorded(self, prompted: Prompted, call: Call) -> None:
        """The call is stored: requests may go on from it."""
        for turn in prompted.stored(call):
            self._known.add(call.session_id, turn)

    def count(self, prompting: Prompting) -> None:
        """A call is over."""
        if prompting.outcome is PromptOutcome.FALLBACK and prompting.reason is not None:
            self.outcomes[prompting.reason] += 1
        else:
            self.outcomes[prompting.outcome.value] += 1
        if prompting.outcome is PromptOutcome.EXACT and prompting.continued is not None:
            self.reused_tokens += prompting.continued.length


_RESTS = Fallback(FallbackReason.RENDER_FAILED, RESTING)


def _unsuited(asked: EngineRequest, request: Request, *, prefill: bool) -> Fallback | None:
    """Why nothing is to go on from the reply either. None: it may."""
    if asked.caveat is Caveat.MEDIA or has_media(request):
        return Fallback(FallbackReason.MEDIA)
    member = unkeyed(asked.fields, asked.messages())
    if member is not None:
        return Fallback(FallbackReason.UNFIT_REQUEST, f"{member}, by which turns are not recognised")
    if unfit(asked.fields):
        # Its prompt is not what the conversation is rendered to.
        return Fallback(FallbackReason.PREFILL if prefill else FallbackReason.UNFIT_REQUEST)
    return None


async def _continue(
    renders: Renders, asked: EngineRequest, match: Match, template: TemplateFacts, head: Mapping[str, str]
) -> Exact | Fallback:
    known = match.known
    if known.mark.template != template.fingerprint:
        return Fallback(FallbackReason.TEMPLATE_CHANGED)
    one = known.completion
    recorded = Recorded(known.prompt, one.token_ids, one.finish_reason, one.stop_reason)
    if bytes(asked.fields.get("thinking_token_budget", b"null")) != b"null" and is_open(recorded):
        # The engine counts from the last beginning of a thought, which may be that of the cut turn.
        return Fallback(FallbackReason.UNFIT_REQUEST, "a thinking_token_budget would count the thoughts of a cut turn")
    place = match.sent.chat_messages - 1
    wanted = plan(
        asked.fields, asked.messages(), place, template, known.prompt, same_ids=match.sent.ids == known.mark.ids
    )
    if isinstance(wanted, Fallback):
        return wanted
    kept = wanted.head, wanted.anchor, wanted.other
    whole, (before, anchor, other) = await asyncio.gather(
        renders.ids(wanted.whole, head, keep=False), renders.all_ids(kept, head, keep=wanted.reusable)
    )
    made = exact(wanted, Renderings(before, anchor, other, whole), recorded)
    if wanted.reusable and isinstance(made, Fallback) and made.reason is FallbackReason.HEAD_CHANGES:
        # Kept renderings may be of yesterday.
        renders.forget(kept)
        before, anchor, other = await renders.all_ids(kept, head, keep=True)
        made = exact(wanted, Renderings(before, anchor, other, whole), recorded)
    return made


def _head(sent: Mapping[str, str]) -> dict[str, str]:
    """The headers of a request of our own on behalf of a client."""
    head = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    key = sent.get("Authorization")
    return head if key is None else head | {"Authorization": key}

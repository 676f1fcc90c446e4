"""Asking an engine what it is and what it can do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from polarproxy.engine import probe
from polarproxy.errors import BadReply, EngineTimeout, EngineUnreachable
from polarproxy.model import LogprobsMode, Sampling

if TYPE_CHECKING:
    from polarproxy.engine.probe import EngineFacts
    from polarproxy.proxy.upstream import Upstream
    from polarproxy.settings import EngineName


RENDER_ROUTE = "/v1/chat/completions/render"
PATIENCE_S = 5.0
"""How long one question to the engine may take: requests wait for what is found."""


async def ask(upstream: Upstream, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Status and body of the answer; status 0 when there was none in time."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await upstream.ask(method, path, body)
    except (EngineTimeout, EngineUnreachable, TimeoutError):
        return 0, b""


async def _ask(upstream: Upstream, method: str, path: str, body: bytes | None = None) -> bytes | None:
    """The body of a 200 answer; None for any other answer, or none in time."""
    status, answer = await ask(upstream, method, path, body)
    return answer if status == 200 else None


async def glance(upstream: Upstream) -> EngineFacts | None:
    """What the engine's list of models says of it; None when it does not answer."""
    models = await _ask(upstream, "GET", "/v1/models")
    return None if models is None else probe.recognise(models)


async def discover(upstream: Upstream, wanted: EngineName = "auto") -> EngineFacts | None:
    """What is known of the engine; None while it does not answer. `wanted` overrules what it calls itself."""
    facts = await glance(upstream)
    if facts is None:
        return None
    if wanted != "auto":
        facts = replace(facts, name=wanted)
    if facts.name == "vllm":
        return replace(
            facts,
            logprobs_mode=await _logprobs_mode(upstream, facts.model or ""),
            template_digest=await _template(upstream, "/tokenizer_info"),
            defaults=await _defaults(upstream, facts.model or ""),
            thinking_budgets=await _takes_budgets(upstream, facts.model or ""),
        )
    if facts.name == "llamacpp":
        return replace(facts, template_digest=await _template(upstream, "/props"))
    return facts


async def _logprobs_mode(upstream: Upstream, model: str) -> LogprobsMode:
    cool = await _ask(upstream, "POST", "/v1/completions", probe.mode_request(model, 1.0))
    hot = await _ask(upstream, "POST", "/v1/completions", probe.mode_request(model, 2.0))
    return LogprobsMode.UNKNOWN if cool is None or hot is None else probe.logprobs_mode(cool, hot)


async def _takes_budgets(upstream: Upstream, model: str) -> bool:
    return await _ask(upstream, "POST", "/v1/completions", probe.budget_request(model)) is not None


async def _template(upstream: Upstream, path: str) -> str | None:
    answer = await _ask(upstream, "GET", path)
    return None if answer is None else probe.template_digest(answer)


async def _defaults(upstream: Upstream, model: str) -> Sampling:
    answer = await _ask(upstream, "POST", RENDER_ROUTE, probe.render_request(model))
    return Sampling() if answer is None else probe.default_sampling(answer)


async def why_no_exact_prompts(upstream: Upstream, facts: EngineFacts) -> str | None:
    """Why this engine cannot be given exact prompts, for a person to read. None: it can.

    Raises `EngineTimeout` when it does not answer, `BadReply` when what it answers may be over soon.
    """
    if facts.name != "vllm":
        return f"the engine is {facts.name}; only vLLM takes prompt ids with a chat"
    model = facts.model or ""
    status, rendering = await ask(upstream, "POST", RENDER_ROUTE, probe.render_request(model))
    ids = probe.rendered_ids(rendering) if status == 200 else None
    if ids is None:
        return f"{RENDER_ROUTE} {_said(status)}; {_RENDER_ADVICE.get(status, 'it is needed to render what is new')}"
    # Another prompt than the one that the message would be rendered to.
    ids = ids[:-1] or [*ids, *ids]
    status, reply = await ask(upstream, "POST", "/v1/chat/completions", probe.forced_request(model, ids))
    if status != 200:
        return f"the engine refuses prompt ids with a chat: it {_said(status)}"
    if not probe.took_prompt(reply, ids):
        return (
            "the engine ignores prompt ids with a chat (kv_transfer_params.prompt_token_ids, as vLLM 0.32 takes them)"
        )
    return None


_RENDER_ADVICE = {
    403: "start vLLM with --enable-scale-out",
    404: "this vLLM has no such route; 0.32 has it",
    401: "set upstream_key (--upstream-key)",
}


_PASSING = (408, 425, 429)


def _said(status: int) -> str:
    if not status:
        raise EngineTimeout("the engine did not answer when it was asked whether it takes exact prompts")
    if status in _PASSING or status >= 500:
        raise BadReply(f"the engine answers {status} when it is asked whether it takes exact prompts")
    return f"answers {status}"

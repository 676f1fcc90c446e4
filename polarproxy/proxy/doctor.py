"""Trying out what an engine can do, and saying what each missing ability costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from polarproxy.engine import probe
from polarproxy.engine.exact.template import Refused
from polarproxy.errors import BadReply, EngineTimeout, EngineUnreachable
from polarproxy.model import LogprobsMode
from polarproxy.proxy.discovery import RENDER_ROUTE, ask, discover, why_no_exact_prompts
from polarproxy.proxy.exact.renders import Renders
from polarproxy.proxy.planning import CHAT_ROUTE, plan_for
from polarproxy.wire.chat.fields import read_request
from polarproxy.wire.sse import DONE, EventSplitter, event_data

if TYPE_CHECKING:
    from polarproxy.engine.capture import Capture
    from polarproxy.engine.probe import EngineFacts
    from polarproxy.proxy.upstream import Upstream
    from polarproxy.settings import EngineName


@dataclass(frozen=True, slots=True)
class Check:
    """One ability of an engine."""

    name: str
    ok: bool
    detail: str
    cost: str
    """What cannot be done without it."""
    needed: bool = False
    """Whether nothing can be trained without it."""


async def examine(upstream: Upstream, wanted: EngineName = "auto") -> list[Check]:
    """All checks, in order; only the first when the engine does not answer."""
    facts = await discover(upstream, wanted)
    if facts is None:
        return [Check("answers", ok=False, detail=f"{upstream.base} does not answer", cost="everything", needed=True)]
    whole = await _try_chat(upstream, facts, stream=False)
    streamed = await _try_chat(upstream, facts, stream=True)
    return [
        Check("answers", ok=True, detail=f"{facts.name}, model {facts.model}, {facts.max_model_len} tokens", cost=""),
        await _version(upstream),
        _ids("token ids", whole),
        _ids("token ids in streams", streamed),
        _mode(facts, whole),
        *await _exact_prompts(upstream, facts),
    ]


async def _try_chat(upstream: Upstream, facts: EngineFacts, *, stream: bool) -> Capture | str:
    """What was captured of a short chat, or why nothing was."""
    question = [{"role": "user", "content": probe.PROBE_PROMPT}]
    asked = {"model": facts.model, "messages": question, "max_tokens": 2, "stream": stream}
    plan = plan_for(facts, CHAT_ROUTE, read_request(msgspec.json.encode(asked)))
    try:
        status, answer = await upstream.ask("POST", "/v1/chat/completions", plan.body)
        if status != 200:
            return f"the engine answered {status}: {answer[:200].decode('utf-8', 'replace')}"
        if plan.stream:
            for event in EventSplitter().feed(answer):
                data = event_data(event)
                if data is not None and data != DONE:
                    plan.reader.event(data)
        else:
            plan.reader.body(answer)
        follow_up = plan.reader.follow_up()
        if follow_up is not None:
            plan.reader.answer((await upstream.ask("POST", follow_up.path, follow_up.body))[1])
    except (BadReply, EngineTimeout, EngineUnreachable) as error:
        return str(error)
    return plan.reader.capture


def _ids(name: str, tried: Capture | str) -> Check:
    cost = "calls are recorded without ids and nothing can be trained"
    if isinstance(tried, str):
        return Check(name, ok=False, detail=tried, cost=cost, needed=True)
    try:
        completions = tried.completions()
    except BadReply as error:
        return Check(name, ok=False, detail=str(error), cost=cost, needed=True)
    sampled = sum(len(completion.token_ids) for completion in completions)
    logprobs = sum(len(completion.logprobs or ()) for completion in completions)
    prompt = None if tried.prompt is None else len(tried.prompt)
    ok = prompt is not None and 0 < sampled == logprobs
    return Check(name, ok, f"prompt {prompt}, sampled {sampled}, logprobs {logprobs}", cost, needed=True)


def _mode(facts: EngineFacts, tried: Capture | str) -> Check:
    mode = facts.logprobs_mode
    if mode is LogprobsMode.UNKNOWN and not isinstance(tried, str) and tried.applied is not None:
        mode = tried.applied.logprobs_mode
    advice = "start vLLM with --logprobs-mode processed_logprobs" if facts.name == "vllm" else "sample at temperature 1"
    cost = f"logprobs are not those of the distribution that was sampled from; {advice}"
    return Check("logprobs of the sampling distribution", mode is LogprobsMode.PROCESSED, f"mode {mode}", cost)


async def _version(upstream: Upstream) -> Check:
    status, answer = await ask(upstream, "GET", "/version")
    value = probe.read_json(answer) if status == 200 else None
    version = value.get("version") if isinstance(value, dict) else None
    return Check("version", version is not None, str(version or "not shown"), "the record does not say what sampled it")


async def _exact_prompts(upstream: Upstream, facts: EngineFacts) -> list[Check]:
    """What continuing the very tokens of earlier turns needs (`prompts = exact`)."""
    cost = "no exact prompts: later turns are rendered anew, and branches fork where that differs from what was sampled"
    status, _ = await ask(upstream, "POST", RENDER_ROUTE, probe.render_request(facts.model or ""))
    try:
        unable = await why_no_exact_prompts(upstream, facts)
        template = None if unable is not None else await _template(upstream, facts)
    except (BadReply, EngineTimeout, EngineUnreachable) as error:
        unable = template = str(error)
    checks = [
        Check("render", status == 200, f"{RENDER_ROUTE} answers {status}", cost),
        Check("prompt ids with a chat", unable is None, unable or "they are used", cost),
    ]
    if unable is None:
        found = "where its turns end is known"
        checks.append(Check("chat template for exact prompts", template is None, template or found, cost))
    generate = {"model": facts.model, "token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 1}}
    status, _ = await ask(upstream, "POST", "/inference/v1/generate", msgspec.json.encode(generate))
    versions = "weight versions inside one reply are not recorded"
    return [*checks, Check("generate", status == 200, f"/inference/v1/generate answers {status}", versions)]


async def _template(upstream: Upstream, facts: EngineFacts) -> str | None:
    """Why the engine's own chat template cannot be continued. None: it can."""
    fields = {"model": msgspec.Raw(msgspec.json.encode(facts.model))}
    found = await Renders(upstream).template(fields, upstream.own_head)
    return found.detail if isinstance(found, Refused) else None

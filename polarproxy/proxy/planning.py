"""Which way a request goes to the engine at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polarproxy.engine import llamacpp, llamacpp_completions, plain, vllm, vllm_completions

if TYPE_CHECKING:
    from polarproxy.engine.ids import ParsedIds
    from polarproxy.engine.plan import Plan
    from polarproxy.engine.probe import EngineFacts
    from polarproxy.proxy.asking import EngineRequest

CHAT_ROUTE = "/v1/chat/completions"
COMPLETIONS_ROUTE = "/v1/completions"

_CHAT = {"llamacpp": llamacpp.plan, "plain": plain.plan}
_COMPLETIONS = {"llamacpp": llamacpp_completions.plan, "plain": plain.plan}


def plan_for(
    facts: EngineFacts,
    route: str,
    request: EngineRequest,
    earlier: ParsedIds | None = None,
    *,
    translated: bool = False,
) -> Plan:
    """How to ask this engine on this route of its.

    `earlier`: the session's latest prompt, if it is at hand. `translated`: the reply goes into another dialect.
    """
    fields, stream = request.fields, request.stream
    if route == COMPLETIONS_ROUTE:
        if facts.name == "vllm":
            return vllm_completions.plan(fields, stream=stream, earlier=earlier)
        return _COMPLETIONS[facts.name](fields, stream=stream)
    if facts.name == "vllm":
        return vllm.plan(fields, stream=stream, earlier=earlier, as_it_comes=translated)
    return _CHAT[facts.name](fields, stream=stream)

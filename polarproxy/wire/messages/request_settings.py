"""How the model is to think and in what form to answer, in both directions; and the members that do not reach the engine."""

from __future__ import annotations

from typing import get_args

import msgspec

from polarproxy.errors import BadRequest
from polarproxy.model import Loss
from polarproxy.wire.messages.errors import NO_THREADS
from polarproxy.wire.messages.members import COUNT, TEXT, Members, Reading
from polarproxy.wire.neutral.request import Effort, OutputFormat, Reasoning

EFFORTS: dict[str, Effort] = {effort: effort for effort in get_args(Effort) if effort not in ("none", "minimal")}
_SHOWN = {"summarized": True, "omitted": False}
"""By `thinking.display`. What is shown is shown whole; `updates` of Claude Code is taken as nothing said."""
_DEFAULT_OUTPUT = OutputFormat(None)

IGNORED = (
    "cache_control",
    "service_tier",
    "speed",
    "inference_geo",
    "diagnostics",
    "billing_policy",
    "fallback_credit_token",
    "user_profile_id",
    "workspace_id",
    "betas",
    "anthropic_beta",
    "anthropic_version",
)
"""Members about the provider's hardware, accounts and caches: no word to the model, so nothing to report."""

_PROVIDER_ONLY = {
    "mcp_servers": "the provider would call these servers itself",
    "container": "the provider would run code in it",
    "compaction": "the provider would write a summary instead of an answer",
    "fallbacks": "there is one engine",
}


def lose_provider_only(body: Members, reading: Reading) -> None:
    """Marks or reports what only the provider can do; raises `BadRequest` where the rest means nothing without it."""
    body.ignore(*IGNORED)
    if body.raw("thread") is not None:
        raise BadRequest(NO_THREADS)
    for name, why in _PROVIDER_ONLY.items():
        if body.raw(name) is not None:
            reading.lose(name, f"left out: {why}")
    edits = body.raw("context_management")
    if edits is not None and not _keeps_everything(edits):
        reading.lose("context_management", "left out: the history goes to the engine whole")


class _Edit(msgspec.Struct):
    type: str
    keep: msgspec.Raw = msgspec.Raw(b"")


class _ContextManagement(msgspec.Struct):
    edits: list[_Edit] = []


def _keeps_everything(raw: bytes) -> bool:
    """Whether the edits change nothing, as the ones of Claude Code."""
    try:
        edits = msgspec.json.decode(raw, type=_ContextManagement).edits
    except msgspec.ValidationError:
        return False
    return all(edit.type == "clear_thinking_20251015" and bytes(edit.keep) == b'"all"' for edit in edits)


def read_effort(body: Members, reading: Reading) -> Effort | None:
    """The effort of the whole request. None: not said, or not known here."""
    config = body.object("output_config")
    said = None if config is None else config.get("effort", TEXT)
    if config is None or said is None:
        return None
    if said not in EFFORTS:
        reading.lose(config.path("effort"), f"left out: an effort {said} is not known here")
    return EFFORTS.get(said)


def read_output(body: Members, reading: Reading) -> OutputFormat | None:
    """The JSON schema of the answer: `output_config.format`, or `output_format` of older clients. None: free text."""
    config = body.object("output_config")
    form = None
    if config is not None:
        config.ignore("effort")
        form = config.object("format")
        reading.lose_rest(config)
    form = form or body.object("output_format")
    if form is None:
        return None
    kind = form.need("type", TEXT)
    if kind != "json_schema":
        reading.lose(form.where, f"left out: an output format of type {kind} is not known here")
        return None
    schema = form.need_json_object("schema")
    reading.lose_rest(form)
    return OutputFormat(schema)


def read_reasoning(body: Members, effort: Effort | None, reading: Reading) -> Reasoning | None:
    """`thinking` and the effort together. None: neither was said."""
    thinking = body.object("thinking")
    if thinking is None:
        return None if effort is None else Reasoning(effort=effort)
    shown = _SHOWN.get(thinking.get("display", TEXT) or "")
    budget = None
    enabled: bool | None = True
    match thinking.need("type", TEXT):
        case "enabled":
            budget = thinking.get("budget_tokens", COUNT)
        case "adaptive":
            pass
        case "disabled":
            enabled = False
        case kind:
            enabled = None
            reading.lose(thinking.where, f"left out: thinking of type {kind} is not known here")
    reading.lose_rest(thinking)
    reasoning = Reasoning(enabled, effort, budget, shown if enabled else None)
    return None if reasoning == Reasoning() else reasoning


class Thinking(msgspec.Struct, omit_defaults=True):
    """`thinking` as it is written."""

    type: str
    budget_tokens: int | None = None
    display: str | None = None


class Format(msgspec.Struct, tag="json_schema"):
    """`output_config.format` as it is written."""

    schema: msgspec.Raw


class OutputConfig(msgspec.Struct, omit_defaults=True):
    """`output_config` as it is written."""

    effort: str | None = None
    format: Format | None = None


def sayable(reasoning: Reasoning | None, losses: list[Loss]) -> Reasoning:
    """What of it this dialect can say; all None: nothing was said, or nothing can be."""
    if reasoning is None:
        return Reasoning()
    enabled, effort = reasoning.enabled, reasoning.effort
    if enabled is None and effort == "none":
        enabled = False
    if enabled is None and reasoning.budget is not None:
        enabled = True
    if effort == "minimal":
        effort = "low"
    said = Reasoning(
        enabled,
        None if effort == "none" else effort,
        reasoning.budget if enabled else None,
        reasoning.shown if enabled else None,
    )
    if said != reasoning:
        why = "no effort is none or minimal in this dialect, and a budget or whether to show goes with thinking"
        losses.append(Loss("thinking", why))
    return said


def write_thinking(said: Reasoning) -> Thinking | None:
    """None: the request does not say whether to think."""
    if said.enabled is None:
        return None
    if not said.enabled:
        return Thinking("disabled")
    display = None if said.shown is None else "summarized" if said.shown else "omitted"
    return Thinking("adaptive" if said.budget is None else "enabled", said.budget, display)


def write_output_config(said: Reasoning, output: OutputFormat | None, losses: list[Loss]) -> OutputConfig | None:
    """None: neither an effort nor a form of the answer was asked for."""
    config = OutputConfig(said.effort, None if output is None else _write_format(output, losses))
    return None if config == OutputConfig() else config


def _write_format(output: OutputFormat, losses: list[Loss]) -> Format:
    if (output.name, output.description, output.strict) != (_DEFAULT_OUTPUT.name, None, None):
        losses.append(Loss("output_config.format", "a schema has no name, description or strictness in this dialect"))
    if output.schema is None:
        losses.append(Loss("output_config.format", "any JSON object is a schema in this dialect"))
    return Format(msgspec.Raw(output.schema or b'{"type":"object"}'))

"""From `generationConfig` to the settings of a request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from polarproxy.wire.gemini.schema import json_schema
from polarproxy.wire.neutral.request import Effort, OutputFormat, Reasoning

if TYPE_CHECKING:
    from polarproxy.wire.gemini.findings import Findings
    from polarproxy.wire.gemini.members import Members
    from polarproxy.wire.neutral.request import Request

_LEVELS: dict[str, Effort | None] = {
    "MINIMAL": "minimal",
    "LOW": "low",
    "MEDIUM": "medium",
    "HIGH": "high",
    "XHIGH": "xhigh",
    "THINKING_LEVEL_UNSPECIFIED": None,
}


def configured(request: Request, config: Members | None, findings: Findings) -> Request:
    """The request with the settings of `generationConfig`; raises `BadRequest` for one of the wrong type."""
    if config is None:
        return request
    read = replace(
        request,
        temperature=config.number("temperature"),
        top_p=config.number("topP"),
        top_k=config.integer("topK"),
        max_tokens=config.integer("maxOutputTokens"),
        n=config.integer("candidateCount"),
        stop=tuple(config.texts("stopSequences") or ()),
        presence_penalty=config.number("presencePenalty"),
        frequency_penalty=config.number("frequencyPenalty"),
        seed=config.integer("seed"),
        output=_output(config, findings),
        reasoning=_reasoning(config.message("thinkingConfig"), findings),
    )
    _modalities(config, findings)
    findings.keep_rest(config)
    return read


def _output(config: Members, findings: Findings) -> OutputFormat | None:
    mime, schema = config.text("responseMimeType"), _response_schema(config)
    if mime == "text/x.enum" and schema is not None:
        words = _enumerated(schema)
        if words is not None:
            findings.extra["structured_outputs"] = msgspec.json.encode({"choice": words})
            return None
    if mime not in (None, "text/plain", "application/json"):
        findings.lose(config.at("responseMimeType"), f"the engine knows no output of the type {mime!r}; left out")
    if schema is not None:
        return OutputFormat(schema)
    return OutputFormat(None) if mime == "application/json" else None


def _response_schema(config: Members) -> bytes | None:
    found = None
    for name in ("responseSchema", "_responseJsonSchema", "responseJsonSchema"):
        schema = config.raw(name)
        if schema is not None:
            found = json_schema(schema, config.at(name))
    return found


class _Enum(msgspec.Struct):
    enum: list[str]


def _enumerated(schema: bytes) -> list[str] | None:
    """The words that a schema allows. None: it is not a list of words."""
    try:
        return msgspec.json.decode(schema, type=_Enum).enum
    except msgspec.DecodeError:
        return None


def _reasoning(config: Members | None, findings: Findings) -> Reasoning | None:
    """A budget of 0 is no thinking, of -1 as much as the model likes."""
    if config is None:
        return None
    budget, shown = config.integer("thinkingBudget"), config.flag("includeThoughts")
    level = config.text("thinkingLevel")
    effort = _LEVELS.get(level.upper()) if level else None
    if level and level.upper() not in _LEVELS:
        findings.lose(config.at("thinkingLevel"), f"the level {level!r} is not of this API; left out")
    findings.keep_rest(config)
    asked = Reasoning(
        enabled=False if budget == 0 else True if budget is not None or effort is not None else None,
        effort=effort,
        budget=budget if budget is not None and budget > 0 else None,
        shown=shown,
    )
    return None if asked == Reasoning() else asked


def _modalities(config: Members, findings: Findings) -> None:
    wanted = config.texts("responseModalities") or []
    for modality in wanted:
        if modality.upper() not in ("TEXT", "MODALITY_UNSPECIFIED"):
            findings.lose(config.at("responseModalities"), f"the engine answers with text, not with {modality!r}")

"""From the neutral request to the body of `generateContent`.

For clients and for the laws; the proxy itself only reads requests of this dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.gemini.read_tools import own_names
from polarproxy.wire.gemini.write_contents import ContentsWriter
from polarproxy.wire.neutral.request import Encoded

if TYPE_CHECKING:
    from polarproxy.wire.neutral.request import Effort, OutputFormat, Reasoning, Request, Tool, ToolChoice

_LEVELS: dict[Effort, str] = {
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "XHIGH",
    "max": "XHIGH",
}
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY", "named": "ANY"}
_NESTED = ("generationConfig.", "toolConfig.")
"""Members that are kept by their path, since their objects are read apart."""


def encode_request(request: Request) -> Encoded:
    """The body for a path that names `request.model`, and whether it is streamed."""
    own = own_names(request.tools)
    writer = ContentsWriter(own)
    system, contents = writer.write(request.messages)
    losses = writer.losses
    body: dict[str, Any] = {"contents": contents}
    if system is not None:
        body["systemInstruction"] = system
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(tool, own, losses) for tool in request.tools]}]
    if request.tool_choice is not None:
        body["toolConfig"] = {"functionCallingConfig": _calling(request.tool_choice, own)}
    config = _config(request, losses)
    if config:
        body["generationConfig"] = config
    if request.metadata:
        body["labels"] = request.metadata
    for name, unsaid in (("parallel_tool_calls", request.parallel_tool_calls), ("user", request.user)):
        if unsaid is not None:
            losses.append(Loss(name, "this API has no place for it; left out"))
    for path, value in request.extra.items():
        _put(body, path, msgspec.Raw(value))
    return Encoded(msgspec.json.encode(body), tuple(losses))


def _put(body: dict[str, Any], path: str, value: msgspec.Raw) -> None:
    names = path.split(".") if path.startswith(_NESTED) else [path]
    for name in names[:-1]:
        body = body.setdefault(name, {})
    body[names[-1]] = value


def _declaration(tool: Tool, own: dict[str, str], losses: list[Loss]) -> dict[str, Any]:
    if tool.strict is not None:
        losses.append(Loss(f"tools.{tool.name}.strict", "this API has no place for it; left out"))
    declared: dict[str, Any] = {"name": own.get(tool.name, tool.name)}
    if tool.description is not None:
        declared["description"] = tool.description
    if tool.parameters is not None:
        declared["parametersJsonSchema"] = msgspec.Raw(tool.parameters)
    return declared


def _calling(choice: ToolChoice, own: dict[str, str]) -> dict[str, Any]:
    calling: dict[str, Any] = {"mode": _MODES[choice.mode]}
    if choice.name is not None:
        calling["allowedFunctionNames"] = [own.get(choice.name, choice.name)]
    return calling


def _config(request: Request, losses: list[Loss]) -> dict[str, Any]:
    config = {
        "temperature": request.temperature,
        "topP": request.top_p,
        "topK": request.top_k,
        "maxOutputTokens": request.max_tokens,
        "candidateCount": request.n,
        "stopSequences": request.stop or None,
        "presencePenalty": request.presence_penalty,
        "frequencyPenalty": request.frequency_penalty,
        "seed": request.seed,
        "thinkingConfig": None if request.reasoning is None else _thinking(request.reasoning, losses),
    }
    if request.output is not None:
        config |= _output(request.output, losses)
    return {name: value for name, value in config.items() if value is not None}


def _output(output: OutputFormat, losses: list[Loss]) -> dict[str, Any]:
    if output.name != "output" or output.description is not None or output.strict is not None:
        losses.append(Loss("output", "a schema has no name, description or strictness here; left out"))
    schema = None if output.schema is None else msgspec.Raw(output.schema)
    return {"responseMimeType": "application/json", "responseJsonSchema": schema}


def _thinking(reasoning: Reasoning, losses: list[Loss]) -> dict[str, Any]:
    budget = reasoning.budget
    effort = reasoning.effort
    if reasoning.enabled is False or effort == "none":
        budget = 0
    elif reasoning.enabled and budget is None and effort is None:
        budget = -1
    if effort == "max":
        losses.append(Loss("reasoning.effort", "the highest level here is XHIGH"))
    thinking = {
        "includeThoughts": reasoning.shown,
        "thinkingBudget": budget,
        "thinkingLevel": None if effort is None else _LEVELS.get(effort),
    }
    return {name: value for name, value in thinking.items() if value is not None}

"""`additionalModelRequestFields`: what a model understands beyond the common members, in the words of its maker.

Read in the spellings of Nova (`inferenceConfig.topK`, `reasoningConfig`), Claude (`top_k`, `thinking`,
`reasoning_config`, `tool_choice`) and the OpenAI API (`reasoning_effort`, `seed`, the penalties, `user`), which is also
what vLLM calls them. Other members are kept by their names, since an engine may know them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import msgspec

from polarproxy.model import Loss
from polarproxy.wire.neutral.request import Effort, Reasoning, Request

if TYPE_CHECKING:
    from polarproxy.wire.bedrock.reading import Reader

WHERE = "additionalModelRequestFields"
_EFFORTS: dict[str, Effort] = {effort: effort for effort in get_args(Effort)}
_ENABLED = {"enabled": True, "adaptive": True, "auto": True, "disabled": False}


class _Thinking(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str | None = None
    budget_tokens: int | None = None
    effort: str | None = msgspec.field(default=None, name="maxReasoningEffort")


class _Inference(msgspec.Struct, frozen=True, omit_defaults=True):
    top_k: int | None = msgspec.field(default=None, name="topK")
    reasoning: _Thinking | None = msgspec.field(default=None, name="reasoningConfig")


class _Output(msgspec.Struct, frozen=True, omit_defaults=True):
    effort: str | None = None


class _Choice(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str | None = None
    disable_parallel_tool_use: bool | None = None


class ModelFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """The members that are understood."""

    top_k: int | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    parallel_tool_calls: bool | None = None
    user: str | None = None
    reasoning_effort: str | None = None
    thinking: str | _Thinking | None = None
    claude_reasoning: str | _Thinking | None = msgspec.field(default=None, name="reasoning_config")
    nova_reasoning: str | _Thinking | None = msgspec.field(default=None, name="reasoningConfig")
    claude_output: _Output | None = msgspec.field(default=None, name="output_config")
    claude_choice: _Choice | None = msgspec.field(default=None, name="tool_choice")
    nova: _Inference | None = msgspec.field(default=None, name="inferenceConfig")

    def highest_k(self) -> int | None:
        """`top_k`, however it is spelled."""
        return self.top_k if self.top_k is not None or self.nova is None else self.nova.top_k

    def parallel(self) -> bool | None:
        """Whether several calls may be made at once. None: not said."""
        if self.parallel_tool_calls is not None or self.claude_choice is None:
            return self.parallel_tool_calls
        disabled = self.claude_choice.disable_parallel_tool_use
        return None if disabled is None else not disabled

    def forbids_tools(self) -> bool:
        """Claude's own `tool_choice` of type `none`."""
        return self.claude_choice is not None and self.claude_choice.type == "none"


def read_fields(reader: Reader, raw: msgspec.Raw) -> tuple[ModelFields, dict[str, bytes]]:
    """The members that are understood, and the JSON of the others by name."""
    return reader.split(raw, ModelFields, WHERE)


def read_reasoning(reader: Reader, fields: ModelFields, effort: str | None) -> Reasoning | None:
    """How the model is to think; `effort` is that of `outputConfig`, and goes first. None: nothing was said."""
    nova = fields.nova.reasoning if fields.nova else None
    spoken = [said for said in (fields.thinking, fields.claude_reasoning, fields.nova_reasoning, nova) if said]
    configs = [_Thinking(effort=said) if isinstance(said, str) else said for said in spoken]
    output = fields.claude_output.effort if fields.claude_output else None
    efforts = [
        ("outputConfig.effort", effort),
        (f"{WHERE}.reasoning_effort", fields.reasoning_effort),
        (f"{WHERE}.output_config.effort", output),
        *((WHERE, config.effort) for config in configs),
    ]
    found = Reasoning(
        enabled=next((_ENABLED[config.type] for config in configs if config.type in _ENABLED), None),
        effort=next((_EFFORTS[word] for _, word in efforts if word in _EFFORTS), None),
        budget=next((config.budget_tokens for config in configs if config.budget_tokens is not None), None),
    )
    for where, word in efforts:
        if word is not None and word not in _EFFORTS:
            reader.lose(where, f"unknown effort of reasoning {word!r}; left out")
    for config in configs:
        if config.type is not None and config.type not in _ENABLED:
            reader.lose(WHERE, f"unknown type of reasoning {config.type!r}; left out")
    return None if found == Reasoning() else found


def write_fields(request: Request, losses: list[Loss]) -> dict[str, msgspec.Raw]:
    """What has no common member, by the names that vLLM and Claude use, with `request.extra`; may be empty."""
    fields = ModelFields(
        top_k=request.top_k,
        seed=request.seed,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        parallel_tool_calls=request.parallel_tool_calls,
        user=request.user,
        thinking=_write_thinking(request.reasoning),
    )
    members = msgspec.json.decode(msgspec.json.encode(fields), type=dict[str, msgspec.Raw])
    for name, value in request.extra.items():
        if name in ModelFields.__struct_encode_fields__:
            losses.append(Loss(f"extra.{name}", "means something else in this API; left out"))
        else:
            members[name] = msgspec.Raw(value)
    return members


def _write_thinking(reasoning: Reasoning | None) -> _Thinking | None:
    if reasoning is None or (reasoning.enabled is None and reasoning.budget is None):
        return None
    words = {None: None, True: "enabled", False: "disabled"}
    return _Thinking(words[reasoning.enabled], reasoning.budget)

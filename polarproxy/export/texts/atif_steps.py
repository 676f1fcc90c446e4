"""The steps of one agent: what each of its requests adds to the one before, and what the model said.

A request that goes on from the history so far adds its new messages. One that does not (a compaction, an edit, a second
answer to the same question) is told whole: messages that stand in the steps already are copied context.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from polarproxy.export.texts.atif_types import (
    Content,
    ContentPart,
    Metrics,
    Observation,
    Result,
    Source,
    Step,
    ToolCall,
    image_type,
)
from polarproxy.export.texts.chat import one_line
from polarproxy.wire.neutral.arguments import to_object
from polarproxy.wire.neutral.meaning import Meanings, reasoning_text, tool_uses
from polarproxy.wire.neutral.request import Media, Message, Text, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polarproxy.trajectory.branches import Turn
    from polarproxy.wire.neutral.request import Part, Request


class Steps:
    """Grows by one call at a time, in order of arrival."""

    def __init__(self, *, tokens: bool) -> None:
        self._tokens = tokens
        self.steps: list[Step] = []
        self.of_call: dict[str, Step] = {}
        """The step of each call."""
        self.shown_otherwise = 0
        """Images, sounds and documents that the format has no place for; a text stands for each."""
        self._history: list[bytes] = []
        """Digests of the conversation so far, without what the system says: that changes for no reason."""
        self._seen: set[bytes] = set()

    def add(self, turn: Turn, request: Request, reply: Message) -> None:
        """One call and the reply to it."""
        messages = list(request.messages)
        said, own = _digests(messages), len(self._history)
        goes_on = own > 0 and [digest for digest in said if digest][:own] == self._history
        left = own if goes_on else 0
        for message, digest in zip(messages, said, strict=True):
            if left:
                left -= bool(digest)
            else:
                self._told(message, copied=not goes_on and _alone(message) in self._seen)
        self._agent(turn, request, reply)
        self._history = [digest for digest in _digests([*messages, reply]) if digest]

    def _told(self, message: Message, *, copied: bool) -> None:
        """A message of a request."""
        self._seen.add(_alone(message))
        mark = True if copied else None
        match message.role:
            case "tool":
                for part in message.parts:
                    if isinstance(part, ToolResult):
                        self._result(part)
            case "assistant":
                self._append(
                    "agent",
                    self._content(message.parts),
                    reasoning_content=reasoning_text(message.parts) or None,
                    tool_calls=self._calls(message),
                    is_copied_context=mark,
                    # A step of no call of the model has no reasoning.
                    llm_call_count=None if copied or reasoning_text(message.parts) else 0,
                )
            case "user":
                self._append("user", self._content(message.parts), is_copied_context=mark)
            case _:
                self._append("system", self._content(message.parts), is_copied_context=mark)

    def _agent(self, turn: Turn, request: Request, reply: Message) -> None:
        call = turn.node.captured.call
        self._seen.add(_alone(reply))
        effort = None if request.reasoning is None else request.reasoning.effort
        self._append(
            "agent",
            self._content(reply.parts),
            timestamp=call.arrived_at.isoformat(),
            model_name=call.served_model,
            reasoning_effort=effort,
            reasoning_content=reasoning_text(reply.parts) or None,
            tool_calls=self._calls(reply),
            metrics=_metrics(turn, tokens=self._tokens),
            llm_call_count=1,
            extra={"call_id": call.call_id, "choice": turn.node.completion.index, "trained": turn.trained},
        )
        self.of_call.setdefault(call.call_id, self.steps[-1])

    def _append(self, source: str, message: Content, **fields: object) -> None:
        value = {"step_id": len(self.steps) + 1, "source": source, "message": message, **fields}
        self.steps.append(Step(**value))  # type: ignore[arg-type]

    def _calls(self, message: Message) -> list[ToolCall] | None:
        uses = tool_uses(message.parts)
        number = len(self.steps) + 1
        made = [
            ToolCall(use.id or f"call_{number}_{index}", use.name, one_line(to_object(use.arguments)[0]))
            for index, use in enumerate(uses)
        ]
        return made or None

    def _result(self, result: ToolResult) -> None:
        """What a tool answered stands with the latest step that called it; an id that no call has is left out."""
        step = next((step for step in reversed(self.steps) if step.source == "agent"), None)
        if step is None:
            self._append("user", self._content(result.content))
            return
        if step.observation is None:
            step.observation = Observation([])
        results = step.observation.results
        answered = {one.source_call_id for one in results}
        calls = step.tool_calls or []
        own = [call.tool_call_id for call in calls if call.tool_call_id == result.id]
        named = [call.tool_call_id for call in calls if not result.id and result.name in (None, call.function_name)]
        free = [one for one in (*own, *named) if one not in answered]
        results.append(Result(free[0] if free else None, self._content(result.content)))

    def _content(self, parts: Iterable[Part]) -> Content:
        """Text, or parts where there are images. Reasoning and tool calls stand elsewhere."""
        shown: list[ContentPart] = []
        for part in parts:
            if isinstance(part, Text):
                shown.append(ContentPart("text", part.text))
            elif isinstance(part, Media):
                kind = image_type(part.mime, part.url)
                if kind is not None:
                    shown.append(ContentPart("image", source=Source(kind, part.url)))
                else:
                    self.shown_otherwise += 1
                    shown.append(ContentPart("text", f"[{part.mime}]"))
        if any(part.type == "image" for part in shown):
            return shown
        return "\n".join(part.text or "" for part in shown)


def _digests(messages: Sequence[Message]) -> list[bytes]:
    """Of each message, in its conversation; empty for what the system says."""
    meanings = Meanings()
    found: list[bytes] = []
    for message in messages:
        said = meanings.message(message)
        quiet = message.role in ("system", "developer")
        found.append(b"" if quiet else hashlib.blake2b(said, digest_size=16).digest())
    return found


def _alone(message: Message) -> bytes:
    """A message by what it says, wherever it stands."""
    return hashlib.blake2b(Meanings().message(message), digest_size=16).digest()


def _metrics(turn: Turn, *, tokens: bool) -> Metrics:
    node, call = turn.node, turn.node.captured.call
    completion = node.completion
    logprobs = completion.logprobs
    whole = (
        logprobs is not None and len(logprobs) == len(completion.token_ids) and bool(np.isfinite(logprobs.array).all())
    )
    finish = None if completion.finish_reason is None else completion.finish_reason.value
    return Metrics(
        prompt_tokens=len(node.prompt),
        completion_tokens=len(completion.token_ids),
        cached_tokens=None if call.usage is None else call.usage.cached_tokens,
        prompt_token_ids=list(node.prompt) if tokens else None,
        completion_token_ids=list(completion.token_ids) if tokens else None,
        logprobs=logprobs.array.tolist() if tokens and whole and logprobs is not None else None,
        extra={
            "finish_reason": finish,
            "policy_version": call.policy_version_min,
            "logprobs_mode": call.sampling.logprobs_mode.value,
            "temperature": call.sampling.temperature,
        },
    )

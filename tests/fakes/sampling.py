"""What a request's own limits do to a scripted reply: `max_tokens`, stop strings and stop tokens, as vLLM applies them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.fakes.script import Delta, Reply, Step


def limited(reply: Reply, max_tokens: int | None) -> Reply:
    """Cut to whole steps of at most `max_tokens` tokens; finish_reason `length` when anything was left out."""
    if max_tokens is None or len(reply.tokens) <= max_tokens:
        return reply
    kept, total = list[Step](), 0
    for step in reply.steps:
        total += len(step.tokens)
        if total > max_tokens:
            break
        kept.append(step)
    return replace(reply, steps=tuple(kept), finish_reason="length", stop_reason=None)


def stopped_at_token(reply: Reply, stop_ids: Sequence[int]) -> Reply:
    """End with the first of these tokens, which keeps its id and logprob and shows no text."""
    for number, step in enumerate(reply.steps):
        if step.tokens[-1].id in stop_ids:
            steps = (*reply.steps[:number], replace(step, delta=Delta()))
            return replace(reply, steps=steps, finish_reason="stop", stop_reason=step.tokens[-1].id)
    return reply


@dataclass
class _Shown:
    """Text on its way to the client, character by character with its kind: the engine holds back what a stop string
    might still take, and the reasoning parser what it is given between the end marker's token and its text."""

    waiting: list[tuple[str, str]] = field(default_factory=list)
    released: list[tuple[str, str]] = field(default_factory=list)

    def release(self, keep: int) -> Delta:
        cut = max(len(self.waiting) - keep, 0)
        self.released += self.waiting[:cut]
        del self.waiting[:cut]
        if any(kind == "close" for _, kind in self.waiting):
            return Delta()
        ready, self.released = self.released, []
        text = {kind: "".join(char for char, of in ready if of == kind) or None for kind in ("content", "reasoning")}
        return Delta(text["content"], text["reasoning"])


def stopped_at_text(reply: Reply, stops: Sequence[str]) -> Reply:
    """End with the token that completes a stop string; its text is cut before that string.

    A reply with tool calls, or that already ended by a stop, is left as it is.
    """
    if not stops or reply.stop_reason is not None or any(step.delta.tools for step in reply.steps):
        return reply
    hold = max(map(len, stops)) - 1
    steps, text, shown = list[Step](), "", _Shown()
    for step in reply.steps:
        shown.waiting += _characters(step)
        text += "".join(token.text for token in step.tokens)
        found = [(text.index(stop), stop) for stop in stops if stop in text]
        if found:
            at, stop = min(found)
            steps.append(replace(step, delta=shown.release(len(text) - at)))
            return replace(reply, steps=tuple(steps), finish_reason="stop", stop_reason=stop)
        steps.append(replace(step, delta=shown.release(hold)))
    steps[-1] = replace(steps[-1], delta=_joined(steps[-1].delta, shown.release(0)))
    return replace(reply, steps=tuple(steps))


def _characters(step: Step) -> list[tuple[str, str]]:
    """All text of a step, each character with the kind of delta it belongs to; markers belong to none."""
    kinds = {step.delta.reasoning: "reasoning", step.delta.content: "content", "</think>": "close"}
    return [(char, kinds.get(token.text, "")) for token in step.tokens for char in token.text]


def _joined(first: Delta, second: Delta) -> Delta:
    content = (first.content or "") + (second.content or "")
    reasoning = (first.reasoning or "") + (second.reasoning or "")
    return Delta(content or None, reasoning or None)

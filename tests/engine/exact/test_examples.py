"""Real ways in which a history that is rendered again is not what was sampled.

Each breaks the template's prompt, and none the exact one. Qwen3's own tokenizer and template.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from polarproxy.engine.exact.prompt import Exact, Recorded
from polarproxy.engine.exact.template import TemplateFacts
from polarproxy.model import FinishReason, TokenIds
from tests.engine.exact.proxying import Proxy
from tests.fakes.rendering.renderer import probed, render

if TYPE_CHECKING:
    from tests.fakes.rendering.renderer import Renderer

Json = dict[str, Any]

ASK: Json = {"role": "user", "content": "Where is it?"}
NEXT: Json = {"role": "user", "content": "And now?"}
RESULT: Json = {"role": "tool", "tool_call_id": "c", "content": "4 degrees"}
AFTER_TEXT = "\n<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\n"
AFTER_CALL = "\n<|im_start|>user\n<tool_response>\n4 degrees\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
END = "<|im_end|>"


def called(arguments: str) -> Json:
    function = {"name": "look", "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def markup(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "look", "arguments": {arguments}}}\n</tool_call>'


@dataclass(frozen=True)
class Example:
    """What was sampled, in pieces that are tokenized one by one or given as ids, and how it comes back."""

    sampled: tuple[str | list[int], ...]
    back: Json
    reply: Json | None = None
    """What the harness was told. None: just what comes back."""
    finish: FinishReason = FinishReason.STOP
    members: Json = field(default_factory=dict)


def text(content: str, **members: Any) -> Json:
    return {"role": "assistant", "content": content} | members


THOUGHT = "<think>\nHe asks.\n</think>\n\nThere."
SPACED = '{"unit": "C", "city": "Paris"}'
EXAMPLES = {
    "thinking that the template strips": Example(
        (THOUGHT, END), text("\n\nThere.", reasoning="\nHe asks.\n"), text("\n\nThere.", reasoning="\nHe asks.\n")
    ),
    "thinking that the harness drops": Example(
        (THOUGHT, END), text("There."), text("\n\nThere.", reasoning="\nHe asks.\n")
    ),
    "thinking that comes back in the text": Example((THOUGHT, END), text(THOUGHT)),
    "arguments spaced otherwise": Example(
        (markup('{"unit":"C", "city":"Paris"}'), END), called(SPACED), called('{"unit":"C", "city":"Paris"}')
    ),
    "keys in another order": Example((markup(SPACED), END), called('{"city": "Paris", "unit": "C"}'), called(SPACED)),
    "escaped characters": Example((markup('{"city": "M\\u00fcnchen"}'), END), called('{"city": "M\\u00fcnchen"}')),
    "a number with an exponent": Example((markup('{"n": 1e3}'), END), called('{"n": 1000}'), called('{"n": 1e3}')),
    "a number with a zero at its end": Example(
        (markup('{"n": 0.10}'), END), called('{"n": 0.1}'), called('{"n": 0.10}')
    ),
    "a key said twice": Example((markup('{"n": 1, "n": 2}'), END), called('{"n": 2}'), called('{"n": 1, "n": 2}')),
    "other merges": Example((" Max", "im", END), text(" Maxim")),
    "a word in letters, as a constrained choice": Example(("n", "o", END), text("no")),
    "a character cut in its bytes": Example(("Hi ", [11162, 100]), text("Hi \ufffd"), finish=FinishReason.LENGTH),
    "a marker within the text": Example(("So ", "<|im_start|>", "is it.", END), text("So is it.")),
    "an id that stands for nothing": Example(("So ", [151900], "it is.", END), text("So it is.")),
    "an empty block of thought in the prompt only": Example(
        ("There.", END), text("There."), members={"chat_template_kwargs": {"enable_thinking": False}}
    ),
    "a text that was cut": Example(("There a",), text("There a"), finish=FinishReason.LENGTH),
    "white space around a text": Example(("There.\n\n", END), text("There."), text("There.\n\n")),
}


def ids_of(renderer: Renderer, pieces: tuple[str | list[int], ...]) -> TokenIds:
    return TokenIds.of(id for piece in pieces for id in (renderer.encode(piece) if isinstance(piece, str) else piece))


@pytest.mark.parametrize("what", EXAMPLES)
def test_the_next_prompt_goes_on_with_what_was_sampled(what: str, qwen3: Renderer) -> None:
    example = EXAMPLES[what]
    body = {"model": "m", "messages": [ASK]} | example.members
    facts = probed(qwen3, {name: msgspec.Raw(json.dumps(value).encode()) for name, value in example.members.items()})
    assert isinstance(facts, TemplateFacts)
    prompt = render(qwen3, json.dumps(body).encode())
    recorded = Recorded(prompt, ids_of(qwen3, example.sampled), example.finish, None)
    proxy = Proxy(qwen3, facts)
    proxy.answered(body, [example.reply or example.back], [recorded])

    calls = "tool_calls" in example.back
    later = body | {"messages": [ASK, example.back, RESULT if calls else NEXT]}
    kept = recorded.prompt + recorded.completion
    drifted = not render(qwen3, json.dumps(later).encode()).startswith(kept)
    assert drifted == (what != "a text that was cut"), "the template's prompt"

    outcome = proxy.ask(later).outcome
    assert isinstance(outcome, Exact), outcome
    assert outcome.prompt.startswith(kept)
    rest = list(outcome.prompt.cut(len(kept)))
    end = AFTER_CALL if calls else AFTER_TEXT
    if "chat_template_kwargs" in later:
        end += "<think>\n\n</think>\n\n"
    assert rest == qwen3.encode((END if example.finish is FinishReason.LENGTH else "") + end)

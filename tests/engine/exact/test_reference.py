"""docs/reference/exact-prompts.md says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polarproxy.engine.exact.probe import probe
from polarproxy.engine.exact.prompt import Exact, Recorded
from polarproxy.engine.exact.template import TemplateFacts
from polarproxy.model import FallbackReason, FinishReason, TokenIds
from tests.engine.exact.proxying import Proxy
from tests.fakes.rendering.renderer import probed, render

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.fakes.rendering.renderer import Renderer

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "exact-prompts.md").read_text()


def test_every_reason_is_explained() -> None:
    table = PAGE.split("## 4.")[1].split("## 5.")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)
    assert rows == [(reason.value, reason.sentence) for reason in FallbackReason]


def test_the_number_of_renderings_of_the_probe_is_right() -> None:
    stated = re.search(r"(\d+) small conversations", PAGE)
    assert stated is not None
    assert int(stated[1]) == len(probe({}).bodies)


def test_the_worked_example_is_right(qwen3: Renderer) -> None:
    def spelled(ids: Iterable[int]) -> str:
        return "\n    " + " ".join(map(str, ids)) + "\n"

    def called(id: str, arguments: str) -> list[dict[str, Any]]:
        return [{"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}}]

    facts = probed(qwen3, {})
    assert isinstance(facts, TemplateFacts)
    proxy = Proxy(qwen3, facts)
    asked = {"model": "m", "messages": [{"role": "user", "content": "Weather in Paris?"}]}
    prompt = render(qwen3, json.dumps(asked).encode())
    arguments = '{"unit":"C", "city":"Paris"}'
    said = f'<think>\nI look.\n</think>\n\n<tool_call>\n{{"name": "look", "arguments": {arguments}}}\n</tool_call><|im_end|>'
    recorded = Recorded(prompt, TokenIds.of(qwen3.encode(said)), FinishReason.TOOL_CALLS, None)
    reply = {"role": "assistant", "content": "", "reasoning": "I look.", "tool_calls": called("c", arguments)}
    proxy.answered(asked, [reply], [recorded])

    back = {"role": "assistant", "content": None, "tool_calls": called("own", '{"unit":"C","city":"Paris"}')}
    result = {"role": "tool", "tool_call_id": "own", "content": "4 degrees"}
    later = asked | {"messages": [*asked["messages"], back, result]}
    outcome = proxy.ask(later).outcome
    assert isinstance(outcome, Exact)
    interstitial = outcome.prompt.cut(outcome.kept)
    for ids in (prompt, recorded.completion, interstitial):
        assert spelled(ids) in PAGE
    assert "`" + qwen3.decode(list(interstitial)).replace("\n", "⏎") + "`" in PAGE
    template = list(render(qwen3, json.dumps(later).encode()))
    assert template[: len(prompt)] == list(prompt)
    assert qwen3.decode([template[len(prompt)]]) == "<tool_call>"

"""Conversations of a harness with a model through the proxy, drawn at random; what may happen does.

The model samples its turns in odd tokens (cut anywhere, as no tokenizer would cut them), is cut itself, and puts markers of
turns into its text. The harness re-serialises, drops and edits. What is to come out is known from how the families write.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from polarproxy.engine.exact.prompt import Exact, Recorded
from polarproxy.model import FinishReason, TokenIds
from tests.engine.exact.families import Mark, Said
from tests.engine.exact.proxying import Asked, Proxy
from tests.fakes.rendering.renderer import render

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from polarproxy.engine.exact.template import TemplateFacts
    from tests.engine.exact.families import Family, Piece
    from tests.fakes.rendering.renderer import Renderer

Json = dict[str, Any]

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("look", "write_file")
]

_WORDS = ("Paris", " the", " Max", "im", "n", "o", "ü", "🙂", "漢字", "'s", "1e3", "zebra", "maple")
_ATOMS = (*_WORDS, " ", "  ", "\n", "\n\n", "{", '"', "\\", "</", "e\u0301")
_MARKUP = ("<|im_end|>", "<|im_start|>user\n", "<|eot_id|>", "<｜User｜>", "<|end|>", "<tool_call>", "<think>")
plain = st.lists(st.sampled_from(_ATOMS), max_size=6).map("".join)
hostile = st.lists(st.sampled_from(_ATOMS + _MARKUP), max_size=6).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | plain,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(plain, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def spelled(draw: st.DrawFn, value: Any) -> str:
    """A JSON value as a model may spell it."""
    comma, colon = draw(st.sampled_from([",", ", ", " , "])), draw(st.sampled_from([":", ": "]))
    return json.dumps(value, separators=(comma, colon), ensure_ascii=draw(st.booleans()))


@dataclass
class Simulation:
    """One session."""

    data: st.DataObject
    family: Family
    renderer: Renderer
    facts: TemplateFacts
    seen: Counter[str]
    messages: list[Json] = field(default_factory=list)
    """The conversation as the harness has it."""
    known: dict[int, Recorded] = field(default_factory=dict)
    """The recorded turns that are still in it, by their place."""
    proxy: Proxy = field(init=False)
    _calls: int = 0

    def __post_init__(self) -> None:
        self.proxy = Proxy(self.renderer, self.facts)

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        return self.data.draw(strategy)

    def chance(self, of: int) -> bool:
        return bool(self.draw(st.integers(0, of - 1)) == of - 1)

    def run(self) -> None:
        """A few turns."""
        if self.chance(2):
            self.messages.append({"role": "system", "content": self.draw(plain)})
        self.messages.append({"role": "user", "content": self.draw(hostile)})
        for _ in range(self.draw(st.integers(3, 5))):
            body = {"model": "m", "messages": [self._written(each) for each in self.messages]}
            body |= {"tools": TOOLS} if self.family.calls else {}
            asked = self.proxy.ask(body)
            self._check(asked, body)
            outcome = asked.outcome
            prompt = outcome.prompt if isinstance(outcome, Exact) else render(self.renderer, json.dumps(body).encode())
            self._answer(body, prompt)
            if self.chance(3):
                self._edit()

    def _check(self, asked: Asked, body: Json) -> None:
        """Never a wrong prompt: the recorded tokens, then just what the family's format puts after such a turn."""
        expected = max(self.known, default=None)
        assert asked.turn == expected, "the longest history that was recorded is continued, and no other"
        if not isinstance(asked.outcome, Exact):
            self.seen["first" if asked.outcome is None else asked.outcome.reason.value] += 1
            called = expected is not None and "tool_calls" in body["messages"][expected]
            self.seen["not exact after calls"] += called
            return
        self._count(body, expected)
        assert expected is not None
        recorded = self.known[expected]
        kept = recorded.prompt + recorded.completion
        assert asked.outcome.prompt.startswith(kept)
        assert asked.outcome.kept == len(kept)
        said, names = body["messages"][expected], self._names()
        close = self.family.closed(called=bool(said.get("tool_calls")))
        pieces: list[Piece] = self.family.follows(body["messages"][expected + 1 :], names)
        if self._ids([close]) != list(recorded.completion)[-1:]:
            pieces = [close, *pieces]
        assert list(asked.outcome.prompt.cut(len(kept))) == self._ids(pieces)
        whole = render(self.renderer, json.dumps(body).encode())
        assert self.renderer.decode(list(whole)).endswith(self.renderer.decode(self._ids(pieces)))

    def _count(self, body: Json, turn: int | None) -> None:
        assert turn is not None
        recorded, rest = self.known[turn], body["messages"][turn + 1 :]
        ids = list(recorded.completion)
        kinds = {
            "exact": True,
            "after calls": "tool_calls" in body["messages"][turn],
            "after a cut": recorded.finish_reason is FinishReason.LENGTH,
            "after odd tokens": self.renderer.encode(self.renderer.decode(ids)) != ids,
            "over turns that are not recorded": any(each["role"] == "assistant" for each in rest),
            "over a system message": any(each["role"] == "system" for each in rest),
        }
        self.seen.update(kind for kind, is_it in kinds.items() if is_it)

    def _names(self) -> dict[str, str]:
        calls = [call for each in self.messages for call in each.get("tool_calls", ())]
        return {self._id(call["id"]): call["function"]["name"] for call in calls}

    def _ids(self, pieces: Sequence[Piece]) -> list[int]:
        """Tokens of what a template writes: marks and texts, or one text where the tokenizer knows marks in it."""
        ids: list[int] = []
        for piece in pieces:
            ids += self.renderer.encode(piece.text) if isinstance(piece, Mark) else self.renderer.plain(piece)
        return ids

    def _answer(self, body: Json, prompt: TokenIds) -> None:
        """The model samples a turn, which is recorded and comes back."""
        said = self._meant()
        ids = self._odd(self.family.sampled(said))
        message: Json = {"role": "assistant", "content": said.text, "reasoning": said.reasoning}
        finish = FinishReason.STOP
        if said.calls:
            message["tool_calls"] = self._told(said.calls)
            finish = FinishReason.TOOL_CALLS
        elif self.chance(4):
            ids = [*ids[:-1], *self._ids([self.family.stray]), ids[-1]]
        elif len(ids) > 1 and self.chance(2):
            ids, finish = ids[: self.draw(st.integers(1, len(ids) - 1))], FinishReason.LENGTH
            message["content"], message["reasoning"] = self.family.parsed(self.renderer.decode(ids))
        recorded = Recorded(prompt, TokenIds.of(ids), finish, None)
        self.proxy.answered(body, [message], [recorded])
        self.known[len(self.messages)] = recorded
        self.messages.append({name: value for name, value in message.items() if value or name in ("role", "content")})
        self._go_on(self.messages[-1].get("tool_calls", ()))

    def _meant(self) -> Said:
        limit = 1 if self.family.name == "gptoss" else 2
        objects = st.dictionaries(plain, values, max_size=2)
        calls = tuple(
            (self.draw(st.sampled_from(["look", "write_file"])), self.draw(spelled(self.draw(objects))))
            for _ in range(self.draw(st.integers(1, limit)) if self.family.calls and self.chance(2) else 0)
        )
        reasoning = self.draw(plain) if self.family.name in ("qwen3", "gptoss") else ""
        return Said(self.draw(plain), reasoning, calls)

    def _told(self, calls: Sequence[tuple[str, str]]) -> list[Json]:
        told = []
        for name, arguments in calls:
            function = {"name": name, "arguments": arguments}
            told.append({"id": f"chatcmpl-tool-{self._calls}", "type": "function", "function": function})
            self._calls += 1
        return told

    def _go_on(self, calls: Sequence[Json]) -> None:
        """The harness answers: with results, with a question, or with both."""
        for call in calls:
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": self.draw(hostile)})
        if self.family.name != "deepseek_v3" and self.chance(4):
            self.messages.append({"role": "system", "content": self.draw(plain)})
        if not calls or self.chance(4):
            self.messages.append({"role": "user", "content": self.draw(hostile)})

    def _odd(self, pieces: Sequence[Piece]) -> list[int]:
        """Tokens that say these pieces; text is cut where no tokenizer cuts it."""
        ids: list[int] = []
        for piece in pieces:
            if isinstance(piece, Mark):
                ids += self.renderer.encode(piece.text)
                continue
            cuts = sorted(self.draw(st.lists(st.integers(0, len(piece)), max_size=3)))
            for start, stop in zip([0, *cuts], [*cuts, len(piece)], strict=True):
                ids += self.renderer.plain(piece[start:stop])
        return ids

    def _edit(self) -> None:
        """The harness changes what was said: from there on nothing is as it was recorded."""
        place = self.draw(st.integers(max(0, len(self.messages) - 4), len(self.messages) - 1))
        message = self.messages[place]
        self.messages[place] = message | {"content": f"{message['content']}!"}
        self.known = {each: recorded for each, recorded in self.known.items() if each < place}

    def _id(self, id: str) -> str:
        return f"own-{id}"

    def _written(self, message: Json) -> Json:
        """A message as a harness sends it this time. Reasoning that it dropped once does not come back."""
        content = message["content"]
        if message["role"] == "assistant" and (self.family.name == "gptoss" or self.chance(2)):
            message.pop("reasoning", None)
        written = dict(message)
        if message["role"] == "assistant":
            written["content"] = self.draw(st.sampled_from([content, content.strip()])) or self.draw(
                st.sampled_from(["", None]) if message.get("tool_calls") else st.just("")
            )
            if "tool_calls" in message:
                written["tool_calls"] = [self._respelled(call) for call in message["tool_calls"]]
        elif content and self.chance(3):
            written["content"] = [{"type": "text", "text": content, "cache_control": {"type": "ephemeral"}}]
        if "tool_call_id" in message:
            written["tool_call_id"] = self._id(message["tool_call_id"])
        return dict(reversed(written.items())) if self.chance(2) else written

    def _respelled(self, call: Json) -> Json:
        value = json.loads(call["function"]["arguments"])
        written = self.draw(st.just(call["function"]["arguments"]) | spelled(value))
        return call | {"id": self._id(call["id"]), "function": call["function"] | {"arguments": written}}

"""Write a reply down as a person would (text, reasoning, tool calls) and get the steps an engine would take."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from tests.fakes.script import Delta, Reply, Step, Token, ToolDelta
from tests.fakes.toy_tokenizer import assistant_pieces, encode, token_texts


@dataclass(frozen=True)
class Tool:
    """A tool call the model makes; `arguments` is the raw JSON text that it samples."""

    name: str
    arguments: str


def spread_logprob(position: int) -> float:
    """A logprob that no other of the first 1,000 positions has, exact in float32."""
    return -(1 + position % 1000) / 1024


def compose(
    content: str | None = None,
    *,
    reasoning: str | None = None,
    tools: Sequence[Tool] = (),
    logprob: Callable[[int], float | None] = spread_logprob,
    ended: bool = True,
) -> Reply:
    """A reply of one token per step in the toy tokenizer; `ended` False leaves out the end token, for `length`."""
    pieces = assistant_pieces(reasoning, content, [(tool.name, tool.arguments) for tool in tools])
    tools_left, steps, positions = iter(enumerate(tools)), list[Step](), count()
    index, tool = -1, Tool("", "")
    for part, text in pieces if ended else pieces[:-1]:
        if part == "name":
            index, tool = next(tools_left)
        steps += _steps(part, text, ToolDelta(index, name=tool.name), positions, logprob)
    return Reply(tuple(steps), finish_reason="stop" if ended else "length")


def _steps(
    part: str, text: str, opening: ToolDelta, positions: Iterator[int], logprob: Callable[[int], float | None]
) -> Iterator[Step]:
    ids = encode(text)
    texts = token_texts(ids)
    for number, (token_id, shown) in enumerate(zip(ids, texts, strict=True), 1):
        token = Token(token_id, shown, logprob(next(positions)), reasoning=part == "reasoning")
        yield Step((token,), _delta(part, shown, opening, last=number == len(ids)))


def _delta(part: str, shown: str, opening: ToolDelta, *, last: bool) -> Delta:
    if part == "name":
        return Delta(tools=(opening,)) if last else Delta()
    if not shown or part in ("mark", "close"):
        return Delta()
    if part == "arguments":
        return Delta(tools=(ToolDelta(opening.index, arguments=shown),))
    return Delta(reasoning=shown) if part == "reasoning" else Delta(content=shown)

"""The answer to one chat request before it takes a wire form: what was asked, what is sampled, the ids it carries."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.fakes.errors import check_length
from tests.fakes.faults import Faults
from tests.fakes.request import ChatRequest
from tests.fakes.sampling import limited, stopped_at_text, stopped_at_token
from tests.fakes.script import Delta, Reply, Step, ToolDelta, Turn
from tests.fakes.toy_tokenizer import prompt_ids

FINGERPRINT = "vllm-0.32.0-fa4efa4e"


@dataclass(frozen=True)
class Choice:
    index: int
    reply: Reply

    @property
    def reasoning_tokens(self) -> int:
        return sum(token.reasoning for token in self.reply.tokens)

    @property
    def tools_streamed(self) -> bool:
        return any(step.delta.tools for step in self.reply.steps)


@dataclass(frozen=True)
class ChatAnswer:
    """Everything the two wire forms are rendered from; `created` is in Unix seconds."""

    request: ChatRequest
    faults: Faults
    choices: tuple[Choice, ...]
    prompt_token_ids: tuple[int, ...]
    id: str
    created: int
    model: str

    @property
    def cached_tokens(self) -> int:
        return self.choices[0].reply.cached_tokens

    @property
    def hidden(self) -> bool:
        """`include_reasoning: false` hides reasoning, and with it every id and logprob."""
        return not self.request.include_reasoning

    @property
    def with_logprobs(self) -> bool:
        return bool(self.request.logprobs) and not self.hidden and not self.faults.no_logprobs

    @property
    def with_ids(self) -> bool:
        return bool(self.request.return_token_ids) and not self.hidden and not self.faults.no_token_ids

    @property
    def shown_prompt_ids(self) -> tuple[int, ...] | None:
        asked = self.request.return_token_ids and not self.faults.no_prompt_ids
        return self.prompt_token_ids if asked else None

    def tool_id(self, choice: int, tool: int) -> str:
        return f"chatcmpl-tool-{choice:08x}{tool:08x}"


def answer(request: ChatRequest, turn: Turn, *, reply_id: str, created: int, model: str, max_len: int) -> ChatAnswer:
    """Raises `EngineError` when the prompt is longer than the model's context."""
    prompt = turn.replies[0].prompt_token_ids or request.forced_prompt or prompt_ids(request.messages, request.tools)
    check_length(len(prompt), max_len)
    choices = tuple(Choice(i, _sampled(request, turn.reply(i), len(prompt), max_len)) for i in range(request.choices))
    return ChatAnswer(request, turn.faults, choices, tuple(prompt), reply_id, created, model)


def _sampled(request: ChatRequest, reply: Reply, prompt_tokens: int, max_len: int) -> Reply:
    room = max_len - prompt_tokens
    limit = room if request.token_limit is None else min(request.token_limit, room)
    return limited(stopped_at_token(stopped_at_text(reply, request.stops), request.stop_token_ids or ()), limit)


def merged(steps: Sequence[Step]) -> Step:
    """Several engine steps as one: vLLM does this by itself when the client reads more slowly than it samples."""
    tokens = tuple(token for step in steps for token in step.tokens)
    return Step(tokens, merged_delta([step.delta for step in steps]))


def merged_delta(deltas: Sequence[Delta]) -> Delta:
    content = [delta.content for delta in deltas if delta.content is not None]
    reasoning = [delta.reasoning for delta in deltas if delta.reasoning is not None]
    tools = list[ToolDelta]()
    for tool in (tool for delta in deltas for tool in delta.tools):
        last = tools[-1] if tools else None
        if last and last.index == tool.index and last.arguments is not None and tool.arguments is not None:
            tools[-1] = ToolDelta(tool.index, arguments=last.arguments + tool.arguments)
        else:
            tools.append(tool)
    return Delta("".join(content) if content else None, "".join(reasoning) if reasoning else None, tuple(tools))

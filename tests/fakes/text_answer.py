"""The answer to one request to `/v1/completions` before it takes a wire form."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.fakes.errors import check_length
from tests.fakes.faults import Faults
from tests.fakes.request import TextRequest
from tests.fakes.sampling import limited, stopped_at_token
from tests.fakes.script import Delta, PromptToken, Reply, Token, Turn
from tests.fakes.toy_tokenizer import decode, encode, token_texts

SPECIAL = frozenset({"<|im_start|>", "<|im_end|>"})
"""Tokens that have no place in a text."""


@dataclass(frozen=True)
class Prompt:
    text: str
    tokens: tuple[PromptToken, ...]

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]


@dataclass(frozen=True)
class TextChoice:
    """`reply` shows its text as the content of its deltas."""

    index: int
    prompt: Prompt
    reply: Reply


@dataclass(frozen=True)
class TextAnswer:
    """Everything the two wire forms are rendered from; `created` is in Unix seconds."""

    request: TextRequest
    faults: Faults
    prompts: tuple[Prompt, ...]
    choices: tuple[TextChoice, ...]
    id: str
    created: int
    model: str

    @property
    def with_ids(self) -> bool:
        return bool(self.request.return_token_ids) and not self.faults.no_token_ids

    @property
    def with_logprobs(self) -> bool:
        return self.request.logprobs is not None and not self.faults.no_logprobs

    @property
    def sampled_tokens(self) -> int:
        return sum(len(choice.reply.tokens) for choice in self.choices)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(prompt.tokens) for prompt in self.prompts)

    def shown_prompt_ids(self, choice: TextChoice, *, anyway: bool = False) -> list[int] | None:
        shown = (self.request.return_token_ids or anyway) and not self.faults.no_prompt_ids
        return choice.prompt.ids if shown else None

    def echoed(self, choice: TextChoice) -> str:
        """What stands in front of a choice's text: nothing when ids are asked for, whatever `echo` says."""
        return choice.prompt.text if self.request.echo and not self.request.return_token_ids else ""


def text_answer(
    request: TextRequest, turn: Turn, *, reply_id: str, created: int, model: str, max_len: int
) -> TextAnswer:
    """Choice c of prompt p is reply p·n + c of the turn. Raises `EngineError` when a prompt is longer than the context."""
    n = request.n
    prompts = tuple(_prompt(asked, turn.reply(place * n)) for place, asked in enumerate(request.prompts))
    for prompt in prompts:
        check_length(len(prompt.tokens), max_len)
    choices = tuple(
        TextChoice(index, prompts[index // n], _sampled(request, turn.reply(index), prompts[index // n], max_len))
        for index in range(len(prompts) * n)
    )
    return TextAnswer(request, turn.faults, prompts, choices, reply_id, created, model)


def _prompt(asked: str | list[int], reply: Reply) -> Prompt:
    tokens = reply.prompt or _toy_prompt(encode(asked) if isinstance(asked, str) else asked)
    if isinstance(asked, str):
        return Prompt(asked, tokens)
    return Prompt("".join(token.text for token in tokens) if reply.prompt else decode(asked), tokens)


def _toy_prompt(ids: list[int]) -> tuple[PromptToken, ...]:
    texts = token_texts(ids)
    return tuple(
        PromptToken(token_id, text, -(1 + place % 1000) / 512 if place else None)
        for place, (token_id, text) in enumerate(zip(ids, texts, strict=True))
    )


def _sampled(request: TextRequest, reply: Reply, prompt: Prompt, max_len: int) -> Reply:
    steps = tuple(replace(step, delta=Delta("".join(map(_shown, step.tokens)))) for step in reply.steps)
    ended = stopped_at_token(replace(reply, steps=steps), request.stop_token_ids or ())
    limit = 1 if request.only_echo else min(request.token_limit, max_len - len(prompt.tokens))
    return _stopped_at_text(limited(ended, limit), request.stops)


def _shown(token: Token) -> str:
    return "" if token.text in SPECIAL else token.text


def _stopped_at_text(reply: Reply, stops: Sequence[str]) -> Reply:
    """End with the token that completes a stop string. As much text as one could still take is always held back."""
    if not stops or reply.stop_reason is not None:
        return reply
    hold, text, shown, steps = max(map(len, stops)) - 1, "", 0, []
    for number, step in enumerate(reply.steps, 1):
        text += step.delta.content or ""
        found = [(text.index(stop), stop) for stop in stops if stop in text]
        end = len(text) if number == len(reply.steps) else max(shown, len(text) - hold)
        end, stop = min(found) if found else (end, None)
        steps.append(replace(step, delta=Delta(text[shown:end])))
        shown = end
        if stop is not None:
            return replace(reply, steps=tuple(steps), finish_reason="stop", stop_reason=stop)
    return replace(reply, steps=tuple(steps))


@dataclass(frozen=True)
class Shown:
    """A token as logprobs show it."""

    text: str
    logprob: float | None
    others: tuple[tuple[str, float], ...]

    @property
    def top(self) -> list[tuple[str, float]] | None:
        """The token itself, then the likelier ones. None: it has no value."""
        return None if self.logprob is None else [(self.text, self.logprob), *self.others]


def of_prompt(answer: TextAnswer, choice: TextChoice) -> list[Shown]:
    """What stands in front of the logprobs of the sampled tokens."""
    if not answer.request.echo:
        return []
    return [
        Shown(_spelled(answer, token), token.logprob, tuple((text, value) for _, text, value, _ in token.others))
        for token in choice.prompt.tokens
    ]


def of_sampled(answer: TextAnswer, tokens: Sequence[Token]) -> list[Shown]:
    """Nothing when only the prompt is to be answered."""
    if answer.request.only_echo:
        return []
    return [Shown(_spelled(answer, token), token.logprob, token.others) for token in tokens]


def _spelled(answer: TextAnswer, token: Token | PromptToken) -> str:
    return f"token_id:{token.id}" if answer.request.return_tokens_as_token_ids else token.text


def logprobs(answer: TextAnswer, shown: Sequence[Shown], offset: int = 0) -> dict[str, Any]:
    """Parallel lists; `offset` is where the first token's text begins."""
    offsets = list[int]()
    for entry in shown:
        offsets.append(offset)
        offset += len(entry.text)
    most = 1 + (answer.request.logprobs or 0)
    return {
        "text_offset": offsets,
        "token_logprobs": [entry.logprob for entry in shown],
        "tokens": [entry.text for entry in shown],
        "top_logprobs": [None if entry.top is None else dict(entry.top[:most]) for entry in shown],
    }

"""As `tests.fakes.transcript`, for replies of `/v1/completions`."""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.script import PromptToken, Reply, Step, Token, Turn
from tests.fakes.transcript import chunks


@dataclass
class _Choice:
    prompt: tuple[PromptToken, ...] = ()
    steps: list[Step] = field(default_factory=list)
    finish_reason: str = "stop"
    stop_reason: str | int | None = None
    exact: bool = False
    """The texts are those of the tokens, so that a stop will be found in them again."""

    @property
    def reply(self) -> Reply:
        stop_reason = None if self.exact else self.stop_reason
        return Reply(tuple(self.steps), self.finish_reason, stop_reason, prompt=self.prompt)


def text_turn(stream: bytes, whole: bytes | None = None) -> Turn:
    """What was sampled, from a stream. Where it shows no ids, logprobs or both, each event counts as one token, with an
    id of 0, the text that was shown, or no logprob. `whole` is the same reply in one piece, for the prompt's values."""
    choices = dict[int, _Choice]()
    for chunk in chunks(stream):
        for data in chunk["choices"]:
            choice = choices.setdefault(data["index"], _Choice())
            if data["prompt_token_ids"]:
                choice.prompt = tuple(PromptToken(token_id, "") for token_id in data["prompt_token_ids"])
            choice.steps.append(_step(choice, data))
            if data["finish_reason"]:
                choice.finish_reason, choice.stop_reason = data["finish_reason"], data["stop_reason"]
    for data in json.loads(whole)["choices"] if whole else ():
        choices[data["index"]].prompt = _prompt(data) or choices[data["index"]].prompt
    return Turn(tuple(choice.reply for _, choice in sorted(choices.items())))


def _step(choice: _Choice, data: dict[str, Any]) -> Step:
    entries, ids = data["logprobs"], data["token_ids"]
    if entries is None:
        return Step(tuple(_unknown(ids or [0], data["text"])))
    choice.exact = True
    echoed = len(entries["tokens"]) - len(ids) if ids is not None else 0
    rows = list(zip(entries["tokens"], entries["token_logprobs"], entries["top_logprobs"], strict=True))[echoed:]
    return Step(
        tuple(
            Token(token_id, text, value, others=tuple(top.items())[1:])
            for token_id, (text, value, top) in zip(ids or [0] * len(rows), rows, strict=True)
        )
    )


def _unknown(ids: list[int], text: str) -> list[Token]:
    """The text of a step as that of its first token."""
    return [Token(token_id, "" if place else text, None) for place, token_id in enumerate(ids)]


def _prompt(data: dict[str, Any]) -> tuple[PromptToken, ...]:
    """Empty when the reply shows no values of the prompt."""
    if not (data["prompt_logprobs"] and data["prompt_token_ids"] and data["logprobs"]):
        return ()
    rows = zip(data["prompt_token_ids"], data["logprobs"]["tokens"], data["prompt_logprobs"], strict=False)
    return tuple(_prompt_token(token_id, text, values) for token_id, text, values in rows)


def _prompt_token(token_id: int, text: str, values: dict[str, dict[str, Any]] | None) -> PromptToken:
    if values is None:
        return PromptToken(token_id, text)
    own, *others = (
        (int(key), entry["decoded_token"], entry["logprob"], entry["rank"]) for key, entry in values.items()
    )
    return PromptToken(token_id, text, own[2], own[3], tuple(others))

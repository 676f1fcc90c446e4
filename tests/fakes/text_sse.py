"""An answer of `/v1/completions` as vLLM's server-sent events: one for each step, also when it shows no text."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import msgspec

from tests.fakes.answer import FINGERPRINT, merged
from tests.fakes.chat_sse import DONE
from tests.fakes.script import Step
from tests.fakes.text_answer import TextAnswer, TextChoice, logprobs, of_prompt, of_sampled


def events(answer: TextAnswer) -> Iterator[bytes]:
    for round_ in zip_longest(*(_chunks(answer, choice) for choice in answer.choices)):
        yield from (_event(chunk) for chunk in round_ if chunk)
    if answer.request.include_usage:
        yield _event(_usage_chunk(answer))
    yield DONE


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _head(answer: TextAnswer, choices: list[dict[str, Any]]) -> dict[str, Any]:
    head = {"id": answer.id, "object": "text_completion", "created": answer.created, "model": answer.model}
    return {**head, "choices": choices}


def _chunks(answer: TextAnswer, choice: TextChoice) -> Iterator[dict[str, Any]]:
    size, steps = answer.faults.steps_per_event, choice.reply.steps
    grouped = [merged(steps[at : at + size]) for at in range(0, len(steps), size)]
    sent, offset = 0, 0
    for number, step in enumerate(grouped, 1):
        data = _data(answer, choice, step, sent, offset)
        sent += len(step.tokens)
        if number == len(grouped):
            data |= {"finish_reason": choice.reply.finish_reason, "stop_reason": choice.reply.stop_reason}
        chunk = _head(answer, [data])
        if answer.request.continuous_usage:
            chunk["usage"] = _usage(len(choice.prompt.tokens), sent)
        if number == len(grouped) and not answer.request.include_usage:
            chunk["system_fingerprint"] = FINGERPRINT
        if data["logprobs"] and data["logprobs"]["tokens"]:
            offset = data["logprobs"]["text_offset"][-1] + len(data["logprobs"]["tokens"][-1])
        yield chunk


def _data(answer: TextAnswer, choice: TextChoice, step: Step, sent: int, offset: int) -> dict[str, Any]:
    """`sent` is the number of tokens in earlier chunks."""
    first, faults, request = sent == 0, answer.faults, answer.request
    shown = of_sampled(answer, step.tokens[max(0, faults.drop_logprobs - sent) :])
    if first:
        shown = of_prompt(answer, choice) + shown
    ids = [token.id for token in step.tokens[max(0, faults.drop_ids - sent) :]]
    said = "" if request.only_echo else step.delta.content or ""
    return {
        "index": choice.index,
        "text": (answer.echoed(choice) if first else "") + said,
        "logprobs": logprobs(answer, shown, offset) if answer.with_logprobs else None,
        "finish_reason": None,
        "stop_reason": None,
        "prompt_token_ids": answer.shown_prompt_ids(choice, anyway=bool(request.echo)) if first else None,
        "token_ids": ids if answer.with_ids else None,
    }


def _usage(prompt: int, completion: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def _usage_chunk(answer: TextAnswer) -> dict[str, Any]:
    usage = _usage(answer.prompt_tokens, answer.sampled_tokens) | {"prompt_tokens_details": {"cached_tokens": 0}}
    return {**_head(answer, []), "usage": usage, "system_fingerprint": FINGERPRINT}

"""An answer of `/v1/completions` as vLLM's one JSON body: key order, nulls and number format included."""

from typing import Any

from tests.fakes.answer import FINGERPRINT
from tests.fakes.chat_json import compact
from tests.fakes.script import PromptToken
from tests.fakes.text_answer import TextAnswer, TextChoice, logprobs, of_prompt, of_sampled


def body(answer: TextAnswer) -> bytes:
    prompt, sampled = answer.prompt_tokens, answer.sampled_tokens
    details = {"cached_tokens": 0, "created_cache_tokens": None, "multimodal_tokens": None}
    return compact(
        {
            "id": answer.id,
            "object": "text_completion",
            "created": answer.created,
            "model": answer.model,
            "choices": [_choice(answer, choice) for choice in answer.choices],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": {
                "prompt_tokens": prompt,
                "total_tokens": prompt + sampled,
                "completion_tokens": sampled,
                "prompt_tokens_details": details,
                "completion_tokens_details": None,
            },
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
    )


def _choice(answer: TextAnswer, choice: TextChoice) -> dict[str, Any]:
    reply, faults, request = choice.reply, answer.faults, answer.request
    said = "" if request.only_echo else "".join(step.delta.content or "" for step in reply.steps)
    shown = of_prompt(answer, choice) + of_sampled(answer, reply.tokens[faults.drop_logprobs :])
    return {
        "index": choice.index,
        "text": answer.echoed(choice) + said,
        "logprobs": logprobs(answer, shown) if answer.with_logprobs else None,
        "finish_reason": reply.finish_reason,
        "stop_reason": reply.stop_reason,
        "token_ids": reply.token_ids[faults.drop_ids :] if answer.with_ids else None,
        "prompt_logprobs": _prompt_logprobs(answer, choice),
        "prompt_token_ids": answer.shown_prompt_ids(choice),
        "routed_experts": None,
    }


def _prompt_logprobs(answer: TextAnswer, choice: TextChoice) -> list[dict[str, Any] | None] | None:
    most = answer.request.shown_prompt_logprobs
    return None if most is None else [_entry(token, most) for token in choice.prompt.tokens]


def _entry(token: PromptToken, most: int) -> dict[str, Any] | None:
    if token.logprob is None:
        return None
    others = [other for other in token.others if other[3] <= most]
    return {
        str(token_id): {"logprob": logprob, "rank": rank, "decoded_token": text}
        for token_id, text, logprob, rank in ((token.id, token.text, token.logprob, token.rank), *others)
    }

"""What vLLM is asked to score, how its answer is read, and which recorded values it can be held against."""

import json
import math

import numpy as np
import pytest

from polarproxy.engine import rescore
from polarproxy.errors import BadReply
from polarproxy.model import LogprobsMode, Sampling, TokenIds

IDS = TokenIds.of([5, 6, 7])
# As vLLM 0.32 answered, without what is not read; the second value is the likeliest token, of which nobody asked.
SCORED = {
    "object": "text_completion",
    "choices": [
        {
            "index": 0,
            "text": "x",
            "logprobs": None,
            "prompt_logprobs": [
                None,
                {"6": {"logprob": -12.5, "rank": 9, "decoded_token": "#"}, "1": {"logprob": -0.5, "rank": 1}},
                {"7": {"logprob": -0.25, "rank": 1, "decoded_token": "$"}},
            ],
        }
    ],
}


def test_each_token_is_scored_after_those_before_it() -> None:
    values = rescore.read(json.dumps(SCORED).encode(), IDS)
    assert math.isnan(values[0])
    np.testing.assert_array_equal(values[1:], np.asarray([-12.5, -0.25], np.float32))


def test_the_request_names_the_tokens_and_samples_one() -> None:
    asked = json.loads(rescore.request("m", IDS))
    assert (asked["prompt"], asked["max_tokens"], asked["prompt_logprobs"]) == ([5, 6, 7], 1, 0)


def test_a_token_without_its_value_has_none() -> None:
    scored = json.loads(json.dumps(SCORED))
    scored["choices"][0]["prompt_logprobs"][2] = {"8": {"logprob": -0.1}}
    assert math.isnan(rescore.read(json.dumps(scored).encode(), IDS)[2])


@pytest.mark.parametrize(
    "reply",
    [b"", b"{}", b'{"choices":[]}', b'{"choices":[{}]}', b'{"choices":[{"prompt_logprobs":[null]}]}', b"\xff", b"[]"],
)
def test_an_answer_without_scores_is_none(reply: bytes) -> None:
    with pytest.raises(BadReply):
        rescore.read(reply, IDS)


RAW, PROCESSED, UNKNOWN = LogprobsMode.RAW, LogprobsMode.PROCESSED, LogprobsMode.UNKNOWN


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.7, top_p=0.5, repetition_penalty=1.2, logprobs_mode=RAW),
        Sampling(temperature=1.0, logprobs_mode=PROCESSED),
        Sampling(temperature=1.0, top_p=1.0, top_k=-1, min_p=0.0, presence_penalty=0.0, logprobs_mode=PROCESSED),
        Sampling(temperature=0.0, top_p=0.5, top_k=20, logprobs_mode=PROCESSED),
        Sampling(temperature=1.0, repetition_penalty=1.0, logprobs_mode=UNKNOWN),
    ],
)
def test_what_the_model_itself_said_can_be_compared(sampling: Sampling) -> None:
    assert rescore.incomparable(sampling) is None


@pytest.mark.parametrize(
    ("sampling", "why"),
    [
        (Sampling(temperature=0.7, logprobs_mode=PROCESSED), "temperature 0.7"),
        (Sampling(logprobs_mode=PROCESSED), "temperature unknown"),
        (Sampling(temperature=1.0, top_p=0.9, logprobs_mode=PROCESSED), "top_p"),
        (Sampling(temperature=1.0, top_k=5, logprobs_mode=UNKNOWN), "top_p, top_k or min_p"),
        (Sampling(temperature=1.0, min_p=0.1, logprobs_mode=PROCESSED), "min_p"),
        (Sampling(temperature=0.0, frequency_penalty=0.5, logprobs_mode=PROCESSED), "penalties"),
        (Sampling(temperature=0.0, repetition_penalty=1.1, logprobs_mode=PROCESSED), "penalties"),
    ],
)
def test_what_was_processed_cannot(sampling: Sampling, why: str) -> None:
    assert why in (rescore.incomparable(sampling) or "")

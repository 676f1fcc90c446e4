"""What an engine is and can do, read from what it answers; what cannot be read is unknown, never a guess."""

import json
from typing import Any

import pytest

from polarproxy.engine.probe import (
    EngineFacts,
    default_sampling,
    logprobs_mode,
    mode_request,
    read_json,
    recognise,
    render_request,
    template_digest,
)
from polarproxy.model import LogprobsMode, Sampling

GARBAGE = [b"", b"not JSON", b"null", b"[]", b"7", b"{}", b"\xff", b'{"data": 7}', b'{"data": []}', b'{"data": [7]}']


def models(**entry: Any) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": "tiny", **entry}]}).encode()


def test_vllm_signs_its_models() -> None:
    assert recognise(models(owned_by="vllm", max_model_len=2048)) == EngineFacts("vllm", "tiny", 2048, models=("tiny",))


def test_llamacpp_signs_its_models() -> None:
    assert recognise(models(owned_by="llamacpp", meta={"n_ctx": 4096})) == EngineFacts(
        "llamacpp", "tiny", 4096, models=("tiny",)
    )


@pytest.mark.parametrize("owner", ["openai", None, 7])
def test_anything_else_is_plain(owner: Any) -> None:
    assert recognise(models(owned_by=owner)) == EngineFacts("plain", "tiny", models=("tiny",))


@pytest.mark.parametrize("body", GARBAGE)
def test_a_listing_that_cannot_be_read_is_of_a_plain_engine(body: bytes) -> None:
    assert recognise(body) == EngineFacts("plain")


def test_a_length_that_is_none_is_unknown() -> None:
    assert recognise(models(owned_by="vllm", max_model_len="long")).max_model_len is None


def test_the_template_has_a_digest() -> None:
    one, same, other = (template_digest(json.dumps({"chat_template": text}).encode()) for text in ("a", "a", "b"))
    assert one == same != other
    assert one is not None
    assert len(one) == 32


@pytest.mark.parametrize("body", [*GARBAGE, b'{"chat_template": null}', b'{"chat_template": 7}'])
def test_a_template_that_is_not_shown_is_unknown(body: bytes) -> None:
    assert template_digest(body) is None


def completion(**top: float) -> bytes:
    return json.dumps({"choices": [{"logprobs": {"top_logprobs": [top]}}]}).encode()


def test_values_that_temperature_does_not_move_are_raw() -> None:
    assert logprobs_mode(completion(a=-0.5, b=-1.5), completion(a=-0.5, b=-1.5)) is LogprobsMode.RAW
    assert logprobs_mode(completion(a=-0.5), completion(a=-0.5004)) is LogprobsMode.RAW


def test_values_that_temperature_moves_are_processed() -> None:
    assert logprobs_mode(completion(a=-0.5, b=-1.5), completion(a=-0.9, b=-1.4)) is LogprobsMode.PROCESSED


def test_only_tokens_of_both_replies_are_compared() -> None:
    assert logprobs_mode(completion(a=-0.5, b=-1.5), completion(a=-0.5, c=-9.0)) is LogprobsMode.RAW
    assert logprobs_mode(completion(a=-0.5), completion(b=-0.5)) is LogprobsMode.UNKNOWN


NO_TOP: list[Any] = [
    {"choices": []},
    {"choices": [{"logprobs": None}]},
    {"choices": [{"logprobs": {"top_logprobs": None}}]},
    {"choices": [{"logprobs": {"top_logprobs": []}}]},
    {"choices": [{"logprobs": {"top_logprobs": [None]}}]},
    {"error": {}},
    [],
]


@pytest.mark.parametrize("reply", NO_TOP, ids=str)
def test_without_values_the_mode_is_unknown(reply: Any) -> None:
    bare = json.dumps(reply).encode()
    assert logprobs_mode(bare, completion(a=-0.5)) is LogprobsMode.UNKNOWN
    assert logprobs_mode(completion(a=-0.5), bare) is LogprobsMode.UNKNOWN


def test_the_questions_say_everything_that_could_differ() -> None:
    asked = json.loads(mode_request("tiny", 2.0))
    assert (asked["model"], asked["temperature"], asked["max_tokens"], asked["logprobs"]) == ("tiny", 2.0, 1, 5)
    assert (asked["top_p"], asked["top_k"], asked["seed"]) == (1.0, -1, 1)
    assert json.loads(render_request("tiny"))["model"] == "tiny"


def test_default_sampling_is_what_the_engine_renders() -> None:
    rendered = {"sampling_params": {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0, "seed": None, "n": 1}}
    expected = Sampling(temperature=0.6, top_p=0.95, top_k=20, min_p=0.0)
    assert default_sampling(json.dumps(rendered).encode()) == expected


@pytest.mark.parametrize(
    "body", [*GARBAGE, b'{"sampling_params": null}', b'{"sampling_params": {"top_k": "x", "top_p": true}}']
)
def test_defaults_that_are_not_shown_are_unknown(body: bytes) -> None:
    assert default_sampling(body) == Sampling()


def test_read_json() -> None:
    assert read_json(b'{"a": [1]}') == {"a": [1]}
    assert read_json(b"{") is None

"""`/v1/completions` of a real llama.cpp server: what its client sees, and the ids and logprobs that are kept."""

import importlib.util
import json
import math
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from polarproxy.engine.llamacpp_completions import plan
from polarproxy.engine.plan import Plan
from polarproxy.rollout.demo import model_path
from polarproxy.rollout.embedded import EmbeddedEngine
from polarproxy.wire.completions.fields import read_request

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="needs xllamacpp: pip install 'polarproxy[demo]'"
)

PROMPT = "<|im_start|>user\nhi"
BODY: dict[str, Any] = {"model": "demo", "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "seed": 1}


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with EmbeddedEngine(model_path()) as running:
        yield running.base_url


def post(url: str, body: bytes) -> bytes:
    request = urllib.request.Request(url, data=body, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        data: bytes = reply.read()
        return data


def asked(engine: str, body: dict[str, Any]) -> tuple[Plan, bytes]:
    """A request by way of the reader, with what its client sees."""
    made = plan(read_request(json.dumps(body).encode()).fields, stream=False)
    view = made.reader.body(post(f"{engine}/v1/completions", made.body))
    follow_up = made.reader.follow_up()
    if follow_up is not None:
        made.reader.answer(post(engine + follow_up.path, follow_up.body))
    return made, view


def without_times(reply: bytes) -> dict[str, Any]:
    """A reply without ids, times and the state of the cache."""
    value: dict[str, Any] = json.loads(reply)
    value["usage"].pop("prompt_tokens_details")
    return {key: part for key, part in value.items() if key not in ("id", "created", "timings")}


@pytest.mark.parametrize("more", [{}, {"logprobs": 2}, {"logprobs": 0}, {"n_probs": 1}, {"echo": True}], ids=str)
def test_the_client_sees_what_the_server_would_have_sent(engine: str, more: dict[str, Any]) -> None:
    body = BODY | more
    _, view = asked(engine, body)
    direct = post(f"{engine}/v1/completions", json.dumps(body).encode())
    shown, expected = without_times(view), without_times(direct)
    values = [each["choices"][0].pop("logprobs") for each in (shown, expected)]
    assert shown == expected
    assert (values[0] is None) == (values[1] is None)
    if values[0] is not None:
        ids = [[entry["id"] for entry in value["content"]] for value in values]
        counts = [[len(entry["top_logprobs"]) for entry in value["content"]] for value in values]
        assert (ids[0], counts[0]) == (ids[1], counts[1])


def test_a_text_and_its_ids_are_the_same_prompt(engine: str) -> None:
    by_text, _ = asked(engine, BODY)
    prompt = by_text.reader.capture.prompt
    assert prompt is not None
    by_ids, _ = asked(engine, BODY | {"prompt": list(prompt)})
    assert by_ids.reader.capture.prompt == prompt
    (first,), (second,) = by_text.reader.capture.completions(), by_ids.reader.capture.completions()
    assert first.token_ids == second.token_ids
    usage = by_text.reader.capture.usage
    assert usage is not None
    assert len(first.token_ids) == usage.completion_tokens
    assert first.logprobs is not None
    assert len(first.logprobs) == len(first.token_ids)
    assert not any(math.isnan(value) or value > 0 for value in first.logprobs)


def test_several_prompts_go_as_they_are(engine: str) -> None:
    body = json.dumps(BODY | {"prompt": ["a", "b"]}).encode()
    made = plan(read_request(body).fields, stream=False)
    made.reader.body(post(f"{engine}/v1/completions", made.body))
    assert made.reader.capture.prompt is None
    assert made.reader.capture.finished() == 2

"""A completion request: what the proxy knows of it, and that the rest stays the bytes that came in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.errors import BadRequest
from polarproxy.model import Caveat, Sampling
from polarproxy.wire.completions.fields import CompletionRequest, read_request

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=3),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values, max_size=3),
    max_leaves=6,
)
NAMES = ["prompt", "n", "stream", "logprobs", "tools", "messages", "max_completion_tokens", "suffix", "best_of", "zz"]


def read(**members: Any) -> CompletionRequest:
    return read_request(json.dumps(members).encode())


@given(st.dictionaries(st.sampled_from(NAMES), JSON))
def test_no_member_is_lost_or_changed(members: dict[str, Any]) -> None:
    request = read(**members)
    texts = {name: json.dumps(value).encode() for name, value in members.items()}
    assert {name: bytes(value) for name, value in request.fields.items()} == texts


def test_what_the_proxy_knows() -> None:
    request = read(
        model="tiny",
        prompt="Once",
        stream=True,
        stream_options={"include_usage": True},
        temperature=0.5,
        top_p=0.9,
        top_k=20,
        min_p=0.1,
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.1,
        max_tokens=7,
        seed=3,
        n=2,
    )
    assert (request.model, request.stream, request.stream_usage, request.caveat) == ("tiny", True, True, None)
    assert request.sampling == Sampling(
        temperature=0.5,
        top_p=0.9,
        top_k=20,
        min_p=0.1,
        presence_penalty=1.0,
        frequency_penalty=-1.0,
        repetition_penalty=1.1,
        max_tokens=7,
        seed=3,
        n=2,
    )
    assert (request.prompts, request.choices, request.tools_digest) == (1, 2, None)


def test_what_is_not_said_is_not_known() -> None:
    request = read()
    assert (request.model, request.stream, request.stream_usage, request.caveat) == (None, False, False, None)
    assert (request.sampling, request.prompts, request.choices) == (Sampling(), 1, 1)


def test_members_of_the_chat_api_mean_nothing() -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}
    request = read(prompt="a", max_tokens=5, max_completion_tokens=6, tools=[{}], messages=[image])
    assert (request.sampling.max_tokens, request.tools_digest, request.caveat) == (5, None, None)
    assert json.loads(bytes(request.fields["max_completion_tokens"])) == 6


@pytest.mark.parametrize(
    ("prompt", "count"),
    [
        ("a", 1),
        (["a"], 1),
        (["a", "b"], 2),
        ([1, 2, 3], 1),
        ([[1, 2, 3]], 1),
        ([[1], [2], [3]], 3),
        ([], 1),
        ([[]], 1),
        ("", 1),
        ("[[1],[2]]", 1),
        (None, 1),
        (7, 1),
        ({"a": 1}, 1),
    ],
    ids=str,
)
def test_prompts_are_counted(prompt: Any, count: int) -> None:
    request = read(prompt=prompt, n=2)
    assert (request.prompts, request.choices) == (count, 2 * count)
    assert request.caveat == (Caveat.SEVERAL_PROMPTS if count > 1 else None)


def test_prompts_are_counted_however_they_are_written() -> None:
    assert read_request(b'{"prompt": [\n\t [1, 2] ,\r\n [3] ] }').prompts == 2
    assert read_request(b'{"prompt": [ 1, 2 ]}').prompts == 1
    assert read_request(b'{"prompt": ["\xff", "b"]}').prompts == 2


def test_beam_search_does_not_sample() -> None:
    assert read(prompt="a", use_beam_search=True).caveat is Caveat.NOT_SAMPLED
    assert read(prompt=["a", "b"], use_beam_search=True).caveat is Caveat.SEVERAL_PROMPTS


def test_nothing_of_a_prompt_is_taken_for_an_earlier_message() -> None:
    assert read(prompt="a", messages=[{"role": "user", "content": "a"}]).messages() == []


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'"x"', b"{", b"{}x", b'{"a": NaN}', b"\xff", b'{"tools": }'])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="the request body is not a JSON object"):
        read_request(body)

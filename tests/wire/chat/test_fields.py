"""A chat request: what the proxy knows of it, and that the rest stays the bytes that came in."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.errors import BadRequest
from polarproxy.model import Caveat, Sampling
from polarproxy.wire.chat.errors import encode_error
from polarproxy.wire.chat.fields import read_request

SPACE = st.sampled_from([b"", b" ", b"\n", b"\t ", b"\r\n"])
NUMBERS = (b"1e3", b"0.10", b"-0", b"1E+2", b"-0.0", b"123456789012345678901234567890", b"1.0000000000000000001")
TEXTS = (b'"\\u00fc"', b'"\\/"', b'"\\ud83d\\ude00"', '"ü\u2028"'.encode(), b'"\\\\\\""', b'""')
SCALARS = st.sampled_from([*NUMBERS, *TEXTS, b"null", b"true"])


@st.composite
def arrays(draw: st.DrawFn, values: st.SearchStrategy[bytes]) -> bytes:
    items = draw(st.lists(values, max_size=3))
    return b"[" + b",".join(draw(SPACE) + item + draw(SPACE) for item in items) + b"]"


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[bytes]) -> bytes:
    """Members in any order, names twice if it so happens: all of it is somebody's data."""
    items = draw(st.lists(st.tuples(st.sampled_from([b'"b"', b'"a"', b'"\\u00fc"']), values), max_size=3))
    parts = [draw(SPACE) + name + draw(SPACE) + b":" + draw(SPACE) + value + draw(SPACE) for name, value in items]
    return b"{" + b",".join(parts) + b"}"


ODD_JSON = st.recursive(SCALARS, lambda values: arrays(values) | objects(values), max_leaves=6)


@given(st.dictionaries(st.sampled_from(["zz", "tools", "metadata", "messages", "extra_body"]), ODD_JSON), SPACE, SPACE)
def test_members_are_the_bytes_that_came_in(members: dict[str, bytes], before: bytes, after: bytes) -> None:
    parts = [
        before + b'"' + name.encode() + b'"' + after + b":" + before + value + after for name, value in members.items()
    ]
    request = read_request(before + b"{" + b",".join(parts) + b"}" + after)
    assert {name: bytes(value) for name, value in request.fields.items()} == members


def test_what_the_proxy_knows() -> None:
    body = {
        "model": "tiny",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 20,
        "min_p": 0.1,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "repetition_penalty": 1.1,
        "max_tokens": 7,
        "seed": 3,
        "n": 2,
    }
    request = read_request(json.dumps(body).encode())
    assert (request.model, request.stream, request.stream_usage, request.tools_digest) == ("tiny", True, True, None)
    assert [bytes(message) for message in request.messages()] == [b'{"role": "user", "content": "hi"}']
    assert request.sampling == Sampling(
        temperature=0.0,
        top_p=0.5,
        top_k=20,
        min_p=0.1,
        presence_penalty=1.0,
        frequency_penalty=-1.0,
        repetition_penalty=1.1,
        max_tokens=7,
        seed=3,
        n=2,
    )


def test_what_is_not_said_is_not_known() -> None:
    request = read_request(b"{}")
    assert (request.model, request.stream, request.stream_usage, request.tools_digest) == (None, False, False, None)
    assert request.sampling == Sampling()
    assert request.messages() == []


def test_max_completion_tokens_is_the_newer_name() -> None:
    assert read_request(b'{"max_tokens": 5, "max_completion_tokens": 6}').sampling.max_tokens == 6
    assert read_request(b'{"max_tokens": 5, "max_completion_tokens": null}').sampling.max_tokens == 5


def test_tools_are_told_apart_by_their_bytes() -> None:
    first, same, other = (
        read_request(b'{"tools": %b}' % tools).tools_digest for tools in (b'[{"a":1}]', b'[{"a":1}]', b"[]")
    )
    assert first == same != other
    assert read_request(b'{"tools": null}').tools_digest is None


WRONG = [b"7", b'"x"', b"true", b"null", b"[]", b"{}", b"1.5", b"1e999", b"-1", b'"\xff"', b"[[[]]]"]
KNOWN = ["model", "stream", "stream_options", "messages", "temperature", "top_k", "max_tokens", "seed", "n", "tools"]


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("value", WRONG)
def test_a_member_of_the_wrong_type_is_the_engines_to_refuse(name: str, value: bytes) -> None:
    request = read_request(b'{"%b": %b}' % (name.encode(), value))
    assert bytes(request.fields[name]) == value
    assert [bytes(message) for message in request.messages()] in ([], [b"[[]]"])


def test_include_usage_is_true_where_vllm_takes_it_for_true() -> None:
    assert read_request(b'{"stream_options": {"include_usage": 1}}').stream_usage
    assert not read_request(b'{"stream_options": {"include_usage": 0}}').stream_usage
    assert not read_request(b'{"stream_options": {"include_usage": null}}').stream_usage


BODIES = [
    b"",
    b"null",
    b"[]",
    b'"x"',
    b"7",
    b"{",
    b"{}x",
    b'{"a": NaN}',
    b"{'a': 1}",
    b"\xff\xfe",
    b'{"a":' + b"[" * 99999,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: str(body[:12]))
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="the request body is not a JSON object"):
        read_request(body)


def test_an_endlessly_nested_body_is_refused_and_not_a_crash() -> None:
    with pytest.raises(BadRequest, match="the request body is not a JSON object"):
        read_request(b'{"a":' + b"[" * 99999 + b"]" * 99999 + b"}")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "BadRequestError"), (401, "AuthenticationError"), (503, "ServiceUnavailable"), (418, "InternalServerError")],
)
def test_errors_have_the_shape_that_sdks_read(status: int, kind: str) -> None:
    error = {"message": 'no "x" ü', "type": kind, "param": None, "code": status}
    assert json.loads(encode_error(status, 'no "x" ü')) == {"error": error}


@pytest.mark.parametrize(
    ("body", "caveat"),
    [
        (b'{"messages":[{"content":"an \\"image_url\\" is spoken of"}]}', None),
        (b'{"messages":[{"content":[{"type":"text","text":"image_url"}]}]}', None),
        (b'{"messages":[{"content":[{"type":"image_url","image_url":{"url":"x"}}]}]}', Caveat.MEDIA),
        (b'{"messages":[{"content":"a"},{"content":[{"type":"text"},{"type":"input_audio"}]}]}', Caveat.MEDIA),
        *(
            (b'{"messages":[{"content":"a"},{"content":["b",{"type":"%b"}]}]}' % kind, Caveat.MEDIA)
            for kind in (
                b"input_image",
                b"image_embeds",
                b"video_embeds",
                b"audio_embeds",
                b"prompt_embeds",
                b"file",
                b"?",
            )
        ),
        *(
            (b'{"messages":[{"content":[{"type":"%b","text":"input_image"}]}]}' % kind, None)
            for kind in (b"text", b"input_text", b"output_text", b"refusal", b"thinking", b"tool_reference")
        ),
        (b'{"messages":[{"content":[{"image_url":{"url":"x"}}]}]}', Caveat.MEDIA),
        (b'{"messages":[{"content":[{"type":"text","text":"a","image_url":{"url":"x"}}]}]}', Caveat.MEDIA),
        (b'{"messages":[{"content":[{"text":"a","cache_control":{"type":"ephemeral"}},"b"]}]}', None),
        (b'{"messages":[{"content":[{"type":null}]}]}', Caveat.MEDIA),
        (b'{"messages":[{"content":[1]}]}', None),
        (b'{"messages":[{"tool_calls":[{"type":"function"}]}]}', None),
        (b'{"messages":"image_url"}', None),
        (b'{"use_beam_search":true,"messages":[]}', Caveat.NOT_SAMPLED),
        (b'{"use_beam_search":false,"messages":[]}', None),
    ],
)
def test_what_the_ids_do_not_tell_is_seen(body: bytes, caveat: Caveat | None) -> None:
    assert read_request(body).caveat is caveat


def test_numbers_are_read_as_vllm_reads_them() -> None:
    assert read_request(b'{"n":"2","temperature":"0.5"}').sampling == Sampling(n=2, temperature=0.5)

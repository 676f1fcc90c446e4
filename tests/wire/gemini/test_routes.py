from __future__ import annotations

import msgspec
import pytest

from polarproxy.errors import BadRequest
from polarproxy.wire.gemini.count import decode_count, encode_count
from polarproxy.wire.gemini.errors import encode_error
from polarproxy.wire.gemini.models import encode_model, encode_models
from polarproxy.wire.neutral.request import Message, Text, Tool
from tests.wire.gemini.bodies import HELLO


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (409, "ABORTED"),
        (413, "INVALID_ARGUMENT"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (502, "UNAVAILABLE"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
        (599, "INTERNAL"),
    ],
)
def test_an_error(status: int, name: str) -> None:
    error = msgspec.json.decode(encode_error(status, 'too "long"'))
    assert error == {"error": {"code": status, "message": 'too "long"', "status": name}}


def test_models() -> None:
    one = {
        "name": "models/org/m",
        "version": "001",
        "displayName": "org/m",
        "inputTokenLimit": 4096,
        "outputTokenLimit": 4096,
        "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"],
    }
    assert msgspec.json.decode(encode_model("org/m", 4096)) == one
    assert msgspec.json.decode(encode_models(["org/m"], 4096)) == {"models": [one]}
    assert msgspec.json.decode(encode_models((), None)) == {"models": []}
    assert "inputTokenLimit" not in msgspec.json.decode(encode_model("m", None))


@pytest.mark.parametrize("name", ["generateContentRequest", "generate_content_request"])
def test_a_prompt_to_count(name: str) -> None:
    whole = {"model": "models/m", "contents": [HELLO], "tools": [{"functionDeclarations": [{"name": "run"}]}]}
    found = decode_count(msgspec.json.encode({name: whole}), model="m")
    assert found.losses == ()
    assert found.request.messages == (Message("user", (Text("hello"),)),)
    assert found.request.tools == (Tool("run"),)
    assert decode_count(msgspec.json.encode(whole), model="m") == found
    assert not found.request.stream


def test_a_prompt_to_count_needs_contents() -> None:
    with pytest.raises(BadRequest, match="contents is missing"):
        decode_count(b"{}", model="m")


def test_a_count() -> None:
    assert encode_count(7) == b'{"totalTokens":7}'

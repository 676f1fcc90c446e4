"""The WebSocket transport, as Codex uses it."""

from __future__ import annotations

import json

import pytest

from polarproxy.errors import BadRequest
from polarproxy.wire.neutral.reply import Begin, TextPiece
from polarproxy.wire.responses.errors import KEEPALIVE, client_status, encode_error
from polarproxy.wire.responses.items import read_head
from polarproxy.wire.responses.request import decode_request
from polarproxy.wire.responses.response import context_of
from polarproxy.wire.responses.socket import error_frame, of_events, prewarmed, read_create
from polarproxy.wire.responses.stream import Encoder
from tests.wire.responses.bodies import ID, codex, envelope


def create(**more: object) -> bytes:
    return json.dumps({"type": "response.create"} | codex() | more).encode()


def test_a_create_is_the_body_of_a_request() -> None:
    body = read_create(create(generate=False, previous_response_id="resp_1", stream=False))
    head = read_head(body)
    assert (head.generate, head.stream, head.store, head.previous_response_id) == (False, True, False, "resp_1")
    assert json.loads(body) == codex() | {"generate": False, "previous_response_id": "resp_1"}
    assert decode_request(read_create(create())).request.stream


@pytest.mark.parametrize(
    "frame",
    [b"", b"[]", b"{}", b'{"type":"response.steer"}', b'{"type":5}', b'{"input":"x"}', b"\xff", b'{"type": null}'],
)
def test_what_is_no_create_is_refused(frame: bytes) -> None:
    with pytest.raises(BadRequest, match=r"^the message: "):
        read_create(frame)


def test_events_become_frames() -> None:
    encoder = Encoder(envelope())
    sent = encoder.feed(Begin()) + (KEEPALIVE or b"") + encoder.feed(TextPiece("a\n\nb"))
    said = [json.loads(frame) for frame in of_events(sent)]
    assert [event["sequence_number"] for event in said] == [0, 1, 2, 3, 4]
    assert said[-1]["delta"] == "a\n\nb"
    named = [json.loads(frame) for frame in of_events(sent, 'la"ne')]
    assert named == [event | {"stream_id": 'la"ne'} for event in said]
    assert of_events(KEEPALIVE or b"") == []


def test_a_prewarmed_response_can_be_continued() -> None:
    body = read_create(create(generate=False))
    around = envelope(body)
    assert around.context == context_of(body)
    said = [json.loads(frame) for frame in prewarmed(around)]
    assert [event["type"] for event in said] == ["response.created", "response.in_progress", "response.completed"]
    response = said[-1]["response"]
    assert (response["id"], response["output"], response["status"]) == (f"resp_{ID}", [], "completed")
    assert response["usage"]["total_tokens"] == 0


def test_an_error_frame_is_an_answer_with_its_status() -> None:
    body = encode_error(429, "slow down")
    frame = json.loads(error_frame(429, body, retry_after="2"))
    assert frame == {
        "type": "error",
        "status": 429,
        "error": json.loads(body)["error"],
        "headers": {"retry-after": "2"},
    }
    assert json.loads(error_frame(500, encode_error(500, "no"), stream_id="a")) == {
        "type": "error",
        "status": 500,
        "error": {"message": "no", "type": "server_error", "param": None, "code": "server_error"},
        "stream_id": "a",
    }


@pytest.mark.parametrize(
    ("status", "message", "kind", "code"),
    [
        (400, "bad", "invalid_request_error", None),
        (400, "This model's maximum context length is 8.", "invalid_request_error", "context_length_exceeded"),
        (401, "who", "authentication_error", "invalid_api_key"),
        (404, "gone", "invalid_request_error", "not_found"),
        (409, "closed", "invalid_request_error", "conflict"),
        (429, "slow", "rate_limit_error", "rate_limit_exceeded"),
        (503, "busy", "server_error", "server_error"),
    ],
)
def test_an_error(status: int, message: str, kind: str, code: str | None) -> None:
    said = json.loads(encode_error(status, message))
    assert said == {"error": {"message": message, "type": kind, "param": None, "code": code}}
    assert client_status(status) == status


def test_an_error_with_a_code_of_its_own() -> None:
    said = json.loads(encode_error(404, "no", code="previous_response_not_found", param="previous_response_id"))
    assert (said["error"]["code"], said["error"]["param"]) == ("previous_response_not_found", "previous_response_id")

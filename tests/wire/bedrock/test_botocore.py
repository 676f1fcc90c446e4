"""boto3 as the judge: it sends us requests over loopback, and returns what we answered."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import boto3  # type: ignore[import-untyped]
import botocore.session  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError, EventStreamError  # type: ignore[import-untyped]
from botocore.validate import ParamValidator  # type: ignore[import-untyped]
from hypothesis import given, settings

from polarproxy.model import Usage
from polarproxy.wire.bedrock.errors import client_status, encode_error, error_headers
from polarproxy.wire.bedrock.eventstream import CONTENT_TYPE
from polarproxy.wire.bedrock.reply import encode_reply
from polarproxy.wire.bedrock.request import decode_request, encode_request
from polarproxy.wire.bedrock.signature import access_key
from polarproxy.wire.bedrock.stream import Encoder
from polarproxy.wire.neutral.reply import Choice, Reply, TextPiece, pieces
from polarproxy.wire.neutral.request import (
    Media,
    Message,
    OutputFormat,
    Reasoning,
    Request,
    Text,
    Thinking,
    Tool,
    ToolChoice,
    ToolResult,
    ToolUse,
)
from polarproxy.wire.neutral.seal import seal
from tests.serving import serving
from tests.wire.bedrock.drawing import OWN_MEMBERS, sayable_requests
from tests.wire.neutral.strategies import envelope

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "sk-polar-task_7.try-2-0123456789abcdef0123456789abcdef"
ARN = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-2-lite-v1:0"
HELLO = [{"role": "user", "content": [{"text": "hello"}]}]
USAGE = Usage(10, 5, 4)
REPLY = Reply(
    (
        Choice(
            0,
            (Thinking("Hm 🙂"), Text("I call."), ToolUse("call_1", "read", '{"n": 1.50, "u": "\\u00fc"}')),
            "tool_calls",
        ),
    ),
    USAGE,
)


@dataclass
class Answer:
    """What the server says to one request."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


@dataclass
class Judge:
    """A client of AWS, and the server that it takes for AWS."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    client: Any = None

    def take(self, handler: BaseHTTPRequestHandler) -> Answer:
        """Notes a request and gives the answer to it."""
        self.paths.append(handler.path)
        self.keys.append(access_key(handler.headers.get("authorization", "")))
        self.bodies.append(handler.rfile.read(int(handler.headers.get("content-length", 0))))
        return self.answers.pop(0)


def _client(url: str, attempts: int) -> Any:
    return boto3.client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key="any",
        config=Config(retries={"total_max_attempts": attempts}, read_timeout=10, connect_timeout=10),
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Judge]:
    judge = Judge("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer = judge.take(self)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    with serving(Handler) as judge.url:
        judge.client = _client(judge.url, 1)
        yield judge
        judge.client.close()


@pytest.fixture
def judge(server: Judge) -> Judge:
    for taken in (server.answers, server.paths, server.bodies, server.keys):
        taken.clear()
    return server


def stream_answer(data: bytes) -> Answer:
    return Answer(data, 200, {"content-type": CONTENT_TYPE})


def told(data: bytes, judge: Judge) -> tuple[list[dict[str, Any]], EventStreamError | None]:
    """The events that the client gives, and the error that ended them."""
    judge.answers.append(stream_answer(data))
    stream = judge.client.converse_stream(modelId="m", messages=HELLO)["stream"]
    events: list[dict[str, Any]] = []
    try:
        for event in stream:
            events.append(event)  # noqa: PERF402 - those before an error count
    except EventStreamError as error:
        return events, error
    finally:
        stream.close()
    return events, None


def test_a_whole_reply(judge: Judge) -> None:
    judge.answers.append(Answer(encode_reply(REPLY, replace(envelope(), elapsed_ms=lambda: 9)).body))
    answer = judge.client.converse(modelId=ARN, messages=HELLO)
    del answer["ResponseMetadata"]
    assert answer == {
        "output": {
            "message": {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Hm 🙂", "signature": seal("Hm 🙂")}}},
                    {"text": "I call."},
                    {"toolUse": {"toolUseId": "call_1", "name": "read", "input": {"n": 1.5, "u": "ü"}}},
                ],
            }
        },
        "stopReason": "tool_use",
        "usage": {"inputTokens": 6, "outputTokens": 5, "totalTokens": 15, "cacheReadInputTokens": 4},
        "metrics": {"latencyMs": 9},
    }
    assert judge.paths == [f"/model/{quote(ARN, safe='')}/converse"]
    assert judge.keys == [KEY]


def test_a_stop_string(judge: Judge) -> None:
    reply = Reply((Choice(0, (Text("a"),), "stop_sequence", "END"),), USAGE)
    judge.answers.append(Answer(encode_reply(reply, envelope()).body))
    answer = judge.client.converse(modelId="m", messages=HELLO)
    assert (answer["stopReason"], answer["additionalModelResponseFields"]) == (
        "stop_sequence",
        {"stop_sequence": "END"},
    )


def test_what_was_answered_can_be_sent_back(judge: Judge) -> None:
    body = encode_reply(REPLY, envelope()).body
    judge.answers += [Answer(body), Answer(body)]
    said = judge.client.converse(modelId="m", messages=HELLO)["output"]["message"]
    judge.client.converse(modelId="m", messages=[*HELLO, said])
    decoded = decode_request(judge.bodies[1], model="m", stream=False)
    assert decoded.losses == ()
    assert decoded.request.messages[1] == Message(
        "assistant",
        # The client parses the object and writes it again in its own spelling.
        (Thinking("Hm 🙂"), Text("I call."), ToolUse("call_1", "read", '{"n": 1.5, "u": "\\u00fc"}')),
    )


def test_a_stream(judge: Judge) -> None:
    encoder = Encoder(replace(envelope(), elapsed_ms=lambda: 3))
    events, error = told(b"".join(encoder.feed(piece) for piece in pieces(REPLY)), judge)
    assert error is None
    assert judge.paths == ["/model/m/converse-stream"]
    start = {"toolUse": {"toolUseId": "call_1", "name": "read"}}
    assert events == [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"delta": {"reasoningContent": {"text": "Hm 🙂"}}, "contentBlockIndex": 0}},
        {"contentBlockDelta": {"delta": {"reasoningContent": {"signature": seal("Hm 🙂")}}, "contentBlockIndex": 0}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"contentBlockDelta": {"delta": {"text": "I call."}, "contentBlockIndex": 1}},
        {"contentBlockStop": {"contentBlockIndex": 1}},
        {"contentBlockStart": {"start": start, "contentBlockIndex": 2}},
        {
            "contentBlockDelta": {
                "delta": {"toolUse": {"input": '{"n": 1.50, "u": "\\u00fc"}'}},
                "contentBlockIndex": 2,
            }
        },
        {"contentBlockStop": {"contentBlockIndex": 2}},
        {"messageStop": {"stopReason": "tool_use"}},
        {
            "metadata": {
                "usage": {"inputTokens": 6, "outputTokens": 5, "totalTokens": 15, "cacheReadInputTokens": 4},
                "metrics": {"latencyMs": 3},
            }
        },
    ]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "validationException"),
        (429, "throttlingException"),
        (500, "internalServerException"),
        (502, "modelStreamErrorException"),
        (503, "serviceUnavailableException"),
    ],
)
def test_an_error_in_the_middle_of_a_stream(judge: Judge, status: int, code: str) -> None:
    encoder = Encoder(envelope())
    events, error = told(encoder.feed(TextPiece("a")) + encoder.error(status, "the engine went away"), judge)
    assert [name for event in events for name in event] == ["messageStart", "contentBlockDelta"]
    assert error is not None
    assert error.response["Error"] == {"Code": code, "Message": "the engine went away"}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "ValidationException"),
        (401, "AccessDeniedException"),
        (404, "ResourceNotFoundException"),
        (429, "ThrottlingException"),
        (500, "InternalServerException"),
        (503, "ServiceUnavailableException"),
        (504, "ModelTimeoutException"),
    ],
)
def test_errors_are_of_the_clients_own_classes(judge: Judge, status: int, name: str, streamed: bool) -> None:
    judge.answers.append(Answer(encode_error(status, "why: ü"), client_status(status), error_headers(status)))
    ask = judge.client.converse_stream if streamed else judge.client.converse
    with pytest.raises(getattr(judge.client.exceptions, name)) as caught:
        ask(modelId="m", messages=HELLO)
    error = caught.value.response
    assert error["Error"] == {"Code": name, "Message": "why: ü"}
    assert error["ResponseMetadata"]["HTTPStatusCode"] == client_status(status)


def test_a_closed_session_is_a_client_error(judge: Judge) -> None:
    judge.answers.append(Answer(encode_error(409, "closed"), client_status(409), error_headers(409)))
    with pytest.raises(ClientError, match=r"ConflictException.*closed"):
        judge.client.converse(modelId="m", messages=HELLO)


def test_throttling_is_tried_again(judge: Judge) -> None:
    judge.answers += [
        Answer(encode_error(429, "slow"), 429, error_headers(429)),
        Answer(encode_reply(REPLY, envelope()).body),
    ]
    client = _client(judge.url, 2)
    assert client.converse(modelId="m", messages=HELLO)["stopReason"] == "tool_use"
    client.close()
    assert judge.bodies[0] == judge.bodies[1]


def test_a_request_of_boto3(judge: Judge) -> None:
    judge.answers.append(Answer(encode_reply(REPLY, envelope()).body))
    judge.client.converse(
        modelId="us.amazon.nova-2-lite-v1:0",
        system=[{"text": "s"}],
        messages=[
            {
                "role": "user",
                "content": [{"text": "u"}, {"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}],
            },
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"redactedContent": b"\x01\x02"}},
                    {"toolUse": {"toolUseId": "c", "name": "f", "input": {"x": [1, None]}}},
                ],
            },
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": "c", "content": [{"json": {"y": 2}}], "status": "error"}}],
            },
        ],
        inferenceConfig={"maxTokens": 9, "temperature": 0.25, "topP": 0.5, "stopSequences": ["a"]},
        toolConfig={
            "tools": [{"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": {"type": "object"}}}}],
            "toolChoice": {"tool": {"name": "f"}},
        },
        additionalModelRequestFields={"inferenceConfig": {"topK": 3}, "reasoningConfig": {"type": "enabled"}},
        outputConfig={
            "effort": "low",
            "textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": '{"a":1}', "name": "n"}}},
        },
        requestMetadata={"k": "v"},
        performanceConfig={"latency": "standard"},
    )
    assert judge.paths == ["/model/us.amazon.nova-2-lite-v1%3A0/converse"]
    decoded = decode_request(judge.bodies[0], model="us.amazon.nova-2-lite-v1:0", stream=False)
    assert decoded.losses == ()
    assert decoded.request == Request(
        model="us.amazon.nova-2-lite-v1:0",
        messages=(
            Message("system", (Text("s"),)),
            Message("user", (Text("u"), Media("image/png", "data:image/png;base64,AP8="))),
            Message("assistant", (Thinking("", "AQI="), ToolUse("c", "f", '{"x": [1, null]}'))),
            Message("tool", (ToolResult("c", (Text('{"y": 2}'),), is_error=True),)),
        ),
        tools=(Tool("f", "d", b'{"type": "object"}'),),
        tool_choice=ToolChoice("named", "f"),
        max_tokens=9,
        temperature=0.25,
        top_p=0.5,
        top_k=3,
        stop=("a",),
        output=OutputFormat(b'{"a":1}', "n"),
        reasoning=Reasoning(True, "low"),
        metadata={"k": "v"},
        extra={"performanceConfig": b'{"latency": "standard"}'},
    )


@cache
def converse_shape() -> Any:
    """What the service model says of a request."""
    return botocore.session.Session().get_service_model("bedrock-runtime").operation_model("Converse").input_shape


@settings(max_examples=40)
@given(sayable_requests())
def test_what_we_write_is_valid_by_the_service_model(request: Request) -> None:
    # The members drawn for `extra` hold anything; the model knows what those of its own hold.
    others = {name: value for name, value in request.extra.items() if name not in OWN_MEMBERS}
    body = json.loads(encode_request(replace(request, extra=others)).body)
    report = ParamValidator().validate(body | {"modelId": "m"}, converse_shape())
    assert not report.has_errors(), report.generate_report()

"""A question in each dialect, and how to read what comes back, without any SDK."""

import json
from dataclasses import dataclass
from typing import Any

from polarproxy.model import Dialect
from polarproxy.wire.bedrock.eventstream import MessageSplitter

_TEXT = "hi"
_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}


@dataclass(frozen=True)
class Question:
    """One request; `ends` is what only the end of its stream holds."""

    dialect: Dialect
    path: str
    body: dict[str, Any]
    streamed: bool
    ends: bytes = b""

    def __str__(self) -> str:
        return f"{self.dialect}-{'streamed' if self.streamed else 'whole'}"


def _both(
    dialect: Dialect, whole: str, streamed: str, body: dict[str, Any], flag: dict[str, Any], ends: bytes
) -> list[Question]:
    return [
        Question(dialect, whole, body, streamed=False),
        Question(dialect, streamed, body | flag, streamed=True, ends=ends),
    ]


_STREAM: dict[str, Any] = {"stream": True}
_USER: dict[str, Any] = {"role": "user", "content": _TEXT}
QUESTIONS: list[Question] = [
    *_both(
        Dialect.CHAT,
        "/v1/chat/completions",
        "/v1/chat/completions",
        {
            "model": "fake",
            "messages": [_USER],
            "tools": [{"type": "function", "function": {"name": "weather", "parameters": _SCHEMA}}],
        },
        _STREAM,
        b"[DONE]",
    ),
    *_both(
        Dialect.RESPONSES,
        "/v1/responses",
        "/v1/responses",
        {
            "model": "fake",
            "input": _TEXT,
            "tools": [{"type": "function", "name": "weather", "parameters": _SCHEMA, "strict": False}],
        },
        _STREAM,
        b"response.completed",
    ),
    *_both(
        Dialect.MESSAGES,
        "/v1/messages",
        "/v1/messages",
        {
            "model": "fake",
            "max_tokens": 50,
            "messages": [_USER],
            "tools": [{"name": "weather", "input_schema": _SCHEMA}],
        },
        _STREAM,
        b"message_stop",
    ),
    *_both(
        Dialect.GEMINI,
        "/v1beta/models/fake:generateContent",
        "/v1beta/models/fake:streamGenerateContent?alt=sse",
        {
            "contents": [{"role": "user", "parts": [{"text": _TEXT}]}],
            "tools": [{"functionDeclarations": [{"name": "weather", "parametersJsonSchema": _SCHEMA}]}],
        },
        {},
        b'"finishReason"',
    ),
    Question(
        Dialect.GEMINI,
        "/v1beta/models/fake:streamGenerateContent",
        {"contents": [{"parts": [{"text": _TEXT}]}]},
        streamed=True,
        ends=b'"finishReason"',
    ),
    *_both(
        Dialect.BEDROCK,
        "/model/fake/converse",
        "/model/fake/converse-stream",
        {
            "messages": [{"role": "user", "content": [{"text": _TEXT}]}],
            "toolConfig": {"tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": _SCHEMA}}}]},
        },
        {},
        b"messageStop",
    ),
]
TRANSLATED = [question for question in QUESTIONS if question.dialect is not Dialect.CHAT]
STREAMED = [question for question in TRANSLATED if question.streamed]


def sse(body: bytes) -> list[Any]:
    """The JSON of every event."""
    lines = (line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: "))
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def text_of(question: Question, body: bytes) -> str:
    """The text that a reply says, streamed or not."""
    return "".join(_texts(question, body))


def _texts(question: Question, body: bytes) -> list[str]:
    match question.dialect, question.streamed:
        case Dialect.CHAT, False:
            return [json.loads(body)["choices"][0]["message"]["content"] or ""]
        case Dialect.CHAT, True:
            return [c["delta"].get("content") or "" for event in sse(body) for c in event["choices"]]
        case Dialect.RESPONSES, False:
            return [
                part["text"]
                for item in json.loads(body)["output"]
                if item["type"] == "message"
                for part in item["content"]
            ]
        case Dialect.RESPONSES, True:
            return [event["delta"] for event in sse(body) if event["type"] == "response.output_text.delta"]
        case Dialect.MESSAGES, False:
            return [block.get("text", "") for block in json.loads(body)["content"]]
        case Dialect.MESSAGES, True:
            return [event["delta"].get("text", "") for event in sse(body) if event["type"] == "content_block_delta"]
        case Dialect.GEMINI, _:
            chunks = sse(body) if body.startswith(b"data:") else json.loads(body)
            return [
                part.get("text", "")
                for chunk in (chunks if isinstance(chunks, list) else [chunks])
                for part in chunk["candidates"][0]["content"]["parts"]
            ]
        case Dialect.BEDROCK, False:
            return [block.get("text", "") for block in json.loads(body)["output"]["message"]["content"]]
        case _:
            payloads = [json.loads(message.payload) for message in MessageSplitter().feed(body)]
            return [payload["delta"].get("text", "") for payload in payloads if "delta" in payload]


def message_of(dialect: Dialect, body: bytes) -> str:
    """The message of an error."""
    said = json.loads(body)
    message: str = said["message"] if dialect is Dialect.BEDROCK else said["error"]["message"]
    return message

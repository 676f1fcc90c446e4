"""Google's own SDK judges: what it sends is understood, and what it gets it parses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import msgspec
import pytest
from google import genai
from google.genai import errors, types

from polarproxy.model import Usage
from polarproxy.wire.gemini.count import decode_count, encode_count
from polarproxy.wire.gemini.errors import encode_error
from polarproxy.wire.gemini.models import encode_model, encode_models
from polarproxy.wire.gemini.reply import encode_reply
from polarproxy.wire.gemini.request import decode_request
from polarproxy.wire.gemini.stream import Encoder
from polarproxy.wire.neutral.reply import Choice, Reply, pieces
from polarproxy.wire.neutral.request import Message, Request, Text, Thinking, ToolResult, ToolUse
from tests.wire.gemini.streams import asked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

REPLY = Reply(
    (
        Choice(
            0,
            (Thinking("First I look.\n"), Text("Looking…"), ToolUse("c1", "look_up", '{"word": "ox"}')),
            "tool_calls",
        ),
    ),
    Usage(100, 30, cached_tokens=64, reasoning_tokens=10),
)


class Server:
    """Answers every request with the same bytes, and remembers the bodies."""

    def __init__(self, *body: bytes, status: int = 200) -> None:
        self.bodies: list[bytes] = []
        self._status = status
        self._body = body

    def client(self) -> genai.Client:
        transport = httpx.MockTransport(self._handle)
        options = types.HttpOptions(
            httpx_client=httpx.Client(transport=transport),
            httpx_async_client=httpx.AsyncClient(transport=transport),
            retry_options=types.HttpRetryOptions(attempts=1),
        )
        return genai.Client(api_key="none", http_options=options)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(request.content)
        return httpx.Response(self._status, stream=_Stream(self._body))

    def asked(self) -> Request:
        """The last request, of which nothing may be lost but what functions return, which the SDK declares too."""
        found = decode_request(self.bodies[-1], model="gemini-3.8-flash", stream=False)
        assert [loss.where for loss in found.losses if not loss.where.endswith(".response_json_schema")] == []
        return found.request


class _Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, parts: tuple[bytes, ...]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part


def look_up(word: str) -> str:
    """Looks a word up."""
    return f"{word}: a word"


CONFIG = types.GenerateContentConfig(
    system_instruction="be brief",
    temperature=0.5,
    stop_sequences=["END"],
    thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=512),
    tools=[look_up],
    tool_config=types.ToolConfig(
        function_calling_config=types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.AUTO)
    ),
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)


def streamed(reply: Reply, *, shown: bool = True) -> list[bytes]:
    encoder = Encoder(asked(shown=shown))
    return [encoder.feed(piece) for piece in pieces(reply)]


def whole(reply: Reply, *, shown: bool = True) -> bytes:
    return encode_reply(reply, asked(shown=shown)).body


def test_a_whole_reply() -> None:
    server = Server(whole(REPLY))
    found = server.client().models.generate_content(model="gemini-3.8-flash", contents="hello", config=CONFIG)
    assert found.candidates is not None
    content = found.candidates[0].content
    assert content is not None
    assert content.parts is not None
    assert [part.text for part in content.parts] == ["First I look.\n", "Looking…", None]
    assert [part.thought for part in content.parts] == [True, None, None]
    assert found.function_calls == [types.FunctionCall(id="c1", name="look_up", args={"word": "ox"})]
    assert found.candidates[0].finish_reason is types.FinishReason.STOP
    assert found.response_id == "0123456789abcdef0123456789abcdef"
    assert found.model_version == "asked-model"
    assert found.usage_metadata is not None
    assert found.usage_metadata.model_dump(exclude_none=True) == {
        "prompt_token_count": 100,
        "candidates_token_count": 20,
        "total_token_count": 130,
        "cached_content_token_count": 64,
        "thoughts_token_count": 10,
    }


def test_what_it_sends() -> None:
    server = Server(whole(REPLY))
    server.client().models.generate_content(model="gemini-3.8-flash", contents="hello", config=CONFIG)
    request = server.asked()
    assert request.messages == (Message("system", (Text("be brief"),)), Message("user", (Text("hello"),)))
    assert request.reasoning is not None
    assert (request.reasoning.budget, request.reasoning.shown) == (512, True)
    assert request.stop == ("END",)
    assert request.tools[0].name == "look_up"
    schema = msgspec.json.decode(request.tools[0].parameters or b"")
    assert schema["type"] == "object"
    assert schema["properties"]["word"]["type"] == "string"
    assert request.tool_choice is not None
    assert request.tool_choice.mode == "auto"


@pytest.mark.parametrize("shown", [True, False])
def test_a_conversation_comes_back_as_it_was_sampled(shown: bool) -> None:
    server = Server(*streamed(REPLY, shown=shown))
    chat = server.client().chats.create(model="gemini-3.8-flash", config=CONFIG)
    texts = [chunk.text for chunk in chat.send_message_stream("hello")]
    assert "".join(text or "" for text in texts) == "Looking…"
    answer = types.Part.from_function_response(name="look_up", response={"result": 3})
    list(chat.send_message_stream(answer))
    assert server.asked().messages[1:] == (
        Message("user", (Text("hello"),)),
        Message("assistant", REPLY.choices[0].parts),
        Message("tool", (ToolResult("c1", (Text('{"result": 3}'),), name="look_up"),)),
    )


async def test_a_stream_read_by_the_asynchronous_client() -> None:
    server = Server(b"".join(streamed(REPLY)))
    stream = await server.client().aio.models.generate_content_stream(
        model="gemini-3.8-flash", contents="hello", config=CONFIG
    )
    chunks = [chunk async for chunk in stream]
    assert [chunk.function_calls for chunk in chunks if chunk.function_calls] == [
        [types.FunctionCall(id="c1", name="look_up", args={"word": "ox"})]
    ]
    last = chunks[-1].usage_metadata
    assert last is not None
    assert last.total_token_count == 130


def test_functions_are_called_without_being_asked() -> None:
    server = Server(whole(REPLY))
    config = types.GenerateContentConfig(
        tools=[look_up], automatic_function_calling=types.AutomaticFunctionCallingConfig(maximum_remote_calls=2)
    )
    server.client().models.generate_content(model="gemini-3.8-flash", contents="hello", config=config)
    assert server.asked().messages[1:] == (
        Message("assistant", REPLY.choices[0].parts),
        Message("tool", (ToolResult("c1", (Text('{"result": "ox: a word"}'),), name="look_up"),)),
    )


def test_structured_output() -> None:
    server = Server(whole(Reply((Choice(0, (Text('["a","b"]'),), "stop"),))))
    config = types.GenerateContentConfig(response_mime_type="application/json", response_schema=list[str])
    found = server.client().models.generate_content(model="gemini-3.8-flash", contents="hello", config=config)
    assert repr(found.parsed) == "['a', 'b']"
    output = server.asked().output
    assert output is not None
    assert msgspec.json.decode(output.schema or b"")["items"] == {"type": "string"}


def test_an_error() -> None:
    client = Server(encode_error(400, "the prompt is too long"), status=400).client()
    with pytest.raises(errors.ClientError, match="the prompt is too long") as caught:
        client.models.generate_content(model="gemini-3.8-flash", contents="hello")
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("alone", [True, False])
def test_an_error_in_the_middle_of_a_stream(alone: bool) -> None:
    encoder = Encoder(asked(shown=True))
    told = [encoder.feed(piece) for piece in list(pieces(REPLY))[:2]]
    told.append(encoder.error(503, "the engine went away"))
    client = Server(*(told if alone else [b"".join(told)])).client()
    stream = client.models.generate_content_stream(model="gemini-3.8-flash", contents="hello", config=CONFIG)
    next(stream)
    with pytest.raises(errors.ServerError, match="the engine went away") as caught:
        next(stream)
    assert (caught.value.code, caught.value.status) == (503, "UNAVAILABLE")


def test_models_and_counts() -> None:
    (model,) = Server(encode_models(["m"], 4096)).client().models.list()
    assert (model.name, model.input_token_limit) == ("models/m", 4096)
    one = Server(encode_model("m", None)).client().models.get(model="m")
    assert one.supported_actions == ["generateContent", "streamGenerateContent", "countTokens"]
    server = Server(encode_count(7))
    assert server.client().models.count_tokens(model="m", contents="hello").total_tokens == 7
    assert decode_count(server.bodies[0], model="m").request.messages == (Message("user", (Text("hello"),)),)

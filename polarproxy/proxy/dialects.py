"""The dialects side by side: how each says an error, a whole reply and a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from polarproxy.model import Dialect
from polarproxy.wire.bedrock import errors as bedrock_errors
from polarproxy.wire.bedrock.reply import encode_reply as bedrock_reply
from polarproxy.wire.bedrock.request import decode_request as read_bedrock
from polarproxy.wire.bedrock.stream import Encoder as BedrockEncoder
from polarproxy.wire.chat.errors import encode_error as chat_error
from polarproxy.wire.gemini import errors as gemini_errors
from polarproxy.wire.gemini.reply import encode_reply as gemini_reply
from polarproxy.wire.gemini.request import decode_request as read_gemini
from polarproxy.wire.gemini.stream import Encoder as GeminiEncoder
from polarproxy.wire.messages import errors as messages_errors
from polarproxy.wire.messages.reply import encode_reply as messages_reply
from polarproxy.wire.messages.request import decode_request as read_messages
from polarproxy.wire.messages.stream import Encoder as MessagesEncoder
from polarproxy.wire.responses import errors as responses_errors
from polarproxy.wire.responses.reply import encode_reply as responses_reply
from polarproxy.wire.responses.request import decode_request as read_responses
from polarproxy.wire.responses.stream import Encoder as ResponsesEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polarproxy.proxy.routes import Route
    from polarproxy.wire.neutral.encoder import StreamEncoder
    from polarproxy.wire.neutral.reply import Envelope, Reply
    from polarproxy.wire.neutral.request import Decoded, Encoded

_SSE = "text/event-stream; charset=utf-8"
_JSON = "application/json"

_EncodeError: TypeAlias = "Callable[[int, str], bytes]"


def _same(status: int) -> int:
    return status


def _no_headers(_status: int) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Errors:
    """How a dialect says that something went wrong."""

    encode: _EncodeError
    status: Callable[[int], int] = _same
    """The HTTP status that clients of the dialect expect for one of ours."""
    headers: Callable[[int], Mapping[str, str]] = _no_headers


@dataclass(frozen=True, slots=True)
class Spoken:
    """How a dialect that is translated says a reply."""

    reply: Callable[[Reply, Envelope], Encoded]
    stream: Callable[[Envelope], StreamEncoder]
    stream_type: str
    keepalive: bytes | None
    """What its clients pass over in a stream. None: nothing at all."""
    says_failure: bool
    """Whether its clients go on sensibly after an error inside a stream; the others know what to do about a reset."""
    request_id: tuple[str, str]
    """Name of the header with the request's id, and what the id begins with."""


ERRORS: dict[Dialect, Errors] = {
    Dialect.CHAT: Errors(chat_error),
    Dialect.COMPLETIONS: Errors(chat_error),
    Dialect.RESPONSES: Errors(responses_errors.encode_error, responses_errors.client_status),
    Dialect.MESSAGES: Errors(messages_errors.encode_error, messages_errors.client_status),
    Dialect.GEMINI: Errors(gemini_errors.encode_error),
    Dialect.BEDROCK: Errors(bedrock_errors.encode_error, bedrock_errors.client_status, bedrock_errors.error_headers),
}

CHAT_KEEPALIVE = b": keep-alive\n\n"

_SPOKEN: dict[Dialect, Spoken] = {
    Dialect.RESPONSES: Spoken(
        responses_reply, ResponsesEncoder, _SSE, responses_errors.KEEPALIVE, True, ("x-request-id", "req_")
    ),
    Dialect.MESSAGES: Spoken(
        messages_reply, MessagesEncoder, _SSE, messages_errors.KEEPALIVE, True, ("request-id", "req_")
    ),
    Dialect.GEMINI: Spoken(gemini_reply, GeminiEncoder, _SSE, gemini_errors.KEEPALIVE, False, ("x-request-id", "")),
    Dialect.BEDROCK: Spoken(
        bedrock_reply,
        BedrockEncoder,
        "application/vnd.amazon.eventstream",
        bedrock_errors.KEEPALIVE,
        True,
        ("x-amzn-RequestId", ""),
    ),
}
_GEMINI_ARRAY = Spoken(
    gemini_reply, lambda envelope: GeminiEncoder(envelope, array=True), _JSON, None, False, ("x-request-id", "")
)


def spoken(route: Route, query: Mapping[str, str]) -> Spoken | None:
    """How the client of this route is answered; None where it is answered in the engine's own words."""
    if route.dialect is Dialect.GEMINI and route.stream and query.get("alt") != "sse":
        return _GEMINI_ARRAY
    return _SPOKEN.get(route.dialect)


def read(route: Route, body: bytes) -> Decoded:
    """A request of a translated dialect; raises `BadRequest`."""
    match route.dialect:
        case Dialect.RESPONSES:
            return read_responses(body)
        case Dialect.MESSAGES:
            return read_messages(body)
        case Dialect.GEMINI:
            return read_gemini(body, model=route.model or "", stream=bool(route.stream))
        case Dialect.BEDROCK:
            return read_bedrock(body, model=route.model or "", stream=bool(route.stream))
        case Dialect.CHAT | Dialect.COMPLETIONS:
            raise AssertionError(f"{route.dialect} goes to the engine as it is")

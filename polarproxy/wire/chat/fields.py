"""OpenAI Chat Completions: what a request says, and this dialect's errors.

Only what the proxy itself must know is read. Everything else in a request is carried as the bytes that came in.
Source: OpenAI API reference, "Create chat completion"; vLLM's extra fields are documented in its OpenAI-compatible server.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, TypeAlias, TypeVar

import msgspec
import xxhash

from polarproxy.errors import UNREADABLE, BadRequest
from polarproxy.model import Caveat, Sampling
from polarproxy.wire.chat.begun import Begun, Opened
from polarproxy.wire.chat.media_seen import holds_media
from polarproxy.wire.message_list import Ends, read_messages

Fields: TypeAlias = dict[str, msgspec.Raw]
"""The members of a JSON object, each value as the bytes that came in."""

_fields = msgspec.json.Decoder(Fields)


_text = msgspec.json.Decoder(str)
_TRUE_WORDS = frozenset((b"true", b"1", b"1.0", b"yes", b"on", b"t", b"y"))
"""What vLLM, by pydantic's lax reading, takes for true."""
_number = msgspec.json.Decoder(float, strict=False)
_integer = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)], strict=False)
"""Beyond 32 bits a limit or a count means nothing, and no column holds it."""
_any_integer = msgspec.json.Decoder(int)
_MAX_SEED = 2**64
_list = msgspec.json.Decoder(list[msgspec.Raw])

_T = TypeVar("_T")


def _member(fields: Fields, name: str, decoder: msgspec.json.Decoder[_T]) -> _T | None:
    """A member of the given type; None when it is absent, null, or of another type, which is the engine's to refuse."""
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        return decoder.decode(raw)
    except UNREADABLE:
        return None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request as the client sent it."""

    fields: Fields
    model: str | None
    """None: the client named none."""
    stream: bool
    stream_usage: bool
    """Whether a stream is to end with a chunk of usage."""
    sampling: Sampling
    tools_digest: str | None
    """None: no `tools`."""
    caveat: Caveat | None = None
    ends: Ends = field(default_factory=Ends)
    """Of its messages; empty when `messages` is not a list."""
    begun: Begun | None = None
    """Where a later request of the conversation may go on from. None: it is not asked for, or too short to be worth it."""

    @property
    def choices(self) -> int:
        """How many choices the reply will have."""
        return self.sampling.n

    def resampled(self) -> ChatRequest:
        """The same request, after its fields were changed."""
        return replace(self, sampling=read_sampling(self.fields))

    def messages(self) -> list[msgspec.Raw]:
        """Each message as the bytes that came in; empty when `messages` is not a list."""
        return _member(self.fields, "messages", _list) or []


def read_request(body: bytes, earlier: Begun | None = None, *, goes_on: bool = False) -> ChatRequest:
    """Reads a request body; raises `BadRequest` when it is not a JSON object.

    Where it begins with an `earlier` one, as the next request of a conversation does, only the rest is gone through.
    `goes_on`: whether a next one may be read from here.
    """
    opened = (earlier and earlier.go_on(body)) or _open(body)
    fields, messages = opened.fields, read_messages(opened.more)
    ends, media = opened.ends.more(messages), opened.media or holds_media(messages)
    tools = fields.get("tools")
    return ChatRequest(
        fields=fields,
        model=_member(fields, "model", _text),
        stream=_is_true(fields.get("stream")),
        stream_usage=_wants_usage(fields),
        sampling=read_sampling(fields),
        caveat=_read_caveat(fields, media=media),
        ends=ends,
        begun=Begun.of(body, opened, ends, media=media) if goes_on else None,
        tools_digest=None if tools is None or bytes(tools) == b"null" else xxhash.xxh3_128_hexdigest(tools),
    )


def _open(body: bytes) -> Opened:
    try:
        fields = _fields.decode(body)
    except UNREADABLE as error:
        raise BadRequest(f"the request body is not a JSON object: {error}") from error
    return Opened(fields, fields.get("messages"))


def _is_true(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(raw).strip(b'"').lower() in _TRUE_WORDS


def _read_caveat(fields: Fields, *, media: bool) -> Caveat | None:
    if _is_true(fields.get("use_beam_search")):
        return Caveat.NOT_SAMPLED
    return Caveat.MEDIA if media else None


def _wants_usage(fields: Fields) -> bool:
    options = _member(fields, "stream_options", _fields)
    return options is not None and _is_true(options.get("include_usage"))


def read_sampling(fields: Fields) -> Sampling:
    """What a request says of sampling; what cannot be read is the engine's to refuse."""
    seed = _member(fields, "seed", _any_integer)
    max_completion_tokens = _member(fields, "max_completion_tokens", _integer)
    return Sampling(
        temperature=_member(fields, "temperature", _number),
        top_p=_member(fields, "top_p", _number),
        top_k=_member(fields, "top_k", _integer),
        min_p=_member(fields, "min_p", _number),
        presence_penalty=_member(fields, "presence_penalty", _number),
        frequency_penalty=_member(fields, "frequency_penalty", _number),
        repetition_penalty=_member(fields, "repetition_penalty", _number),
        max_tokens=_member(fields, "max_tokens", _integer) if max_completion_tokens is None else max_completion_tokens,
        seed=seed if seed is not None and abs(seed) < _MAX_SEED else None,
        n=_member(fields, "n", _integer) or 1,
    )


def renamed(reply: bytes, model: bytes) -> bytes:
    """A chunk or a whole reply with this `model`, given as JSON; all else keeps its bytes."""
    try:
        fields = _fields.decode(reply)
    except UNREADABLE:
        return reply
    if "model" not in fields:
        return reply
    return msgspec.json.encode(fields | {"model": msgspec.Raw(model)})

"""Responses that are kept: what a later request continues from, and what is read back of them.

Source: OpenAI API reference, "Get a model response", "List input items", "Delete a model response".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.errors import BadRequest
from polarproxy.wire.neutral.reading import read
from polarproxy.wire.responses.read_items import item_kind
from polarproxy.wire.responses.reading import Members, given, members

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_WHERE = "the request body"


@dataclass(frozen=True, slots=True)
class Head:
    """What must be known of a request before it is read as a whole."""

    previous_response_id: str | None
    """The response that it continues. None: none."""
    store: bool
    """Whether its own response is to be kept."""
    generate: bool
    """Whether there is to be an answer; a WebSocket client prepares the next request without one."""
    stream: bool
    model: str | None
    """None: the client named none."""
    references: tuple[str, ...]
    """Items that it names by their ids only."""
    stream_id: str | None
    """The name of the request on a WebSocket. None: it has none."""
    headers: tuple[tuple[str, str], ...] = ()
    """What Codex says in headers over HTTP, and in each message of a WebSocket (`client_metadata`)."""


class _CacheOptions(msgspec.Struct):
    prewarm: bool | None = None


class _Head(msgspec.Struct):
    input: str | list[msgspec.Raw] | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    generate: bool | None = None
    stream: bool | None = None
    model: str | None = None
    stream_id: str | None = None
    client_metadata: Any = None
    prompt_cache_options: _CacheOptions | None = None


class _Output(msgspec.Struct):
    output: list[msgspec.Raw]


class _Id(msgspec.Struct):
    id: str


_head = msgspec.json.Decoder(_Head)
_output = msgspec.json.Decoder(_Output)
_id = msgspec.json.Decoder(_Id)


def read_head(body: bytes) -> Head:
    """The head of a request; raises `BadRequest`."""
    head = read(_head, body, _WHERE)
    prewarm = head.prompt_cache_options is not None and head.prompt_cache_options.prewarm
    return Head(
        previous_response_id=head.previous_response_id,
        store=head.store is not False,
        generate=head.generate is not False and not prewarm,
        stream=head.stream or False,
        model=head.model,
        references=tuple(id for raw in _listed(head.input) if (id := _reference(raw)) is not None),
        stream_id=head.stream_id,
        headers=tuple(_headers(head.client_metadata)),
    )


def _headers(metadata: Any) -> Iterator[tuple[str, str]]:
    for name, value in metadata.items() if isinstance(metadata, dict) else ():
        if isinstance(value, str) and name.startswith("x-"):
            yield name, value


def _listed(given: str | list[msgspec.Raw] | None) -> list[msgspec.Raw]:
    """An input as items; a text is a message of the user."""
    if isinstance(given, str):
        return [msgspec.Raw(msgspec.json.encode({"type": "message", "role": "user", "content": given}))]
    return given or []


def _reference(raw: msgspec.Raw) -> str | None:
    kind = read(item_kind, raw, "input")
    return kind.id if kind.name() == "item_reference" else None


def with_history(body: bytes, earlier: Sequence[bytes]) -> bytes:
    """The body with earlier items in front of its own, and no `previous_response_id`; raises `BadRequest`.

    The instructions of earlier responses are not among those items: the API does not carry them over.
    """
    own = _listed(read(_head, body, _WHERE).input)
    fields = read(members, body, _WHERE)
    fields.pop("previous_response_id", None)
    items = [msgspec.Raw(item) for item in earlier] + own
    return msgspec.json.encode(fields | {"input": msgspec.Raw(msgspec.json.encode(items))})


def with_references(body: bytes, found: Mapping[str, bytes]) -> bytes:
    """The body with items in place of the references to them, as far as they were found; raises `BadRequest`."""
    items = []
    for raw in _listed(read(_head, body, _WHERE).input):
        item = found.get(_reference(raw) or "")
        items.append(raw if item is None else msgspec.Raw(item))
    return msgspec.json.encode(read(members, body, _WHERE) | {"input": msgspec.Raw(msgspec.json.encode(items))})


_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
    "additional_tools": "at",
}
_ENDED = frozenset(_PREFIXES) - {"reasoning", "additional_tools"}
"""Types of items that are listed with a status."""
_MESSAGE = msgspec.Raw(b'"message"')
_COMPLETED = msgspec.Raw(b'"completed"')
_text = msgspec.json.Decoder(str)


def input_items(body: bytes, id: str) -> list[bytes]:
    """A request's own items as they are listed: messages with parts, each with an id; raises `BadRequest`.

    `id` is the envelope's; the ids of items that came without are made of it.
    """
    return [_normal(raw, f"{id}i{place:02x}") for place, raw in enumerate(_listed(read(_head, body, _WHERE).input))]


def _normal(raw: msgspec.Raw, suffix: str) -> bytes:
    kind, fields = read(item_kind, raw, "input"), read(members, raw, "input")
    name = kind.name()
    if name == "message":
        fields |= {"type": _MESSAGE, "content": _parts(fields, kind.role or "")}
    if name in _ENDED and given(fields.get("status", msgspec.Raw())) is None:
        fields["status"] = _COMPLETED
    if kind.id is None:
        fields["id"] = msgspec.Raw(f'"{_PREFIXES.get(name, "item")}_{suffix}"'.encode())
    return msgspec.json.encode(fields)


def _parts(fields: Members, role: str) -> msgspec.Raw:
    content = fields.get("content", msgspec.Raw(b"[]"))
    if not bytes(content).startswith(b'"'):
        return content
    part: dict[str, Any] = {"type": "output_text" if role == "assistant" else "input_text", "text": content}
    return msgspec.Raw(msgspec.json.encode([part | ({"annotations": []} if role == "assistant" else {})]))


def response_id(reply: bytes) -> str:
    """The id of a response; raises `BadRequest`."""
    return read(_id, reply, "the response").id


def output_items(reply: bytes) -> list[bytes]:
    """The items of a response; raises `BadRequest`."""
    return [bytes(raw) for raw in read(_output, reply, "the response").output]


class _Deleted(msgspec.Struct):
    id: str
    object: str = "response"
    deleted: bool = True


def deleted(id: str) -> bytes:
    """The answer to the deletion of a response."""
    return msgspec.json.encode(_Deleted(id))


class _Page(msgspec.Struct):
    object: str
    data: list[msgspec.Raw]
    first_id: str | None
    last_id: str | None
    has_more: bool


def item_list(items: Sequence[bytes], limit: int = 20, after: str | None = None, order: str = "desc") -> bytes:
    """A page of items, which are given in the order of the conversation; `after`: the last id of the page before.

    Raises `BadRequest` for an order that is neither `asc` nor `desc`, and for an `after` that is no item's id.
    """
    listed = [(read(item_kind, item, "input").id or "", item) for item in items]
    if order not in ("asc", "desc"):
        raise BadRequest(f"order must be asc or desc, not {order!r}")
    if order == "desc":
        listed.reverse()
    ids = [id for id, _ in listed]
    if after is not None and after not in ids:
        raise BadRequest(f"after: there is no item {after!r} here")
    rest = listed[ids.index(after) + 1 :] if after is not None else listed
    page = rest[:limit]
    data = [msgspec.Raw(item) for _, item in page]
    first, last = (page[0][0], page[-1][0]) if page else (None, None)
    return msgspec.json.encode(_Page("list", data, first, last, len(rest) > limit))

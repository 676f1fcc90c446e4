"""What the Responses API remembers: replies that can be asked for again, continued, and deleted."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, TypeVar

import msgspec
from sqlalchemy.exc import DBAPIError

from polarproxy.errors import BadRequest, NotFound, StoreUnavailable
from polarproxy.proxy.routes import Action
from polarproxy.proxy.server.response import Response
from polarproxy.proxy.visit import Said
from polarproxy.store.database import reason
from polarproxy.store.responses import StoredResponse
from polarproxy.wire.responses import items
from polarproxy.wire.responses.settings import previous_not_found

if TYPE_CHECKING:
    from collections.abc import Callable

    from polarproxy.proxy.asking import Asking
    from polarproxy.proxy.parts import Parts
    from polarproxy.proxy.visit import Visit
    from polarproxy.store.responses import FoundResponse
    from polarproxy.wire.responses.items import Head

_T = TypeVar("_T")
_array = msgspec.json.Decoder(list[msgspec.Raw])
_MADE_FROM = re.compile(r"_(c[0-9a-f]{27})")


class _Id(msgspec.Struct):
    id: str = ""


_id = msgspec.json.Decoder(_Id)


class Memory:
    """The responses of one WebSocket, which its client may continue whether they are stored or not.

    A client continues the latest response of its stream: older ones are let go.
    """

    def __init__(self) -> None:
        self._latest: dict[str | None, tuple[str, list[bytes]]] = {}

    def of(self, response_id: str) -> list[bytes] | None:
        """All items up to and with this response; None when it is not of this socket."""
        return next((said for known, said in self._latest.values() if known == response_id), None)

    def remember(self, stream_id: str | None, response_id: str, all_items: list[bytes]) -> None:
        """Keeps them as long as the socket lives, or until the stream's next response. None: the client named no stream."""
        self._latest[stream_id] = (response_id, all_items)


async def with_earlier(
    parts: Parts, visit: Visit, body: bytes, head: Head, memory: Memory | None = None, sent: bytes | None = None
) -> Said:
    """The request with the items of the responses that it continues; raises `BadRequest`.

    `sent`: the body as it came, when it had to be mended.
    """
    whole = await _with_references(parts, visit, body, head.references) if head.references else body
    if head.previous_response_id is None:
        return Said(body, whole, None, head, sent)
    remembered = None if memory is None else memory.of(head.previous_response_id)
    if remembered is not None:
        return Said(body, items.with_history(whole, remembered), None, head, sent)
    chain = await _chain(parts, visit, head.previous_response_id)
    if not chain:
        raise BadRequest(previous_not_found(head.previous_response_id))
    earlier = [item for found in chain for item in found.response.items()]
    return Said(body, items.with_history(whole, earlier), chain[-1].session_id, head, sent)


async def _with_references(parts: Parts, visit: Visit, body: bytes, references: tuple[str, ...]) -> bytes:
    """Items that are named by their ids are looked up in the responses that these ids were made from."""
    found: dict[str, bytes] = {}
    for response_id in {f"resp_{made[1]}" for name in references if (made := _MADE_FROM.search(name))}:
        response = await _find(parts, visit, response_id)
        said = [] if response is None else response.items()
        found |= {item_id: item for item in said if (item_id := _id.decode(item).id) in references}
    return items.with_references(body, found)


async def _chain(parts: Parts, visit: Visit, response_id: str) -> list[FoundResponse]:
    """The responses up to and with this one; empty when one of them is gone, or this one is another session's."""
    chain = await _ask(parts, parts.repository.response_chain, response_id)
    return chain if chain and _is_own(chain[-1], visit) else []


async def _find(parts: Parts, visit: Visit, response_id: str) -> StoredResponse | None:
    """One response; None when there is none of this id, or it is another session's."""
    found = await _ask(parts, parts.repository.response, response_id)
    return found.response if found is not None and _is_own(found, visit) else None


async def _ask(parts: Parts, question: Callable[[str], _T], response_id: str) -> _T:
    """Asks the store; raises `StoreUnavailable` when the answer may be that there is no such response *yet*."""
    waits = parts.spool is not None and len(parts.spool) > 0
    try:
        found = await asyncio.to_thread(question, response_id)
    except DBAPIError as error:
        raise StoreUnavailable(f"the store cannot be read: {reason(error)}") from error
    if not found and waits:
        raise StoreUnavailable(f"response {response_id} may be on its way from the spool to the database; try again")
    return found


def _is_own(found: FoundResponse, visit: Visit) -> bool:
    return visit.address.session_id in (None, found.session_id)


def stored_response(asking: Asking, reply: bytes) -> StoredResponse:
    """A reply as it can be asked for again."""
    own = items.input_items(asking.body, asking.call_id)
    return StoredResponse(
        response_id=f"resp_{asking.call_id}",
        previous_id=asking.previous_id,
        input=msgspec.json.encode([msgspec.Raw(item) for item in own]),
        reply=reply,
    )


async def serve_stored(parts: Parts, visit: Visit) -> Response:
    """GET, DELETE, cancel and input_items of a stored response; raises `BadRequest`, `NotFound`."""
    response_id = visit.route.response_id
    found = await _find(parts, visit, response_id)
    if found is None:
        raise NotFound(f"Response with id '{response_id}' not found.")
    if visit.route.action is Action.CANCEL:
        raise BadRequest("only responses made with background=true can be cancelled, and those are not offered here")
    if visit.route.action is Action.INPUT_ITEMS:
        limit, after, order = (visit.query.get(name) for name in ("limit", "after", "order"))
        return Response.of_json(
            items.item_list(_own(found), limit=_number(limit), after=after, order="asc" if order == "asc" else "desc")
        )
    if visit.method == "DELETE":
        await asyncio.to_thread(parts.repository.forget_response, response_id)
        return Response.of_json(items.deleted(response_id))
    if visit.query.get("stream") == "true":
        raise BadRequest("a stored response cannot be streamed again; ask for it without stream=true")
    return Response.of_json(found.reply)


def _own(found: StoredResponse) -> list[bytes]:
    return [bytes(item) for item in _array.decode(found.input)]


def _number(text: str | None) -> int:
    if text is None:
        return 20
    if not text.isdigit() or not 1 <= int(text) <= 100:
        raise BadRequest(f"limit must be a number from 1 to 100, not {text!r}")
    return int(text)

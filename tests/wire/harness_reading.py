"""Recorded requests of coding agents as the proxy understands them: read in their dialect, written for the engine."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from polarproxy.model import Dialect, Loss
from polarproxy.proxy.dialects import read
from polarproxy.proxy.routes import Action, Route, recognise
from polarproxy.wire.chat.request import decode_request as read_chat
from polarproxy.wire.chat.request import encode_request
from polarproxy.wire.gemini.count import decode_count
from polarproxy.wire.messages.request import decode_request as read_messages
from polarproxy.wire.neutral.request import Decoded
from polarproxy.wire.responses import items
from polarproxy.wire.responses.socket import read_create
from tests.harnesses.recorded import Recorded, recorded


@dataclass(frozen=True)
class Understood:
    """A request as it is understood, and what the engine is asked."""

    request: Recorded
    route: Route
    decoded: Decoded
    asked: Any
    """The chat request for the engine."""
    losses: tuple[tuple[str, Loss], ...]

    @property
    def generates(self) -> bool:
        return self.route.action in (Action.GENERATE, Action.SOCKET) and self.request.body.get("generate") is not False

    @property
    def messages(self) -> list[Any]:
        return list(self.asked["messages"])


def route_of(request: Recorded) -> Route:
    method = "GET" if request.method == "SOCKET" else request.method
    route = recognise(method, request.route, {name.lower() for name, _ in request.headers})
    assert route is not None, request
    return route


def decode(route: Route, body: bytes) -> Decoded:
    match route:
        case Route(dialect=Dialect.CHAT):
            return read_chat(body)
        case Route(dialect=Dialect.MESSAGES, action=Action.COUNT):
            return read_messages(body, counting=True)
        case Route(dialect=Dialect.GEMINI, action=Action.COUNT):
            return decode_count(body, model=route.model or "")
    return read(route, body)


def bodies(harness: str) -> Iterator[tuple[Recorded, bytes]]:
    """Each request that has a body, with all that it continues from."""
    said: dict[str, list[bytes]] = {}
    for request in recorded(harness):
        if request.body is None:
            continue
        if request.method != "SOCKET":
            yield request, request.raw
            continue
        body = read_create(request.raw)
        previous = items.read_head(body).previous_response_id
        if previous is not None:
            body = items.with_history(body, said[previous])
        output = [json.dumps(item).encode() for item in request.reply["output"]]
        said[request.reply["id"]] = [*items.input_items(body, request.reply["id"]), *output]
        yield request, body


@cache
def understood(harness: str) -> tuple[Understood, ...]:
    every = []
    for request, body in bodies(harness):
        route = route_of(request)
        decoded = decode(route, body)
        encoded = encode_request(decoded.request)
        losses = [("decode", loss) for loss in decoded.losses] + [("encode", loss) for loss in encoded.losses]
        every.append(Understood(request, route, decoded, json.loads(encoded.body), tuple(losses)))
    return tuple(every)


def scenarios(harness: str) -> dict[str, list[Understood]]:
    """The requests that ask for an answer, by scenario."""
    found: dict[str, list[Understood]] = defaultdict(list)
    for each in understood(harness):
        if each.generates:
            found[each.request.scenario].append(each)
    return found

"""What a real vLLM answered, as the proxy would see it, and what its readers make of it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from polarproxy.engine.plan import Plan
from polarproxy.engine.vllm import plan
from polarproxy.wire.chat.fields import read_request
from polarproxy.wire.sse import DONE, EventSplitter, encode_event, event_data
from tests.fakes.transcript import by_choice, stable

FOLDER = Path(__file__).parent.parent / "fixtures" / "vllm"


@cache
def _recording(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return content


def request(name: str) -> dict[str, Any]:
    asked: dict[str, Any] = _recording(name)["request"]
    return asked


def whole(name: str) -> bytes:
    body: str = _recording(name)["whole"]["body"]
    return body.encode()


def stream(name: str) -> bytes:
    body: str = _recording(name)["stream"]["body"]
    return body.encode()


def planned(body: dict[str, Any], *, streamed: bool) -> Plan:
    asked = read_request(json.dumps({**body, "stream": streamed}).encode())
    return plan(asked.fields, stream=streamed)


def shown_stream(made: Plan, sent: bytes) -> bytes:
    """The stream that the client sees of the one that the engine sent."""
    shown: list[bytes] = []
    for event in EventSplitter().feed(sent):
        data = event_data(event)
        view = data if data in (None, DONE) else made.reader.event(data or b"")
        if view is not None:
            shown.append(encode_event(view))
    return b"".join(shown)


def events(sent: bytes) -> list[Any]:
    """The events of a stream as values, those of one choice together, without ids and times."""
    texts = [event.removeprefix("data: ") for event in by_choice(sent)]
    return [json.loads(text) if text.startswith("{") else text for text in texts]


def reply(body: bytes) -> Any:
    """A whole reply as a value, without ids and times."""
    return json.loads(stable(body))

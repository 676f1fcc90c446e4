"""What a real vLLM answered on `/v1/completions`, and what its readers make of it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from polarproxy.engine.plan import Plan
from polarproxy.engine.vllm_completions import plan
from polarproxy.wire.completions.fields import read_request
from polarproxy.wire.sse import DONE, EventSplitter, encode_event, event_data

FOLDER = Path(__file__).parent.parent / "fixtures" / "vllm" / "completions"


@cache
def _recordings() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}


def request(name: str) -> dict[str, Any]:
    asked: dict[str, Any] = _recordings()[name]["request"]
    return asked


def whole(name: str) -> bytes:
    body: str = _recordings()[name]["whole"]["body"]
    return body.encode()


def stream(name: str) -> bytes:
    body: str = _recordings()[name]["stream"]["body"]
    return body.encode()


def planned(body: dict[str, Any], *, streamed: bool) -> Plan:
    asked = read_request(json.dumps({**body, "stream": streamed}).encode())
    return plan(asked.fields, stream=streamed)


def sent_for(name: str, *, streamed: bool) -> str:
    """The recording of the request that is sent on behalf of the client of this one."""
    sent = json.loads(planned(request(name), streamed=streamed).body)
    del sent["stream"]
    (found,) = {each for each, recording in _recordings().items() if recording["request"] == sent}
    return found


def shown_stream(made: Plan, sent: bytes) -> bytes:
    """The stream that the client sees of the one that the engine sent."""
    shown: list[bytes] = []
    for event in EventSplitter().feed(sent):
        data = event_data(event)
        view = data if data in (None, DONE) else made.reader.event(data or b"")
        assert view is not None, "every chunk of this API is for every client"
        shown.append(encode_event(view))
    return b"".join(shown)

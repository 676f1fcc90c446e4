"""A stored request as a conversation, for people, whichever dialect it came in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from polarproxy.errors import UNREADABLE, BadRequest
from polarproxy.model import Dialect
from polarproxy.proxy.dialects import read
from polarproxy.proxy.routes import Action, Route, recognise
from polarproxy.wire.chat.request import decode_request as read_chat
from polarproxy.wire.neutral.request import Media, Message, Request, Text, Thinking, ToolResult, ToolUse

if TYPE_CHECKING:
    from polarproxy.model import Call
    from polarproxy.wire.neutral.request import Part


class _Completion(msgspec.Struct):
    prompt: str
    model: str | None = None


def conversation(call: Call) -> list[tuple[str, str]]:
    """Role and content of each message that was sent; empty when the request cannot be read."""
    try:
        if call.dialect is Dialect.COMPLETIONS:
            return [("prompt", str(msgspec.json.decode(call.request_body)["prompt"]))]
        request = read_request(call)
    except (*UNREADABLE, KeyError, TypeError):
        return []
    if request is None:
        return []
    return [(message.role, "\n".join(_said(part) for part in message.parts)) for message in request.messages]


def read_request(call: Call) -> Request | None:
    """What was asked, in no dialect's words. None: it was not kept, or cannot be read."""
    try:
        return _request(call)
    except (BadRequest, *UNREADABLE, KeyError, TypeError):
        return None


def _request(call: Call) -> Request:
    if call.dialect is Dialect.COMPLETIONS:
        asked = msgspec.json.decode(call.request_body, type=_Completion)
        return Request(asked.model, (Message("user", (Text(asked.prompt),)),))
    if call.dialect is Dialect.CHAT:
        return read_chat(call.request_body).request
    _, _, rest = call.path.partition(f"/s/{call.session_id}")
    route = recognise("POST", rest or call.path) or Route(call.dialect, Action.GENERATE)
    return read(route, call.request_body).request


def _said(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case Thinking():
            return f"[thinking] {part.text}"
        case Media():
            return f"[{part.mime}]"
        case ToolUse():
            return f"[calls {part.name}] {part.arguments}"
        case ToolResult():
            return "[result] " + " ".join(_said(inner) for inner in part.content)

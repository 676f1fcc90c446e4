"""Requests as real harnesses send them (their shapes, our words), and short ways to say the rest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from polarproxy.wire.neutral.reply import Envelope
from polarproxy.wire.neutral.request import Decoded, Message, Request
from polarproxy.wire.responses.request import decode_request
from polarproxy.wire.responses.response import context_of

if TYPE_CHECKING:
    from polarproxy.model import Loss

ID = "0123456789abcdef0123456789abcdef"
PARAMETERS = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
RUN = {"type": "function", "name": "run", "description": "Runs it.", "strict": False, "parameters": PARAMETERS}
AGENTS = {
    "type": "namespace",
    "name": "agents",
    "description": "Other agents.",
    "tools": [{"type": "function", "name": "spawn", "strict": False, "parameters": PARAMETERS}],
}
PATCH = {
    "type": "custom",
    "name": "patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
}
SHELL = {"type": "local_shell"}
SEARCH = {"type": "web_search", "external_web_access": True}


def text(role: str, *texts: str, **more: object) -> dict[str, Any]:
    """A typed message as Codex sends it."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": said} for said in texts], **more}


def codex() -> dict[str, Any]:
    """The second turn of Codex: a call was made and answered."""
    return {
        "model": "asked-model",
        "stream": True,
        "input": [
            text("developer", "You are a careful agent.", id="msg_1"),
            text("developer", "Rules.", "More rules.", id="msg_2"),
            text("user", "make the file", id="msg_3"),
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "short"}],
                "content": [{"type": "reasoning_text", "text": "I should run it."}],
                "encrypted_content": "foreign-token",
            },
            text("assistant", "I will run it.", id="msg_4", status="completed"),
            {
                "type": "function_call",
                "status": "completed",
                "id": "fc_1",
                "name": "run",
                "arguments": '{"cmd": "ls"}',
                "call_id": "call_1",
            },
            {"type": "function_call_output", "id": "fco_1", "call_id": "call_1", "output": "a.txt"},
        ],
        "tools": [RUN, AGENTS, SEARCH],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "01a2-key",
        "client_metadata": {"session_id": "01a2-key", "turn_id": ""},
    }


def request(*items: dict[str, Any], **members: object) -> bytes:
    """A request with these items."""
    return json.dumps({"model": "m", "input": list(items), **members}).encode()


def decoded(*items: dict[str, Any], **members: object) -> Decoded:
    """What a request with these items is read as."""
    return decode_request(request(*items, **members))


def messages(*items: dict[str, Any], **members: object) -> tuple[Message, ...]:
    """The messages of a request that is read without loss."""
    read = decoded(*items, **members)
    assert read.losses == ()
    return read.request.messages


def losses(*items: dict[str, Any], **members: object) -> list[str]:
    """The places of what was lost."""
    return [loss.where for loss in decoded(*items, **members).losses]


def places(lost: tuple[Loss, ...] | list[Loss]) -> list[str]:
    """The places of losses."""
    return [loss.where for loss in lost]


def envelope(body: bytes | None = None) -> Envelope:
    """An envelope around the answer to a request."""
    if body is None:
        return Envelope(ID, 1_760_000_000, "asked-model", Request("asked-model", ()))
    return Envelope(ID, 1_760_000_000, "asked-model", decode_request(body).request, context_of(body))

"""Requests as real harnesses send them: keys, types and order are theirs, the prose is ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from polarproxy.wire.messages.request import decode_request

if TYPE_CHECKING:
    from polarproxy.wire.neutral.request import Decoded

EPHEMERAL = {"type": "ephemeral"}
BILLING = "x-anthropic-billing-header: cc_version=2.1.332.4f9; cc_entrypoint=sdk-cli;"
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
PLACEHOLDER = {
    "name": "DeferredToolPlaceholder",
    "description": "Stands in.",
    "input_schema": SCHEMA,
    "defer_loading": True,
}


def claude_code(**changes: Any) -> dict[str, Any]:
    """The second request of a Claude Code session: one tool call has been answered."""
    return {
        "model": "mock-model",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<reminder>\nThis machine is a sandbox.\n</reminder>\n"},
                    {"type": "text", "text": "create out.txt containing hello"},
                ],
            },
            {"role": "system", "content": "# Environment\nThe shell is bash."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "A shell can do that.", "signature": "c2lnbmF0dXJl"},
                    {"type": "text", "text": "I will run a command."},
                    {
                        "type": "tool_use",
                        "id": "toolu_01",
                        "name": "Bash",
                        "input": {"command": "echo hello > out.txt"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "tool_use_id": "toolu_01",
                        "type": "tool_result",
                        "content": "(no output)",
                        "is_error": False,
                        "cache_control": EPHEMERAL,
                    }
                ],
            },
        ],
        "system": [
            {"type": "text", "text": BILLING},
            {"type": "text", "text": "You help with code.", "cache_control": EPHEMERAL},
            {"type": "text", "text": "\nUse tools.", "cache_control": EPHEMERAL},
        ],
        "tools": [{"name": "Bash", "description": "Runs a command.", "input_schema": SCHEMA}, PLACEHOLDER],
        "metadata": {"user_id": '{"device_id":"ab","account_uuid":"","session_id":"6f0e"}'},
        "max_tokens": 32000,
        "thinking": {"type": "adaptive", "display": "updates"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
    } | changes


def small(**changes: Any) -> dict[str, Any]:
    """The least that is a request."""
    return {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]} | changes


def decode(body: dict[str, Any], *, counting: bool = False) -> Decoded:
    """Reads a body given as a value."""
    return decode_request(msgspec.json.encode(body), counting=counting)

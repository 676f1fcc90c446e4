"""A real server that speaks vLLM's JSON and SSE from a script, with faults on request."""

from tests.fakes.compose import Tool, compose
from tests.fakes.engine import Disconnect, FakeEngine, Received
from tests.fakes.faults import Faults
from tests.fakes.script import Delta, Reply, Script, Step, Token, ToolDelta, Turn, always, in_order

__all__ = [
    "Delta",
    "Disconnect",
    "FakeEngine",
    "Faults",
    "Received",
    "Reply",
    "Script",
    "Step",
    "Token",
    "Tool",
    "ToolDelta",
    "Turn",
    "always",
    "compose",
    "in_order",
]

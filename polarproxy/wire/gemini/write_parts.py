"""Parts of the model, as requests repeat them and replies say them."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from polarproxy.wire.gemini.shapes import FunctionCall, Part
from polarproxy.wire.neutral.arguments import to_object


def call_part(call_id: str, name: str, arguments: str, signature: str | UnsetType = UNSET) -> tuple[Part, bool]:
    """A call, and whether its arguments had to be wrapped since they are no JSON object."""
    args, well_formed = to_object(arguments)
    # A line break can only stand between values here, and would end a line of the stream.
    on_one_line = args.replace(b"\r", b" ").replace(b"\n", b" ")
    call = FunctionCall(call_id or UNSET, name, msgspec.Raw(on_one_line))
    return Part(function_call=call, thought_signature=signature), not well_formed

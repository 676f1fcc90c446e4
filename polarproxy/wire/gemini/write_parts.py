"""Parts of the model, as requests repeat them and replies say them."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from polarproxy.wire.gemini.arguments import arguments_object
from polarproxy.wire.gemini.shapes import FunctionCall, Part


def call_part(call_id: str, name: str, arguments: str, signature: str | UnsetType = UNSET) -> tuple[Part, bool]:
    """A call, and whether its arguments had to be wrapped since they are no JSON object."""
    args, malformed = arguments_object(arguments)
    call = FunctionCall(call_id or UNSET, name, msgspec.Raw(args))
    return Part(function_call=call, thought_signature=signature), malformed

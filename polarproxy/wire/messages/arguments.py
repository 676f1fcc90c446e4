"""Arguments of tool calls in a dialect that has them as a JSON object, where the engine has text.

Text that is a JSON object stands in the body as it is, so that spelling and order of keys survive. Any other text is
wrapped, `{"_malformed_arguments": "<the text>"}`, and comes back out of the wrapper. No text at all is `{}`.
"""

from __future__ import annotations

import msgspec

WRAPPER = "_malformed_arguments"
MALFORMED = f"the arguments are not a JSON object; sent as text in the member {WRAPPER}"


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True, rename={"text": WRAPPER}):
    text: str


_object = msgspec.json.Decoder(dict[str, object])
_wrapped = msgspec.json.Decoder(_Wrapped)


def is_object(text: str) -> bool:
    """Whether a text is a complete JSON object."""
    # Looking at the last character first makes this cheap for the many texts that are not complete yet.
    if not text.rstrip().endswith("}"):
        return False
    try:
        _object.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def to_input(arguments: str) -> tuple[msgspec.Raw, bool]:
    """The `input` of a tool call, and whether its arguments were well formed (an object, or nothing)."""
    if not arguments:
        return msgspec.Raw(b"{}"), True
    if is_object(arguments):
        return msgspec.Raw(arguments.encode()), True
    return msgspec.Raw(msgspec.json.encode(_Wrapped(arguments))), False


def from_input(raw: bytes) -> str:
    """The arguments of an `input`, whose JSON is an object."""
    if WRAPPER.encode() in raw:
        try:
            return _wrapped.decode(raw).text
        except msgspec.ValidationError:
            pass  # the model's own member of that name
    return raw.decode()

"""Arguments of tool calls in dialects that have them as a JSON object, where the engine and the neutral form have text.

Text that is a JSON object stands in the body as it is, so that spelling and order of keys survive; only the space around it
does not come back. Text that is blank is `{}`. Any other text is wrapped, never repaired, and comes back out of the wrapper;
so is an object that looks like a wrapper.
"""

from __future__ import annotations

import msgspec

from polarproxy.errors import UNREADABLE

WRAPPER = "_malformed_arguments"
"""The one member of an object that holds a text which is none."""
MALFORMED = f"the arguments are no JSON object; passed as the text in `{WRAPPER}`"
_SPACE = " \t\n\r"


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True, rename={"text": WRAPPER}):
    text: str


_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_wrapped = msgspec.json.Decoder(_Wrapped)


def is_object(text: str) -> bool:
    """Whether a text is a complete JSON object."""
    try:
        _object.decode(text)
    except UNREADABLE:
        return False
    return True


def to_object(arguments: str) -> tuple[bytes, bool]:
    """Arguments as an object without space around it, and whether they were an object or blank; else it is a wrapper."""
    text = arguments.strip(_SPACE)
    if not text:
        return b"{}", True
    if is_object(text) and _unwrapped(text) is None:
        return text.encode(), True
    return msgspec.json.encode(_Wrapped(arguments)), False


def from_object(raw: bytes) -> str:
    """The arguments that an object says: what was wrapped, or the JSON as it is spelled."""
    text = raw.decode()
    wrapped = _unwrapped(text)
    return text if wrapped is None else wrapped


def _unwrapped(text: str) -> str | None:
    """The text in a wrapper. None: it is no wrapper, though the model may have a member of that name."""
    if WRAPPER not in text:
        return None
    try:
        return _wrapped.decode(text).text
    except UNREADABLE:
        return None

"""Arguments of tool calls, which are text in the neutral form and an object in this dialect.

Text that is a JSON object is passed as its own bytes, and no text at all as `{}`. Any other text is wrapped, never
repaired; so is an object that looks like a wrapper, so that unwrapping always gives back the text that was wrapped.
"""

from __future__ import annotations

import msgspec

_WRAPPER = "_malformed_arguments"
WRAPPED = f"the arguments are no JSON object; passed as the text in `{_WRAPPER}`"


class _Wrapper(msgspec.Struct, forbid_unknown_fields=True):
    text: str = msgspec.field(name=_WRAPPER)


def input_of(arguments: str) -> tuple[msgspec.Raw, bool]:
    """Arguments as an object, and whether they had to be wrapped."""
    text = arguments.encode() or b"{}"
    if _is_object(text) and _wrapped(text) is None:
        return msgspec.Raw(text), False
    return msgspec.Raw(msgspec.json.encode(_Wrapper(arguments))), True


def arguments_of(value: msgspec.Raw) -> str:
    """The text of arguments: what was wrapped, or the JSON as it is spelled."""
    text = bytes(value)
    wrapped = _wrapped(text)
    return text.decode() if wrapped is None else wrapped


def _is_object(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    # Space around it would not come back: a reader of the whole body sees the object alone.
    return text == text.strip()


def _wrapped(text: bytes) -> str | None:
    if _WRAPPER.encode() not in text:
        return None
    try:
        return msgspec.json.decode(text, type=_Wrapper).text
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None

"""Answers of tools: JSON objects here, texts everywhere else."""

from __future__ import annotations

import msgspec

from polarproxy.errors import UNREADABLE

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_FALSE = (b"null", b'""', b"false")


def _members(text: str) -> dict[str, msgspec.Raw] | None:
    """The members of a JSON object. None: the text is none."""
    try:
        return _OBJECT.decode(text)
    except UNREADABLE:
        return None


def _only_string(fields: dict[str, msgspec.Raw], name: str) -> str | None:
    """The string that is the object's only member, under this name. None: it is something else."""
    value = fields.get(name)
    if value is None or len(fields) != 1 or not bytes(value).startswith(b'"'):
        return None
    return _TEXT.decode(value)


def result_text(response: bytes | None) -> tuple[str | None, bool]:
    """A tool's answer as text, and whether it is an error. None: it answered nothing.

    `{"output": "…"}` and `{"error": "…"}`, the two forms that the API's documentation names, are their string; any other
    object is its own bytes, and an error when it has an `error` that is not empty.
    """
    text = (response or b"{}").decode()
    fields = _members(text)
    if not fields:
        return None, False
    output = _only_string(fields, "output")
    if output is not None:
        return output, False
    error = _only_string(fields, "error")
    if error is not None:
        return error, True
    return text, "error" in fields and bytes(fields["error"]) not in _FALSE


def result_object(text: str, is_error: bool) -> bytes:
    """The object that `result_text` reads as this text; the text's own bytes where that is possible."""
    if text.startswith("{") and text.endswith("}") and result_text(text.encode()) == (text, is_error):
        return text.encode()
    return msgspec.json.encode({"error" if is_error else "output": text})

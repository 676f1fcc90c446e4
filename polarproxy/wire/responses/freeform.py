"""The input of a freeform (`custom`) tool, inside the JSON arguments that the engine samples.

The engine knows such a tool as a function with one string, `input`; the client wants that string bare, and while it is
still being sampled. So the string is unescaped as it arrives; only arguments of another shape wait for their end.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

PARAMETERS = (
    b'{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool, as plain text."}},'
    b'"required":["input"],"additionalProperties":false}'
)
"""JSON schema of the function that a freeform tool becomes."""

_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_LONGEST_HEAD = 64
_PLAIN = re.compile(r'[^"\\]+')
_HIGH = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")
_LOW = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_CODE = re.compile(r"\\u[0-9a-fA-F]{4}")
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}


class _Arguments(msgspec.Struct):
    input: str


_arguments = msgspec.json.Decoder(_Arguments)
_MORE = "the arguments say more than the input; the rest is left out"


def arguments_of(input: str) -> str:
    """The arguments that say this input."""
    return '{"input":' + msgspec.json.encode(input).decode() + "}"


class FreeformInput:
    """Unescapes the input while its arguments arrive in pieces; any cutting gives the same input."""

    def __init__(self) -> None:
        self._where: Literal["head", "inside", "after", "elsewhere"] = "head"
        self._held: list[str] = []
        """Text that is not unescaped yet; what follows the string once that has ended."""

    def feed(self, text: str) -> str:
        """More of the arguments; gives what more of the input is known by it."""
        self._held.append(text)
        if self._where == "head":
            self._look_for_head()
        return self._unescape(last=False) if self._where == "inside" else ""

    def close(self) -> tuple[str, str | None]:
        """The rest of the input, and what is wrong with the arguments; None: they say this input and nothing else."""
        rest = self._unescape(last=True) if self._where == "inside" else ""
        held = "".join(self._held)
        match self._where:
            case "inside":
                return rest, "the arguments were cut within the input"
            case "after":
                return rest, None if held.strip() == "}" else _MORE
        try:
            return _arguments.decode(held).input, _MORE
        except msgspec.DecodeError:
            return held, 'the arguments are not of the form {"input": …}; the input is their whole text'

    def _look_for_head(self) -> None:
        held = "".join(self._held)
        if head := _HEAD.match(held[:_LONGEST_HEAD]):
            self._held, self._where = [held[head.end() :]], "inside"
        elif len(held) > _LONGEST_HEAD:
            self._where = "elsewhere"

    def _unescape(self, *, last: bool) -> str:
        text, place, known = "".join(self._held), 0, []
        while place < len(text) and text[place] != '"':
            unit = _next_unit(text, place, last=last)
            if unit is None:
                break
            said, place = unit
            known.append(said)
        if text[place : place + 1] == '"':
            self._where = "after"
            place += 1
        self._held = [text[place:]]
        return "".join(known)


def _next_unit(text: str, place: int, *, last: bool) -> tuple[str, int] | None:
    """Some unescaped text and where it ends; None when it is an escape that more text may yet change."""
    if plain := _PLAIN.match(text, place):
        return plain[0], plain.end()
    if text[place + 1 : place + 2] not in ("u", ""):
        letter = text[place + 1]
        return _SIMPLE.get(letter, "\\" + letter), place + 2
    high = _HIGH.match(text, place)
    if not last and len(text) - place < (12 if high else 6):
        return None
    if high and (low := _LOW.match(text, high.end())):
        return bytes.fromhex(high[0][2:] + low[0][2:]).decode("utf-16-be"), low.end()
    if code := _CODE.match(text, place):
        # A surrogate without its other half is no character; nothing could be sent for it.
        value = chr(int(code[0][2:], 16))
        return "\ufffd" if "\ud800" <= value <= "\udfff" else value, code.end()
    return "\\", place + 1

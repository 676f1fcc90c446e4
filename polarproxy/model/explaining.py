"""What a file's author did wrong, in words: msgspec says what is not right, and this adds what would be."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from msgspec import inspect

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_VALUE = re.compile(r"Invalid (?:enum )?value (.*?)(?: - at |$)")
_PLACE = re.compile(r" - at `\$(.*?)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[[^\]]*\]")


def explained(error: Exception, root: type) -> str:
    """The text of the error that came out of reading a `root`: with the nearest key for one that there is not, and with the
    words that may stand where another one does."""
    text = str(error)
    place = _PLACE.search(text)
    here = list(_at(inspect.type_info(root), _STEP.findall(place[1]) if place else []))
    if (unknown := _UNKNOWN.match(text)) is not None:
        names = [field.encode_name for one in here if isinstance(one, inspect.StructType) for field in one.fields]
        near = difflib.get_close_matches(unknown[1], names, n=1, cutoff=0.0)
        return f"{text}; did you mean `{near[0]}`?" if near else text
    if _VALUE.match(text) is not None:
        return f"{text}; it is one of {', '.join(words)}" if (words := list(_words(here))) else text
    return text


def _at(kind: inspect.Type, steps: list[str]) -> Iterator[inspect.Type]:
    """The types that may stand at a place. A step is the name of a field, or empty for an item."""
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _at(one, steps)
    elif not steps:
        yield kind
    elif isinstance(kind, inspect.StructType):
        if steps == [kind.tag_field]:
            yield kind
        for field in kind.fields:
            if field.encode_name == steps[0]:
                yield from _at(field.type, steps[1:])
    elif isinstance(kind, inspect.DictType) and not steps[0]:
        yield from _at(kind.value_type, steps[1:])
    elif isinstance(kind, inspect.VarTupleType | inspect.ListType) and not steps[0]:
        yield from _at(kind.item_type, steps[1:])


def _words(kinds: list[inspect.Type]) -> Iterator[str]:
    for one in kinds:
        if isinstance(one, inspect.LiteralType):
            yield from map(str, one.values)
        elif isinstance(one, inspect.EnumType):
            yield from (str(member.value) for member in one.cls)
        elif isinstance(one, inspect.StructType) and isinstance(one.tag, str):
            yield one.tag

"""Whether a JSON value follows a schema: the part of JSON Schema that tasks use. Other keywords are refused, not ignored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from polarproxy.errors import BadReward

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value == int(value),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def _same(left: Any, right: Any) -> bool:
    """JSON's equality: true is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _type(value: Any, wanted: Any, _schema: Mapping[str, Any]) -> bool:
    return any(_TYPES[name](value) for name in ([wanted] if isinstance(wanted, str) else wanted))


def _properties(value: Any, wanted: Any, schema: Mapping[str, Any]) -> bool:
    if not isinstance(value, dict):
        return True
    return all(follows(value[name], own) for name, own in wanted.items() if name in value)


def _additional(value: Any, wanted: Any, schema: Mapping[str, Any]) -> bool:
    if not isinstance(value, dict):
        return True
    return all(follows(own, wanted) for name, own in value.items() if name not in schema.get("properties", {}))


_CHECKS: dict[str, Callable[[Any, Any, Mapping[str, Any]], bool]] = {
    "type": _type,
    "enum": lambda value, wanted, _: any(_same(value, one) for one in wanted),
    "const": lambda value, wanted, _: _same(value, wanted),
    "properties": _properties,
    "additionalProperties": _additional,
    "required": lambda value, wanted, _: not isinstance(value, dict) or all(name in value for name in wanted),
    "items": lambda value, wanted, _: not isinstance(value, list) or all(follows(one, wanted) for one in value),
    "minItems": lambda value, wanted, _: not isinstance(value, list) or len(value) >= wanted,
    "maxItems": lambda value, wanted, _: not isinstance(value, list) or len(value) <= wanted,
    "minLength": lambda value, wanted, _: not isinstance(value, str) or len(value) >= wanted,
    "maxLength": lambda value, wanted, _: not isinstance(value, str) or len(value) <= wanted,
    "pattern": lambda value, wanted, _: not isinstance(value, str) or re.search(wanted, value) is not None,
    "minimum": lambda value, wanted, _: not _TYPES["number"](value) or value >= wanted,
    "maximum": lambda value, wanted, _: not _TYPES["number"](value) or value <= wanted,
    "anyOf": lambda value, wanted, _: any(follows(value, one) for one in wanted),
    "allOf": lambda value, wanted, _: all(follows(value, one) for one in wanted),
    "oneOf": lambda value, wanted, _: sum(follows(value, one) for one in wanted) == 1,
    "not": lambda value, wanted, _: not follows(value, wanted),
}
_WORDS = ("title", "description", "$schema", "$id", "default", "examples")
"""Keywords that say nothing about a value."""
_INSIDE = ("anyOf", "allOf", "oneOf")


def check_schema(schema: Any, where: str = "schema") -> None:
    """Raises `BadReward` when a schema is none, or uses a keyword that is not known here."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise BadReward(f"{where} is no JSON schema: it must be an object, true or false")
    for name, value in schema.items():
        if name not in _CHECKS and name not in _WORDS:
            raise BadReward(f"{where}: the keyword {name!r} is not supported; known are {', '.join(_CHECKS)}")
        if name == "type" and not all(one in _TYPES for one in ([value] if isinstance(value, str) else value)):
            raise BadReward(f"{where}.type: {value!r} is no type; there are {', '.join(_TYPES)}")
        if name == "pattern":
            check_pattern(value, f"{where}.pattern")
    for name, own in schema.get("properties", {}).items():
        check_schema(own, f"{where}.properties.{name}")
    for name in ("items", "additionalProperties", "not"):
        if name in schema:
            check_schema(schema[name], f"{where}.{name}")
    for name in _INSIDE:
        for place, own in enumerate(schema.get(name, ())):
            check_schema(own, f"{where}.{name}[{place}]")


def check_pattern(pattern: str, where: str) -> None:
    """Raises `BadReward` for what is no regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise BadReward(f"{where} is no regular expression: {error}") from error


def follows(value: Any, schema: Any) -> bool:
    """Whether a decoded JSON value follows a schema that was checked."""
    if isinstance(schema, bool):
        return schema
    return all(check(value, schema[name], schema) for name, check in _CHECKS.items() if name in schema)

"""Gemini's schemas, a dialect of OpenAPI 3.0, as JSON Schema.

Types are written in capitals, null is said by `nullable`, and lengths may be strings. Clients mix both languages (Gemini CLI
writes `OBJECT` in `responseJsonSchema`), so every schema is read by the same rules, and one that needs no change keeps its
bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from polarproxy.errors import UNREADABLE, BadRequest

_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})
_SNAKE = {
    "any_of": "anyOf",
    "additional_properties": "additionalProperties",
    "max_items": "maxItems",
    "min_items": "minItems",
    "max_length": "maxLength",
    "min_length": "minLength",
    "max_properties": "maxProperties",
    "min_properties": "minProperties",
    "property_ordering": "propertyOrdering",
    "defs": "$defs",
    "ref": "$ref",
}
_COUNTS = frozenset({"maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties"})
_ONE = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
_SEVERAL = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})


def json_schema(schema: bytes, where: str) -> bytes:
    """The schema in JSON Schema's own words; raises `BadRequest` when it cannot be read."""
    try:
        given = msgspec.json.decode(schema)
        meant = _schema(given)
    except UNREADABLE as error:
        raise BadRequest(f"{where} is not a schema: {error}") from error
    return schema if meant == given else msgspec.json.encode(meant)


def _schema(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    meant: dict[str, Any] = {}
    for own, value in schema.items():
        name = _SNAKE.get(str(own), str(own))
        meant[name] = _value(name, value)
    if meant.get("type") == "TYPE_UNSPECIFIED":
        del meant["type"]
    return _nullable(meant, meant.pop("nullable")) if isinstance(meant.get("nullable"), bool) else meant


def _value(name: str, value: Any) -> Any:
    if name == "type":
        return [_type(one) for one in value] if isinstance(value, list) else _type(value)
    if name in _COUNTS and isinstance(value, str) and value.isdecimal():
        return int(value)
    if name in _ONE:
        return _schema(value)
    if name in _SEVERAL and isinstance(value, list):
        return [_schema(one) for one in value]
    if name in _NAMED and isinstance(value, dict):
        return {key: _schema(one) for key, one in value.items()}
    return value


def _type(name: Any) -> Any:
    return name.lower() if isinstance(name, str) and name in _TYPES else name


def _nullable(schema: dict[str, Any], nullable: bool) -> dict[str, Any]:
    if not nullable:
        return schema
    if isinstance(schema.get("type"), str) and schema["type"] != "null":
        schema["type"] = [schema["type"], "null"]
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    if isinstance(schema.get("anyOf"), list):
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    return schema

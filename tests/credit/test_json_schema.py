"""JSON Schema, the part that is known: what follows it, what does not, and keywords that are refused."""

from typing import Any

import pytest

from polarproxy.credit.json_schema import check_schema, follows
from polarproxy.errors import BadReward

CASES: list[tuple[Any, Any, bool]] = [
    (True, 1, True),
    (False, 1, False),
    ({"type": "integer"}, 1.0, True),
    ({"type": "integer"}, 1.5, False),
    ({"type": "number"}, True, False),
    ({"type": ["null", "string"]}, None, True),
    ({"enum": [1, "a"]}, True, False),
    ({"const": 1}, 1.0, True),
    ({"required": ["a"]}, {"a": None}, True),
    ({"required": ["a"]}, {}, False),
    ({"properties": {"a": {"type": "string"}}}, {"a": 1}, False),
    ({"properties": {"a": True}, "additionalProperties": False}, {"a": 1, "b": 2}, False),
    ({"additionalProperties": {"type": "string"}}, {"b": "x"}, True),
    ({"items": {"type": "string"}, "minItems": 1, "maxItems": 2}, ["a"], True),
    ({"items": {"type": "string"}}, ["a", 1], False),
    ({"minItems": 1}, [], False),
    ({"maxItems": 1}, [1, 2], False),
    ({"minLength": 2}, "a", False),
    ({"maxLength": 2}, "abc", False),
    ({"pattern": "^a"}, "ba", False),
    ({"minimum": 2}, 1, False),
    ({"maximum": 2}, 3, False),
    ({"minimum": 2}, "1", True),
    ({"anyOf": [{"type": "null"}, {"minimum": 3}]}, 2, False),
    ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 2, True),
    ({"oneOf": [{"minimum": 1}, {"maximum": 3}]}, 2, False),
    ({"not": {"type": "null"}}, None, False),
    ({"title": "what it is", "type": "object"}, {}, True),
]


@pytest.mark.parametrize(("schema", "value", "expected"), CASES)
def test_by_hand(schema: Any, value: Any, expected: bool) -> None:
    check_schema(schema)
    assert follows(value, schema) is expected


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (1, "no JSON schema"),
        ({"requierd": ["a"]}, "'requierd' is not supported"),
        ({"properties": {"a": {"format": "date"}}}, r"schema\.properties\.a: the keyword 'format'"),
        ({"anyOf": [{"type": "text"}]}, r"anyOf\[0\]\.type: 'text' is no type"),
        ({"items": {"pattern": "("}}, r"items\.pattern is no regular expression"),
    ],
)
def test_what_is_not_known_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(BadReward, match=why):
        check_schema(schema)

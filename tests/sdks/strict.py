"""SDKs build their objects from whatever comes; here they are held to their own types."""

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter

_Model = TypeVar("_Model", bound=BaseModel)


def valid(model: _Model, kind: Any = None, *, known: frozenset[str] = frozenset()) -> _Model:
    """The object, which has all members that its class requires, of the right types, and no others but `known`.

    `kind` is the type that it must be read as, its own class unless given. Raises `AssertionError`, `ValidationError`.
    """
    again = _adapter(kind or type(model)).validate_python(model.model_dump(by_alias=True, exclude_unset=True))
    assert type(again) is type(model)
    assert set(_extra(model)) - known == set()
    return model


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _extra(value: object) -> Iterator[str]:
    """Names of members that the classes do not have, at any depth."""
    if isinstance(value, BaseModel):
        yield from value.model_extra or ()
        value = [getattr(value, name) for name in type(value).model_fields]
    if isinstance(value, list):
        for inner in value:
            yield from _extra(inner)

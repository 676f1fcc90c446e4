"""`GET /v1beta/models` and `GET /v1beta/models/{model}`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

if TYPE_CHECKING:
    from collections.abc import Iterable

_METHODS = ("generateContent", "streamGenerateContent", "countTokens")


class _Model(msgspec.Struct, rename="camel"):
    name: str
    version: str
    display_name: str
    input_token_limit: int | UnsetType
    output_token_limit: int | UnsetType
    supported_generation_methods: tuple[str, ...]


def _model(model: str, context_length: int | None) -> _Model:
    limit = UNSET if context_length is None else context_length
    return _Model(f"models/{model}", "001", model, limit, limit, _METHODS)


def encode_models(models: Iterable[str], context_length: int | None) -> bytes:
    """The list of models. `context_length`: tokens of prompt and reply together. None: not known."""
    return msgspec.json.encode({"models": [_model(model, context_length) for model in models]})


def encode_model(model: str, context_length: int | None) -> bytes:
    """One model, by the name that the client used, without `models/`."""
    return msgspec.json.encode(_model(model, context_length))

"""The list of models. Source: Anthropic API reference, "List models", "Get a model"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_LIMIT = 20
MOST = 1000


class _Model(msgspec.Struct, tag="model"):
    id: str
    display_name: str
    created_at: str = "1970-01-01T00:00:00Z"
    """What the API says of a model whose age is not known."""
    lifecycle: str = "active"


class _Page(msgspec.Struct):
    data: list[_Model]
    has_more: bool
    first_id: str | None
    last_id: str | None


def encode_model(model: str) -> bytes:
    """One model."""
    return msgspec.json.encode(_Model(model, model))


def encode_models(
    ids: Sequence[str], limit: int | None, *, after_id: str | None = None, before_id: str | None = None
) -> bytes:
    """A page of the list, in the order given. `limit` None: 20. A cursor that is not in the list cuts nothing off."""
    size = DEFAULT_LIMIT if limit is None else min(max(limit, 1), MOST)
    start = ids.index(after_id) + 1 if after_id in ids else 0
    end = ids.index(before_id) if before_id in ids else len(ids)
    window = ids[start:end]
    # Going backwards, a page ends where the cursor stands.
    page = window[-size:] if before_id in ids and after_id not in ids else window[:size]
    models = [_Model(each, each) for each in page]
    more = len(window) > size
    return msgspec.json.encode(_Page(models, more, page[0] if page else None, page[-1] if page else None))

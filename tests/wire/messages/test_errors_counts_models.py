"""The small bodies: errors, counts, lists of models."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polarproxy.wire.messages.count import encode_count
from polarproxy.wire.messages.errors import KEEPALIVE, NO_THREADS, client_status, encode_error
from polarproxy.wire.messages.models import encode_model, encode_models


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (409, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_errors(status: int, kind: str) -> None:
    message = "This model's maximum context length is 2048 tokens. “So” it is."
    assert msgspec.json.decode(encode_error(status, message)) == {
        "type": "error",
        "error": {"type": kind, "message": message},
    }


def test_an_error_that_programs_act_upon_has_a_code() -> None:
    error = msgspec.json.decode(encode_error(400, NO_THREADS))["error"]
    assert error["type"] == "invalid_request_error"
    assert error["details"] == {"error_code": "thread_unsupported_request"}


def test_only_overload_has_another_status() -> None:
    assert [client_status(status) for status in (400, 429, 500, 503, 529)] == [400, 429, 500, 529, 529]


def test_the_keepalive_is_a_ping() -> None:
    assert KEEPALIVE == b'event: ping\ndata: {"type":"ping"}\n\n'


def test_a_count() -> None:
    assert encode_count(17) == b'{"input_tokens":17}'


def _page(*arguments: Any, **keywords: Any) -> Any:
    return msgspec.json.decode(encode_models(*arguments, **keywords))


def test_a_list_of_models() -> None:
    assert _page(["a", "b"], None) == {
        "data": [msgspec.json.decode(encode_model("a")), msgspec.json.decode(encode_model("b"))],
        "has_more": False,
        "first_id": "a",
        "last_id": "b",
    }
    assert _page([], 1000) == {"data": [], "has_more": False, "first_id": None, "last_id": None}


def test_one_model() -> None:
    assert msgspec.json.decode(encode_model("vendor/a")) == {
        "type": "model",
        "id": "vendor/a",
        "display_name": "vendor/a",
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
    }


@pytest.mark.parametrize(
    ("limit", "cursor", "ids", "more"),
    [
        (2, {}, ["a", "b"], True),
        (2, {"after_id": "b"}, ["c", "d"], False),
        (3, {"after_id": "a"}, ["b", "c", "d"], False),
        (2, {"after_id": "d"}, [], False),
        (2, {"before_id": "d"}, ["b", "c"], True),
        (5, {"before_id": "c"}, ["a", "b"], False),
        (4, {"after_id": "gone"}, ["a", "b", "c", "d"], False),
        (0, {}, ["a"], True),
        (None, {}, ["a", "b", "c", "d"], False),
    ],
)
def test_pages(limit: int | None, cursor: dict[str, str], ids: list[str], more: bool) -> None:
    page = _page(["a", "b", "c", "d"], limit, **cursor)
    assert ([model["id"] for model in page["data"]], page["has_more"]) == (ids, more)


def test_a_page_has_twenty_unless_asked_otherwise() -> None:
    assert len(_page([str(number) for number in range(30)], None)["data"]) == 20

"""Errors, by the names and statuses of the service model that botocore ships."""

from __future__ import annotations

import json

import botocore.session  # type: ignore[import-untyped]
import pytest

from polarproxy.wire.bedrock.errors import KEEPALIVE, client_status, encode_error, error_headers

STATUSES = (400, 401, 403, 404, 408, 409, 413, 415, 422, 424, 429, 500, 501, 502, 503, 504, 529)


@pytest.mark.parametrize(
    ("ours", "theirs", "name"),
    [
        (400, 400, "ValidationException"),
        (401, 403, "AccessDeniedException"),
        (403, 403, "AccessDeniedException"),
        (404, 404, "ResourceNotFoundException"),
        (408, 408, "ModelTimeoutException"),
        (409, 409, "ConflictException"),
        (413, 413, "ValidationException"),
        (424, 424, "ModelErrorException"),
        (429, 429, "ThrottlingException"),
        (500, 500, "InternalServerException"),
        (502, 503, "ServiceUnavailableException"),
        (503, 503, "ServiceUnavailableException"),
        (504, 408, "ModelTimeoutException"),
        (529, 503, "ServiceUnavailableException"),
    ],
)
def test_errors_by_status(ours: int, theirs: int, name: str) -> None:
    assert client_status(ours) == client_status(theirs) == theirs
    assert error_headers(ours) == error_headers(theirs) == {"x-amzn-ErrorType": name}
    assert json.loads(encode_error(ours, 'what "happened"\n')) == {"message": 'what "happened"\n'}


def test_every_name_is_in_the_model_with_its_status() -> None:
    model = botocore.session.Session().get_service_model("bedrock-runtime")
    for status in STATUSES:
        (name,) = error_headers(status).values()
        modelled = model.shape_for(name).metadata["error"]["httpStatusCode"]
        # 409 is ours for a session that was closed; a body that is too large has no name of its own.
        if client_status(status) not in (409, 413, 415, 422, 501):
            assert modelled == client_status(status)


def test_silence_stays_silent() -> None:
    assert KEEPALIVE is None

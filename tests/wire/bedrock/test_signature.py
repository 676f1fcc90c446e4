"""Keys in `Authorization` headers, as botocore writes them."""

from __future__ import annotations

import pytest
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]

from polarproxy.wire.bedrock.signature import access_key

KEY = "sk-polar-task_7.try-2-0123456789abcdef0123456789abcdef"


def test_botocore_passes_a_session_key_through() -> None:
    request = AWSRequest("POST", "http://127.0.0.1/model/m/converse", data=b"{}")
    SigV4Auth(Credentials(KEY, "any secret", "any token"), "bedrock", "us-east-1").add_auth(request)
    assert access_key(request.headers["Authorization"]) == KEY


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (
            "AWS4-HMAC-SHA256 Credential=AKIA1/20260101/us-east-1/bedrock/aws4_request, SignedHeaders=a, Signature=0",
            "AKIA1",
        ),
        ("AWS4-HMAC-SHA256 SignedHeaders=host;x-a,Signature=0,Credential=k/20260101/r/s/aws4_request", "k"),
        ("AWS4-ECDSA-P256-SHA256 Credential=k/20260101/bedrock/aws4_request, SignedHeaders=a, Signature=0", "k"),
        (f"Bearer {KEY}", KEY),
        (f"bearer  {KEY} ", KEY),
        ("Basic a2V5", None),
        ("AWS4-HMAC-SHA256 Credential=/20260101/us-east-1/bedrock/aws4_request", None),
        ("AWS4-HMAC-SHA256 Signature=0", None),
        ("AWS4-HMAC-SHA256", None),
        ("Bearer", None),
        ("", None),
    ],
)
def test_keys(header: str, key: str | None) -> None:
    assert access_key(header) == key

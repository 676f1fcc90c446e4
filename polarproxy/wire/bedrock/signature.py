"""Who is asking, by the headers of AWS's signature version 4.

Signatures are not verified: a client of ours signs with any secret, and puts its session key where AWS has the id of the
access key. AWS's SDKs take any text there, and ours has neither `/` nor `,`. The key may also be a bearer token
(`AWS_BEARER_TOKEN_BEDROCK`), which AWS's SDKs send over HTTPS only.
"""

from __future__ import annotations

import re

_SIGNED = re.compile(r"AWS4-[A-Z0-9-]+\s(?:.*[\s,])?Credential=([^/,\s]+)/")
_BEARER = re.compile(r"bearer\s+(\S+)\s*", re.IGNORECASE)


def access_key(authorization: str) -> str | None:
    """The id of the access key, or the bearer token, of an `Authorization` header; None when it holds neither."""
    found = _SIGNED.match(authorization) or _BEARER.fullmatch(authorization)
    return found.group(1) if found else None

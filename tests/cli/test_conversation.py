"""What was sent in a call, where its request cannot be read."""

import pytest

from polarproxy.cli.conversation import conversation, read_request
from polarproxy.model import Dialect
from tests.store.samples import a_call


@pytest.mark.parametrize("body", [b"", b"[]", b'{"prompt": "\xff"}', b'{"prompt": ' + b"[" * 100_000])
@pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.COMPLETIONS])
def test_a_request_that_cannot_be_read_says_nothing(dialect: Dialect, body: bytes) -> None:
    call = a_call(dialect=dialect, request_body=body)
    assert conversation(call) == []
    assert read_request(call) is None

"""One name for everything that JSON which cannot be read is answered with."""

import msgspec
import pytest

from polarproxy.errors import UNREADABLE

BAD: dict[str, bytes | str] = {
    "no JSON": b"{",
    "another shape": b"[1]",
    "no UTF-8": b'{"a": "\xff"}',
    "half a character": '{"a": "\ud800"}',
    "nested too deep": b'{"a": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("name", BAD)
def test_nothing_that_cannot_be_read_is_answered_otherwise(name: str) -> None:
    with pytest.raises(UNREADABLE):
        msgspec.json.decode(BAD[name], type=dict[str, object])

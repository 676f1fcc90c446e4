"""A seal gives its text back, and nothing that a stranger sends does harm."""

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarproxy.wire.neutral.seal import seal, unseal
from tests.wire.neutral.strategies import seals

ANY_TEXT = st.text(st.characters())


@given(ANY_TEXT)
def test_unsealing_gives_the_text_back(text: str) -> None:
    assert unseal(seal(text)) == text


def test_half_a_surrogate_pair_survives() -> None:
    assert unseal(seal("\ud83d")) == "\ud83d"


@given(ANY_TEXT)
def test_a_token_depends_on_the_text_alone_and_fits_anywhere(text: str) -> None:
    token = seal(text)
    assert token == seal(text)
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=")


@given(seals() | st.text())
def test_a_token_of_somebody_else_is_not_ours(token: str) -> None:
    assert unseal(token) is None


@given(
    st.text().map("polar1-".__add__) | st.binary().map(lambda body: "polar1-" + base64.urlsafe_b64encode(body).decode())
)
def test_a_forged_token_is_no_text_and_no_error(token: str) -> None:
    text = unseal(token)
    assert text is None or isinstance(text, str)


@given(st.text(min_size=1), st.data())
def test_a_token_that_was_cut_or_changed_is_not_believed(text: str, data: st.DataObject) -> None:
    token = seal(text)
    place = data.draw(st.integers(len("polar1-"), len(token) - 1))
    assert unseal(token[:place]) is None
    changed = token[:place] + data.draw(st.sampled_from("AZaz09-_")) + token[place + 1 :]
    assert unseal(changed) in (None, text)


def test_a_few_bytes_that_would_unfold_to_gigabytes_are_refused() -> None:
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    assert len(packed) < 100_000
    assert unseal("polar1-" + base64.urlsafe_b64encode(packed).decode()) is None


@pytest.mark.parametrize("token", ["", "polar1-", "polar1", "polar1-=", "polar1-\u00fc", "polar1-AAAA"])
def test_what_is_too_short_to_be_a_token_is_none(token: str) -> None:
    assert unseal(token) is None

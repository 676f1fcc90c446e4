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


def token_of(text: bytes) -> str:
    """A token as somebody else would make it, as short as can be."""
    return "polar1-" + base64.urlsafe_b64encode(zlib.compress(text, 9)).decode()


@given(st.text("ab\n🙂", max_size=6), st.integers(1, 20_000))
def test_a_text_that_repeats_itself_comes_back_and_its_token_is_not_too_short(part: str, times: int) -> None:
    text = part * times
    assert unseal(seal(text)) == text
    assert len(text.encode()) <= 4 * len(seal(text))


@given(st.binary(max_size=6), st.integers(1, 20_000))
def test_no_token_unfolds_to_more_than_four_times_its_length(part: bytes, times: int) -> None:
    token = token_of(part * times)
    text = unseal(token)
    assert text is None or len(text.encode("utf-8", "surrogatepass")) <= 4 * len(token)


def test_a_request_full_of_bombs_unfolds_to_nothing() -> None:
    bomb = token_of(bytes(1 << 20))
    assert len(bomb) < 2_000
    assert unseal(bomb) is None
    padded = base64.urlsafe_b64decode(bomb.removeprefix("polar1-")).ljust(1 << 18)
    assert unseal("polar1-" + base64.urlsafe_b64encode(padded).decode()) == "\0" * (1 << 20)
    assert unseal("polar1-" + base64.urlsafe_b64encode(padded[:-3]).decode()) is None


def test_no_token_is_longer_than_its_text_when_that_can_be_packed() -> None:
    said = "".join(f"Step {place}: {place * 7919 % 1009} is not what line {place} expects. " for place in range(200))
    assert len(seal(said)) < len(said) / 2
    assert len(seal("wait, " * 10_000)) < 60_000 / 2


@pytest.mark.parametrize("token", ["", "polar1-", "polar1", "polar1-=", "polar1-\u00fc", "polar1-AAAA"])
def test_what_is_too_short_to_be_a_token_is_none(token: str) -> None:
    assert unseal(token) is None

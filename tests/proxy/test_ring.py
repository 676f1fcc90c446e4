"""Which upstream a session goes to."""

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from polarproxy.proxy.ring import nearest


@dataclass(frozen=True)
class Node:
    name: str


NAMES = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8, unique=True)
KEYS = st.lists(st.text(max_size=20), max_size=30)


def homes(keys: list[str], names: list[str]) -> dict[str, str]:
    return {key: nearest(key, map(Node, names)).name for key in keys}


@given(keys=KEYS, names=NAMES, data=st.data())
def test_one_that_goes_takes_only_its_own_sessions_along(
    keys: list[str], names: list[str], data: st.DataObject
) -> None:
    """And so one that comes takes sessions only to itself."""
    gone = data.draw(st.sampled_from(names))
    left = [name for name in names if name != gone]
    if not left:
        return
    before, after = homes(keys, names), homes(keys, left)
    assert {key for key in keys if before[key] != after[key]} == {key for key in keys if before[key] == gone}


@given(keys=KEYS, names=NAMES, data=st.data())
def test_the_order_in_which_they_are_named_does_not_matter(
    keys: list[str], names: list[str], data: st.DataObject
) -> None:
    assert homes(keys, names) == homes(keys, data.draw(st.permutations(names)))


@given(count=st.integers(2, 6), salt=st.text(max_size=10))
def test_shares_are_even_and_one_in_n_moves_when_one_more_comes(count: int, salt: str) -> None:
    """Of 2,000 sessions a share of 1/n has a standard deviation of at most 22; this allows six of them."""
    keys = [f"{salt}-{number}" for number in range(2000)]
    names = [f"http://10.0.0.{number}:8000" for number in range(count)]
    before, after = homes(keys, names), homes(keys, [*names, "http://10.0.1.1:8000"])
    assert all(abs(share - 2000 / count) < 134 for share in Counter(before.values()).values())
    moved = sum(before[key] != after[key] for key in keys)
    assert abs(moved - 2000 / (count + 1)) < 134


def test_every_proxy_agrees_also_of_another_version() -> None:
    """These are written down: sessions of a running fleet must not move when one proxy is brought up to date."""
    names = [f"http://engine-{number}:8000" for number in range(4)]
    expected = {"s1": names[2], "s2": names[1], "s3": names[2], "ein Lied 🎵": names[0], "": names[2]}
    assert homes(list(expected), names) == expected

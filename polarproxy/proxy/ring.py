"""Which upstream a session goes to: the same one at every proxy, and another one only when it must.

Rendezvous hashing (Thaler and Ravishankar, 1998): every pair of session and upstream has a weight, and the heaviest
upstream has the session. An upstream that goes gives its own sessions to all others alike, and one that comes takes an
equal share from each; no other session moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Iterable


class Named(Protocol):
    """What has a name that no other has."""

    @property
    def name(self) -> str: ...


_N = TypeVar("_N", bound=Named)


def nearest(key: str, candidates: Iterable[_N]) -> _N:
    """The candidate that has this key; raises `ValueError` when there is none."""
    return max(candidates, key=lambda candidate: xxh3_64_intdigest(f"{candidate.name}\n{key}".encode()))

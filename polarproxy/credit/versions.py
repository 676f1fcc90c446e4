"""Which rewards an export was made with: one digest of them all, and the specifications that computed them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polarproxy.model import Session

GIVEN = "given"
"""Stands for the specification of a reward that nobody computed."""


@dataclass(frozen=True, slots=True)
class RewardVersion:
    """Two exports with the same digest had the same reward of every session, with the same parts."""

    digest: str
    specs: dict[str, int]
    """How many sessions were scored by which specification."""


def reward_version(sessions: Iterable[Session]) -> RewardVersion:
    """The version of the rewards that count now."""
    state, specs = xxhash.xxh3_128(), Counter[str]()
    for session in sorted(sessions, key=lambda session: session.session_id):
        if session.reward is not None:
            # surrogatepass: ids are any text, half characters among them.
            state.update(session.session_id.encode("utf-8", "surrogatepass") + b"\0")
            state.update(repr(session.reward).encode("utf-8", "surrogatepass") + b"\0")
            specs[session.reward.spec or GIVEN] += 1
    return RewardVersion(state.hexdigest(), dict(sorted(specs.items())))

"""The processes that share a PostgreSQL database at this moment, and the upstreams that were changed while they run.

Every process tells of itself every second or so, by the clock of the database. Changes of upstreams are kept for as long as
one of these processes lives: the first that starts when there is none begins from its settings. One that could not tell of
itself for a while, because the database was away, may find that it was taken for dead; then it brings back what it knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from polarproxy.store.database import for_writing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Engine

ALIVE_S = 15
"""A process that has not told of itself for so long is gone."""
_JOINING = 7_014_203
"""The lock that a process holds while it joins, among PostgreSQL's advisory locks."""
_IS_ALIVE = f"seen_at > clock_timestamp() - interval '{ALIVE_S} seconds'"
_TELL = "UPDATE proxies SET seen_at = clock_timestamp(), counts = %(counts)s WHERE proxy_id = %(me)s"
_BEGIN = """
INSERT INTO proxies (proxy_id, started_at, seen_at, counts)
VALUES (%(me)s, clock_timestamp(), clock_timestamp(), %(counts)s)
"""
_BRING_BACK = """
INSERT INTO upstreams (name, state, changed_at) VALUES (%(name)s, %(state)s, clock_timestamp())
ON CONFLICT (name) DO NOTHING
"""
"""What was decided meanwhile is newer."""
_CHANGE = """
INSERT INTO upstreams (name, state, changed_at) VALUES (%(name)s, %(state)s, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET state = excluded.state, changed_at = excluded.changed_at
"""


class UpstreamState(StrEnum):
    """What was decided on an upstream while proxies run."""

    ACTIVE = "active"
    DRAINING = "draining"
    """It takes no new calls."""
    REMOVED = "removed"
    PAUSED = "paused"
    """Generation is; said of all of them together."""
    CUT = "cut"
    """Removed, and the calls that it was busy with were broken off."""


ALL = ""
"""The name under which something is decided on all upstreams together."""
_STATES = frozenset(UpstreamState)
"""A newer version may know more of them; what this one does not know it leaves alone."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the database holds at one moment."""

    changes: Mapping[str, UpstreamState]
    """By the name of the upstream, in the order of names."""
    others: tuple[str, ...]
    """What each of the other processes that live told last."""


class Roster:
    """One process among those of a PostgreSQL database. Safe to use from several threads."""

    def __init__(self, engine: Engine, proxy_id: str) -> None:
        self._engine = for_writing(engine)
        self._me = proxy_id

    def join(self, counts: str) -> Seen:
        """Begins to tell of this process."""
        with self._engine.begin() as connection:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_JOINING})")
            connection.exec_driver_sql(f"DELETE FROM proxies WHERE NOT ({_IS_ALIVE})")
            connection.exec_driver_sql("DELETE FROM upstreams WHERE NOT EXISTS (SELECT FROM proxies)")
        return self.tell(counts, {})

    def tell(self, counts: str, changes: Mapping[str, UpstreamState]) -> Seen:
        """This process lives, and this is what it has to say (any text); gives what the others said.

        `changes` are those that it knows of. They count when all were taken for dead since, and with them the changes.
        """
        me = {"me": self._me}
        with self._engine.begin() as connection:
            # What a crash of the server would lose is told again in a second.
            connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")
            if not connection.exec_driver_sql(_TELL, me | {"counts": counts}).rowcount:
                connection.exec_driver_sql(_BEGIN, me | {"counts": counts})
                for name in sorted(changes):
                    connection.exec_driver_sql(_BRING_BACK, {"name": name, "state": changes[name].value})
            others = connection.exec_driver_sql(
                f"SELECT counts FROM proxies WHERE proxy_id <> %(me)s AND {_IS_ALIVE} ORDER BY proxy_id", me
            )
            told = tuple(others.scalars())
            decided = connection.exec_driver_sql("SELECT name, state FROM upstreams ORDER BY name").all()
        return Seen({name: UpstreamState(state) for name, state in decided if state in _STATES}, told)

    def change(self, name: str, state: UpstreamState) -> None:
        """Decides on an upstream, for every process."""
        with self._engine.begin() as connection:
            connection.exec_driver_sql(_CHANGE, {"name": name, "state": state.value})

    def leave(self) -> None:
        """This process ends in order."""
        with self._engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM proxies WHERE proxy_id = %(me)s", {"me": self._me})

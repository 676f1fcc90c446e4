"""Places in sessions that several proxies share: PostgreSQL hands them out, many with one statement.

The statement is on the disk before its places are used, so that no crash gives one of them twice. Whether a session is
still open, what it was made with, and which policy version samples, comes along: every call sees what any proxy was told
before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polarproxy.model import PromptMode, SessionStatus
from polarproxy.store.sound import sound
from polarproxy.store.terms import SAMPLING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Engine

_TAKE = f"""
WITH wanted AS (
  SELECT * FROM unnest(%(sessions)s::varchar[], %(counts)s::integer[]) AS asked (session_id, taken)
), head AS (
  INSERT INTO session_heads AS known (session_id, next_ordinal)
  SELECT session_id, taken + (SELECT coalesce(max(ordinal) + 1, 0) FROM calls WHERE calls.session_id = wanted.session_id)
  FROM wanted ORDER BY session_id
  ON CONFLICT (session_id) DO UPDATE SET next_ordinal = greatest(
    excluded.next_ordinal,
    known.next_ordinal + (SELECT taken FROM wanted WHERE wanted.session_id = known.session_id)
  )
  RETURNING session_id, next_ordinal
)
SELECT head.session_id, head.next_ordinal, sessions.status, sessions.prompts, (SELECT max(version) FROM policy_versions),
  CASE WHEN strpos(sessions.metadata, '{SAMPLING}') > 0 THEN sessions.metadata END
FROM head LEFT JOIN sessions ON sessions.session_id = head.session_id
"""
_POLICY = "SELECT max(version) FROM policy_versions"


@dataclass(frozen=True, slots=True)
class Given:
    """What the database answered for one session."""

    end: int
    """The places given are the last ones below."""
    status: SessionStatus
    prompts: PromptMode | None
    """Where the session's prompts come from. None: as the proxy is set."""
    metadata: str | None
    """As it is stored. None: it forces no sampling."""


class Heads:
    """The shared counters of a PostgreSQL database. Safe to use from several threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")

    def take(self, wanted: Mapping[str, int]) -> tuple[dict[str, Given], int]:
        """So many places in each of these sessions, and the policy version in force. Raises `StoreDamaged`."""
        with self._engine.connect() as connection:
            if not wanted:
                return {}, connection.exec_driver_sql(_POLICY).scalar_one() or 0
            arguments = {"sessions": list(wanted), "counts": list(wanted.values())}
            found = connection.exec_driver_sql(_TAKE, arguments).all()
        with sound():
            given = {
                session_id: Given(
                    end,
                    SessionStatus.OPEN if status is None else SessionStatus(status),
                    None if prompts is None else PromptMode(prompts),
                    metadata,
                )
                for session_id, end, status, prompts, _, metadata in found
            }
        return given, found[0][4] or 0

"""Reading everything of a session again, whatever became of its rows, and saying what is not as it was written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from polarproxy.errors import StoreDamaged
from polarproxy.store import rewards, values
from polarproxy.store.bodies import BodyReader
from polarproxy.store.facts import known_of
from polarproxy.store.schema import calls, completions, sessions
from polarproxy.store.tokens import PromptReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class Damage:
    """A stored record that does not read back as it was written."""

    where: str
    what: str


def session_damage(connection: Connection, session_id: str) -> Iterator[Damage]:
    """Re-derives every digest and length of a session; yields what does not match: its own rows, its calls by ordinal."""
    prompts, requests = PromptReader(connection), BodyReader(connection)
    what = _wrong(partial(_read_session, connection, session_id))
    if what is not None:
        yield Damage(f"session {session_id}", what)
    ids = select(calls.c.call_id).where(calls.c.session_id == session_id).order_by(calls.c.ordinal)
    for call_id in connection.execute(ids).scalars().all():
        parts = (partial(_read_call, connection, prompts, call_id), partial(_read_body, connection, requests, call_id))
        yield from (
            Damage(f"call {call_id} of session {session_id}", what) for what in map(_wrong, parts) if what is not None
        )


def _read_session(connection: Connection, session_id: str) -> None:
    row = connection.execute(select(sessions).where(sessions.c.session_id == session_id)).mappings().one()
    for given in rewards.history(connection, session_id):
        values.read_session(row, given.reward)
    values.read_session(row, None)


def _read_body(connection: Connection, requests: BodyReader, call_id: str) -> None:
    digest = select(calls.c.body_digest).where(calls.c.call_id == call_id)
    requests.body(connection.execute(digest).scalar_one())


def _read_call(connection: Connection, prompts: PromptReader, call_id: str) -> None:
    row = connection.execute(select(calls).where(calls.c.call_id == call_id)).mappings().one()
    prompt = prompts.prompt(row)
    by_choice = select(completions).where(completions.c.call_id == call_id).order_by(completions.c.choice_index)
    sampled = connection.execute(by_choice).mappings().all()
    values.read_call(row, prompt, [values.read_completion(completion, prompt) for completion in sampled], b"")
    known_of(connection, select(calls.c.call_id).where(calls.c.call_id == call_id))


def _wrong(read: Callable[[], object]) -> str | None:
    """What keeps it from being read. None: nothing."""
    try:
        read()
    except StoreDamaged as error:
        return str(error)
    except DBAPIError:
        # The database, not the record.
        raise
    except Exception as error:  # noqa: BLE001  (a value that nobody wrote may fail its reader in any way; the rest is read)
        return f"it holds a value that nobody wrote: {type(error).__name__}: {error}"
    return None

"""What can be asked of the store, one method a question; and the few changes that are not calls."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, select, update

from polarproxy.errors import NotFound
from polarproxy.model import (
    CapturedCall,
    PromptMode,
    Session,
    SessionStatus,
)
from polarproxy.store import responses, rewards, rows, turns, values
from polarproxy.store.database import for_writing
from polarproxy.store.facts import add_label
from polarproxy.store.fingerprints import fingerprints
from polarproxy.store.inserts import insert_once
from polarproxy.store.reading import read_call, read_calls
from polarproxy.store.schema import calls, policy_versions, sessions, token_texts
from polarproxy.store.sound import reading_from
from polarproxy.store.summaries import list_calls, list_sessions
from polarproxy.store.terms import terms_of
from polarproxy.store.verifying import store_damage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Engine

    from polarproxy.model import Completion, Label, Reward, TokenIds
    from polarproxy.store.responses import FoundResponse
    from polarproxy.store.rewards import SetReward
    from polarproxy.store.summaries import CallSummary, SessionSummary
    from polarproxy.store.terms import Terms
    from polarproxy.store.turns import StoredTurn
    from polarproxy.store.verifying import Damage

_NO_CALL = "there is no call {!r}; `polarproxy calls list` shows those there are"


@dataclass(frozen=True, slots=True)
class SessionState:
    """What the proxy must know of a session before it takes a call."""

    status: SessionStatus
    next_ordinal: int
    terms: Terms


class Repository:
    """Reads, and the changes made by people and control routes. Safe to use from several threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writing = for_writing(engine)

    def sessions(self, *, limit: int | None = None, group_id: str | None = None) -> list[SessionSummary]:
        """The sessions, newest first."""
        with reading_from(self._engine) as connection:
            return list_sessions(connection, limit, group_id)

    def require_group(self, group_id: str | None) -> None:
        """Raises `NotFound`, which names near ones, when no session has this group. None: nobody asked for one."""
        if group_id is None:
            return
        with reading_from(self._engine) as connection:
            query = select(sessions.c.group_id).distinct().where(sessions.c.group_id.is_not(None))
            known = sorted(connection.execute(query).scalars())
        if group_id not in known:
            near = get_close_matches(group_id, known, 3, 0.5)
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "`polarproxy sessions list` shows them"
            raise NotFound(f"no session has the group {group_id!r}; {hint}")

    def has_model(self, model: str) -> bool:
        """Whether any call was sampled by it, as the engine calls it."""
        with reading_from(self._engine) as connection:
            found = select(calls.c.served_model).where(calls.c.served_model == model).limit(1)
            return connection.execute(found).first() is not None

    def require_model(self, model: str | None) -> None:
        """Raises `NotFound`, which names near ones, when no call was sampled by it. None: nobody asked for one."""
        if model is None or self.has_model(model):
            return
        with reading_from(self._engine) as connection:
            query = select(calls.c.served_model).distinct().where(calls.c.served_model.is_not(None))
            known = sorted(connection.execute(query).scalars())
        near = get_close_matches(model, known, 3, 0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are: {', '.join(known) or 'none'}"
        raise NotFound(f"no call was sampled by the model {model!r}; {hint}")

    def response(self, response_id: str) -> FoundResponse | None:
        """A stored response by itself, whatever became of those it continues; None when there is none of this id."""
        with reading_from(self._engine) as connection:
            return responses.find(connection, response_id)

    def response_chain(self, response_id: str) -> list[FoundResponse]:
        """A stored response and those it continues, the first one first; empty when one of them is gone."""
        with reading_from(self._engine) as connection:
            return responses.chain(connection, response_id)

    def forget_response(self, response_id: str) -> None:
        """Deletes a stored response; its call stays."""
        with self._writing.begin() as connection:
            responses.forget(connection, response_id)

    def marked_turns(self, session_id: str, keys: Sequence[bytes]) -> list[StoredTurn]:
        """The turns of this session that have one of these keys, in order of arrival. Raises `StoreDamaged`."""
        with reading_from(self._engine) as connection:
            return turns.marked(connection, session_id, keys)

    def turn_tokens(self, turn: StoredTurn) -> tuple[TokenIds, Completion]:
        """The prompt and the completion of a turn. Raises `StoreDamaged`."""
        with reading_from(self._engine) as connection:
            return turns.tokens(connection, turn)

    def session_ids(self) -> list[str]:
        """All sessions, oldest first."""
        with reading_from(self._engine) as connection:
            query = select(sessions.c.session_id).order_by(sessions.c.created_at, sessions.c.session_id)
            return list(connection.execute(query).scalars())

    def session(self, session_id: str) -> Session:
        """One session with its latest reward; raises `NotFound`."""
        with reading_from(self._engine) as connection:
            row = connection.execute(select(sessions).where(sessions.c.session_id == session_id)).mappings().first()
            if row is None:
                raise NotFound(f"there is no session {session_id!r}; `polarproxy sessions list` shows those there are")
            return values.read_session(row, rewards.latest(connection, [session_id]).get(session_id))

    def session_state(self, session_id: str) -> SessionState | None:
        """None: the session is not stored yet. Raises `StoreDamaged`."""
        with reading_from(self._engine) as connection:
            columns = (sessions.c.status, sessions.c.prompts, sessions.c.metadata)
            found = connection.execute(select(*columns).where(sessions.c.session_id == session_id)).one_or_none()
            if found is None:
                return None
            last = connection.execute(
                select(func.max(calls.c.ordinal)).where(calls.c.session_id == session_id)
            ).scalar_one()
            prompts = None if found.prompts is None else PromptMode(found.prompts)
            terms = terms_of(session_id, prompts, found.metadata)
            return SessionState(SessionStatus(found.status), 0 if last is None else last + 1, terms)

    def latest_policy_version(self) -> int:
        """The latest policy version that was set or that a call ended under; 0 when there is none."""
        query = select(calls.c.policy_version_max).order_by(calls.c.call_id.desc()).limit(1)
        with reading_from(self._engine) as connection:
            last = connection.execute(query).scalar_one_or_none() or 0
            return max(last, connection.execute(select(func.max(policy_versions.c.version))).scalar_one() or 0)

    def fingerprints(self, session_ids: Sequence[str]) -> dict[str, tuple[int, int, int]]:
        """Of sessions that have calls: numbers that change when calls, or facts about them, are added or deleted."""
        with reading_from(self._engine) as connection:
            return fingerprints(connection, session_ids)

    def calls(self, session_id: str) -> list[CapturedCall]:
        """All calls of a session by ordinal; raises `StoreDamaged` when one does not read back as it was written."""
        with reading_from(self._engine) as connection:
            return list(read_calls(connection, calls.c.session_id == session_id))

    def call(self, call_id: str) -> CapturedCall:
        """One call; raises `NotFound`, `StoreDamaged`."""
        with reading_from(self._engine) as connection:
            call = read_call(connection, call_id)
        if call is not None:
            return call
        raise NotFound(_NO_CALL.format(call_id))

    def call_summaries(self, session_id: str | None = None) -> list[CallSummary]:
        """The calls of a session, or of all, in order of arrival, without their tokens."""
        with reading_from(self._engine) as connection:
            return list_calls(connection, session_id)

    def add_label(self, call_id: str, label: Label) -> None:
        """Adds what somebody says a call was for; earlier labels stay as history. Raises `NotFound`."""
        with self._writing.begin() as connection:
            if connection.execute(select(calls.c.call_id).where(calls.c.call_id == call_id)).first() is None:
                raise NotFound(_NO_CALL.format(call_id))
            add_label(connection, call_id, label)

    def token_texts(self, model: str) -> dict[int, bytes]:
        """The spellings that are known of a model's token ids: those of all tokens that it ever sampled."""
        with reading_from(self._engine) as connection:
            query = select(token_texts.c.token_id, token_texts.c.text).where(token_texts.c.model == model)
            return {row.token_id: row.text for row in connection.execute(query)}

    def add_session(self, session: Session) -> None:
        """Stores a new session; returns when it is committed."""
        with self._writing.begin() as connection:
            connection.execute(insert(sessions), [rows.session_row(session)])

    def set_status(self, session_id: str, status: SessionStatus) -> None:
        """Closes a session (or opens it again); raises `NotFound`."""
        with self._writing.begin() as connection:
            changed = connection.execute(
                update(sessions).where(sessions.c.session_id == session_id).values(status=status.value)
            )
            if not changed.rowcount:
                raise NotFound(f"there is no session {session_id!r}")

    def set_statuses(self, statuses: Mapping[str, SessionStatus]) -> list[str]:
        """Closes sessions by id, those that there are, in one transaction; gives the ids of those there are not."""
        gone = []
        with self._writing.begin() as connection:
            for session_id, status in sorted(statuses.items()):
                change = update(sessions).where(sessions.c.session_id == session_id).values(status=status.value)
                if not connection.execute(change).rowcount:
                    gone.append(session_id)
        return gone

    def set_policy_version(self, version: int) -> int:
        """From now on these weights sample, whichever proxy is asked. The version in force: an older one changes nothing."""
        with self._writing.begin() as connection:
            latest = connection.execute(select(func.max(policy_versions.c.version))).scalar_one() or 0
            if version > latest:
                row = {"version": version, "recorded_at": datetime.now(UTC)}
                connection.execute(insert_once(policy_versions, connection.dialect), [row])
        return max(version, latest)

    def add_reward(self, session_id: str, reward: Reward) -> None:
        """Appends a reward; the latest counts. Raises `NotFound`."""
        self.add_rewards([(session_id, reward)])

    def add_rewards(self, given: Sequence[tuple[str, Reward]]) -> None:
        """Appends all of these rewards, or none: raises `NotFound` when one of the sessions is not there."""
        with self._writing.begin() as connection:
            rewards.add(connection, given)

    def reward_history(self, session_id: str) -> list[SetReward]:
        """Every reward that a session was given; the last one counts. Raises `NotFound`."""
        self.session(session_id)
        with reading_from(self._engine) as connection:
            return rewards.history(connection, session_id)

    def latest_rewards(self, *, group_id: str | None = None) -> list[SetReward]:
        """The reward that counts of every session that has one, in the order in which they were set."""
        with reading_from(self._engine) as connection:
            return rewards.latest_of(connection, group_id)

    def verify(self) -> Iterator[Damage]:
        """Re-derives every digest and length, and asks whether all rows have those that they name; yields what does not
        match."""
        return store_damage(self._engine)

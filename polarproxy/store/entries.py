"""Sessions as values that show nothing of how they are stored: what an archive holds, and what goes to another database.

A row is a map of column to value, without what only says where bytes lie: no base, no compression. Text is escaped as
`text.escape` does it, because not every text can be encoded. Two stores hold the same session when these values are equal,
whatever lies in their files.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import xxhash
from sqlalchemy import func, select

from polarproxy.model import ComponentKind, Reward, RewardComponent, TurnReward
from polarproxy.store import codec, values
from polarproxy.store.bodies import BodyReader
from polarproxy.store.rewards import history
from polarproxy.store.rows import Row  # noqa: TC001  (msgspec reads annotations at run time)
from polarproxy.store.schema import call_facts, calls, completions, responses, sessions
from polarproxy.store.text import escape, unescape
from polarproxy.store.tokens import PromptReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Column, Connection, PrimaryKeyConstraint, RowMapping, Select, Table

    from polarproxy.model import TokenIds

STORED_PROMPT = ("base_call_id", "base_choice", "base_length", "prompt_suffix")
"""Columns of `calls` that say how a prompt is stored; `CallEntry.prompt` stands for them."""


Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""One that says where its zero is."""


class RewardEntry(msgspec.Struct, frozen=True):
    """A reward that was set at some time."""

    recorded_at: Moment
    value: float
    components: list[tuple[str, float]]
    kinds: list[str] = []
    """One a component. Empty: written before kinds were kept."""
    turns: list[tuple[str | None, int | None, float]] = []
    """Call id, turn and value; one of the first two is null."""
    spec: str | None = None

    def read(self) -> Reward:
        """The reward; raises `InvalidValue` or `ValueError` for one that nobody can have set."""
        kinds = [ComponentKind(kind) for kind in self.kinds] or [ComponentKind.REWARD] * len(self.components)
        return Reward(
            self.value,
            tuple(
                RewardComponent(unescape(name), value, kind)
                for (name, value), kind in zip(self.components, kinds, strict=True)
            ),
            tuple(
                TurnReward(value, None if call_id is None else unescape(call_id), turn)
                for call_id, turn, value in self.turns
            ),
            self.spec,
        )

    def plain(self) -> RewardEntry:
        """With its numbers as `plain` has them."""
        return msgspec.structs.replace(
            self,
            value=plain(self.value),
            components=[(name, plain(value)) for name, value in self.components],
            turns=[(call_id, turn, plain(value)) for call_id, turn, value in self.turns],
        )


class SessionEntry(msgspec.Struct, frozen=True, tag="session"):
    """A session; its calls follow."""

    row: Row
    """Columns of `sessions`."""
    rewards: list[RewardEntry]
    """In the order in which they were set; the last one counts."""
    calls: Annotated[int, msgspec.Meta(ge=0)]
    """How many calls follow, by ordinal."""

    @property
    def session_id(self) -> str:
        """Its name, as it was given."""
        return unescape(self.row["session_id"])


class CallEntry(msgspec.Struct, frozen=True, tag="call"):
    """A call with all that is known of it."""

    row: Row
    """Columns of `calls` but `STORED_PROMPT`."""
    prompt: bytes | None
    """Little-endian int32. None: the engine did not show its ids."""
    completions: list[Row]
    """Columns of `completions` but `call_id`; `token_ids` as little-endian int32."""
    facts: list[tuple[Moment, str, str]]
    """When, name and value; the last one of a name counts."""
    body: bytes | None
    """The request as the client sent it. None: none is kept."""
    responses: list[Row]
    """Columns of `responses` but `call_id`; `input` and `reply` as JSON."""

    @property
    def call_id(self) -> str:
        """Its name, as it was given."""
        return unescape(self.row["call_id"])


Entry: TypeAlias = "SessionEntry | CallEntry"


def columns(table: Table | PrimaryKeyConstraint, *without: str) -> tuple[str, ...]:
    """The columns of a table's rows in an entry."""
    return tuple(column.name for column in table.c if column.name not in without)


SESSION_COLUMNS = columns(sessions)
CALL_COLUMNS = columns(calls, *STORED_PROMPT)
COMPLETION_COLUMNS = columns(completions, "call_id")
RESPONSE_COLUMNS = columns(responses, "call_id")


class ContentDigest:
    """XXH3-128 of a session's entries: equal for equal sessions, in whichever database or archive they lie."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()
        self._encoder = msgspec.msgpack.Encoder()

    def add(self, entry: Entry) -> None:
        """The next entry: the session, then each call."""
        self._state.update(self._encoder.encode(entry))

    def value(self) -> bytes:
        """16 bytes."""
        return self._state.digest()


def content_digest(connection: Connection, session_id: str) -> bytes | None:
    """The digest of a stored session; None when there is none. Raises `StoreDamaged`."""
    session = read_session(connection, session_id)
    if session is None:
        return None
    digest = ContentDigest()
    digest.add(session)
    for call in read_calls(connection, session_id):
        digest.add(call)
    return digest.value()


def read_session(connection: Connection, session_id: str) -> SessionEntry | None:
    """A stored session; None when there is none."""
    row = connection.execute(select(sessions).where(sessions.c.session_id == session_id)).mappings().first()
    if row is None:
        return None
    count = select(func.count()).select_from(calls).where(calls.c.session_id == session_id)
    return SessionEntry(
        row=taken(row, SESSION_COLUMNS),
        rewards=_rewards(connection, session_id),
        calls=connection.execute(count).scalar_one(),
    )


def read_calls(connection: Connection, session_id: str) -> Iterator[CallEntry]:
    """The calls of a session by ordinal, each proven against its digests. Raises `StoreDamaged`."""
    of_session = calls.c.session_id == session_id
    found = connection.execute(select(calls).where(of_session).order_by(calls.c.ordinal)).mappings().all()
    chosen = select(calls.c.call_id).where(of_session)
    sampled = _by_call(connection, completions, chosen, completions.c.choice_index)
    known = _by_call(connection, call_facts, chosen, call_facts.c.fact_id)
    kept = _by_call(connection, responses, chosen, responses.c.response_id)
    prompts, bodies = PromptReader(connection), BodyReader(connection)
    prompts.know(row for completed in sampled.values() for row in completed)
    bodies.fetch(of_session)
    for row in found:
        call_id = row["call_id"]
        prompt = prompts.prompt(row)
        yield CallEntry(
            row=taken(row, CALL_COLUMNS),
            prompt=None if prompt is None else prompt.raw,
            completions=_completions(row, prompt, sampled.get(call_id, ())),
            facts=[(fact["recorded_at"], fact["name"], escape(fact["value"])) for fact in known.get(call_id, ())],
            body=None if row["body_digest"] is None else bodies.body(row["body_digest"]),
            responses=[_response(response) for response in kept.get(call_id, ())],
        )


def taken(row: Mapping[str, Any] | RowMapping, names: tuple[str, ...]) -> Row:
    """These columns of a row, each as `plain` has it."""
    return {name: plain(row[name]) for name in names}


def plain(value: Any) -> Any:
    """A value as every database and archive can keep it: texts escaped, and no zero below zero, which SQLite does not know."""
    if isinstance(value, str):
        return escape(value)
    return value + 0.0 if isinstance(value, float) else value


def _by_call(
    connection: Connection, table: Table, chosen: Select[tuple[str]], order: Column[Any]
) -> dict[str, list[RowMapping]]:
    query = select(table).where(table.c.call_id.in_(chosen)).order_by(order)
    found: dict[str, list[RowMapping]] = {}
    for row in connection.execute(query).mappings():
        found.setdefault(row["call_id"], []).append(row)
    return found


def _completions(row: RowMapping, prompt: TokenIds | None, sampled: Sequence[RowMapping]) -> list[Row]:
    read = [values.read_completion(completion, prompt) for completion in sampled]
    values.read_call(row, prompt, read, b"")
    return [
        taken(completion, COMPLETION_COLUMNS) | {"token_ids": known.token_ids.raw}
        for completion, known in zip(sampled, read, strict=True)
    ]


def _response(row: RowMapping) -> Row:
    return taken(row, RESPONSE_COLUMNS) | {
        "input": codec.decompress(row["input"]),
        "reply": codec.decompress(row["reply"]),
    }


def _rewards(connection: Connection, session_id: str) -> list[RewardEntry]:
    return [
        RewardEntry(
            given.recorded_at,
            given.reward.value,
            [(escape(part.name), part.value) for part in given.reward.components],
            [part.kind.value for part in given.reward.components],
            [
                (None if turn.call_id is None else escape(turn.call_id), turn.turn, turn.value)
                for turn in given.reward.turns
            ],
            given.reward.spec,
        ).plain()
        for given in history(connection, session_id)
    ]

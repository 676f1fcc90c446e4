"""The tables. Facts only: what happened is inserted and stays; views are computed elsewhere.

A prompt is stored as what lies beyond a *base*: another call's prompt or context whose beginning it repeats. The base is a
storage matter only (as in a version control pack); which call a prompt continues is decided by `trajectory`.

What refers to a row is found by an index: a database looks for it whenever the row is deleted.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

from polarproxy.store.text import AnyText

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sqlalchemy import Dialect

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

metadata = MetaData(naming_convention=NAMING)

_ROW_NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""SQLite counts rows in 64 bits too, in a column of this type only."""


class UTCDateTime(TypeDecorator[datetime]):
    """A point in time in UTC, to the microsecond, also where the database knows no time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:
        """Stored as UTC; on SQLite as SQLAlchemy spells it there, at a tenth of the cost."""
        return _spelled if dialect.name == "sqlite" else _in_utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Read as UTC."""
        return None if value is None else value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _spelled(value: datetime | None) -> str | None:
    return None if value is None else value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def _in_utc(value: datetime | None) -> datetime | None:
    return None if value is None else value.astimezone(UTC)


sessions = Table(
    "sessions",
    metadata,
    Column("session_id", AnyText(128), primary_key=True),
    Column("created_at", UTCDateTime, nullable=False, index=True),
    Column("origin", String(16), nullable=False),
    Column("status", String(32), nullable=False),
    Column("task_id", AnyText, index=True),
    Column("group_id", AnyText, index=True),
    Column("harness", AnyText),
    Column("model", AnyText),
    Column("metadata", Text, nullable=False),
    Column("prompts", String(16)),
)

calls = Table(
    "calls",
    metadata,
    Column("call_id", AnyText(32), primary_key=True),
    Column("session_id", ForeignKey("sessions.session_id"), nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("arrived_at", UTCDateTime, nullable=False),
    Column("dialect", String(16), nullable=False),
    Column("path", AnyText, nullable=False),
    Column("streamed", Boolean, nullable=False),
    Column("engine", String(16), nullable=False),
    Column("upstream", AnyText),
    Column("status", String(16), nullable=False),
    Column("http_status", Integer),
    Column("error", AnyText),
    Column("requested_model", AnyText),
    Column("served_model", AnyText),
    Column("token_source", String(16), nullable=False),
    Column("prompt_length", Integer),
    Column("prompt_digest", LargeBinary(16)),
    Column("base_call_id", String(32)),
    Column("base_choice", Integer),
    Column("base_length", Integer),
    Column("prompt_suffix", LargeBinary),
    Column("usage_prompt_tokens", BigInteger),
    Column("usage_completion_tokens", BigInteger),
    Column("usage_cached_tokens", BigInteger),
    Column("usage_reasoning_tokens", BigInteger),
    Column("temperature", Float),
    Column("top_p", Float),
    Column("top_k", BigInteger),
    Column("min_p", Float),
    Column("presence_penalty", Float),
    Column("frequency_penalty", Float),
    Column("repetition_penalty", Float),
    Column("max_tokens", BigInteger),
    Column("seed", Text),
    Column("n", BigInteger, nullable=False),
    Column("logprobs_mode", String(16), nullable=False),
    Column("headers", Text, nullable=False),
    Column("body_digest", ForeignKey("bodies.digest")),
    Column("tools_digest", String(32)),
    Column("shape_messages", Integer),
    Column("shape_tools", Text),
    Column("shape_json", Boolean),
    Column("system_opening", String(16)),
    Column("last_opening", String(16)),
    Column("template_digest", String(32)),
    Column("caveat", String(16)),
    Column("losses", Text),
    Column("choices", Integer, nullable=False),
    Column("engine_request_id", AnyText),
    Column("policy_version_min", Integer, nullable=False),
    Column("policy_version_max", Integer, nullable=False),
    Column("first_byte_us", BigInteger),
    Column("last_byte_us", BigInteger),
    Column("prompt_outcome", String(16)),
    Column("prompt_reason", AnyText),
    Column("prompt_detail", AnyText),
    Column("continued_call_id", AnyText(32)),
    Column("continued_choice", Integer),
    Column("continued_length", Integer),
    UniqueConstraint("session_id", "ordinal"),
)
_HAS_BASE, _HAS_BODY = calls.c.base_call_id.is_not(None), calls.c.body_digest.is_not(None)
Index("ix_calls_base_call_id", calls.c.base_call_id, sqlite_where=_HAS_BASE, postgresql_where=_HAS_BASE)
Index("ix_calls_body_digest", calls.c.body_digest, sqlite_where=_HAS_BODY, postgresql_where=_HAS_BODY)

completions = Table(
    "completions",
    metadata,
    Column("call_id", ForeignKey("calls.call_id"), primary_key=True),
    Column("choice_index", Integer, primary_key=True),
    Column("length", Integer, nullable=False),
    Column("token_ids", LargeBinary, nullable=False),
    Column("logprobs", LargeBinary),
    Column("digest", LargeBinary(16), nullable=False),
    Column("finish_reason", String(16)),
    Column("stop_reason", AnyText),
    Column("turn_key", LargeBinary(16)),
    Column("turn_spelling", LargeBinary(16)),
    Column("turn_reasoning", LargeBinary),
    Column("turn_ids", AnyText),
    Column("turn_template", String(32)),
)
_HAS_KEY = completions.c.turn_key.is_not(None)
# Most completions have no key, and what has none costs nothing.
Index("ix_completions_turn_key", completions.c.turn_key, sqlite_where=_HAS_KEY, postgresql_where=_HAS_KEY)

DELIVERED = "delivered"
"""Name of the fact that the whole reply of a call was handed to the client."""

call_facts = Table(
    "call_facts",
    metadata,
    Column("fact_id", _ROW_NUMBER, primary_key=True, autoincrement=True),
    Column("call_id", ForeignKey("calls.call_id"), nullable=False, index=True),
    Column("recorded_at", UTCDateTime, nullable=False),
    Column("name", String(16), nullable=False),
    Column("value", AnyText, nullable=False),
)

bodies = Table(
    "bodies",
    metadata,
    Column("digest", LargeBinary(16), primary_key=True),
    Column("length", Integer, nullable=False),
    Column("base_digest", LargeBinary(16)),
    Column("base_length", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("base_tail", Integer),
)

blobs = Table(
    "blobs",
    metadata,
    Column("digest", LargeBinary(16), primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

body_blobs = Table(
    "body_blobs",
    metadata,
    Column("body_digest", ForeignKey("bodies.digest"), primary_key=True),
    Column("blob_digest", ForeignKey("blobs.digest"), primary_key=True, index=True),
)

responses = Table(
    "responses",
    metadata,
    Column("response_id", AnyText(64), primary_key=True),
    Column("call_id", ForeignKey("calls.call_id"), nullable=False, index=True),
    Column("previous_id", AnyText),
    Column("input", LargeBinary, nullable=False),
    Column("reply", LargeBinary, nullable=False),
)

rewards = Table(
    "rewards",
    metadata,
    Column("reward_id", _ROW_NUMBER, primary_key=True, autoincrement=True),
    Column("session_id", ForeignKey("sessions.session_id"), nullable=False, index=True),
    Column("recorded_at", UTCDateTime, nullable=False),
    Column("value", Float, nullable=False),
    Column("spec", String(32)),
)

reward_components = Table(
    "reward_components",
    metadata,
    Column("reward_id", ForeignKey("rewards.reward_id"), primary_key=True),
    Column("name", AnyText, primary_key=True),
    Column("place", Integer, nullable=False),
    Column("value", Float, nullable=False),
    # NULL: written before kinds were kept, when every component was a part of the total.
    Column("kind", String(8)),
)

turn_rewards = Table(
    "turn_rewards",
    metadata,
    Column("reward_id", ForeignKey("rewards.reward_id"), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("call_id", AnyText),
    Column("turn", Integer),
    Column("value", Float, nullable=False),
)

token_texts = Table(
    "token_texts",
    metadata,
    Column("model", AnyText, primary_key=True),
    Column("token_id", Integer, primary_key=True),
    Column("text", LargeBinary, nullable=False),
)

session_heads = Table(
    "session_heads",
    metadata,
    # No reference: a call has its place before its session is stored.
    Column("session_id", AnyText(128), primary_key=True),
    Column("next_ordinal", Integer, nullable=False),
)

policy_versions = Table(
    "policy_versions",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("recorded_at", UTCDateTime, nullable=False),
)

proxies = Table(
    "proxies",
    metadata,
    Column("proxy_id", String(32), primary_key=True),
    Column("started_at", UTCDateTime, nullable=False),
    Column("seen_at", UTCDateTime, nullable=False),
    Column("counts", Text, nullable=False),
)

upstreams = Table(
    "upstreams",
    metadata,
    Column("name", AnyText, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("changed_at", UTCDateTime, nullable=False),
)

tasks = Table(
    "tasks",
    metadata,
    Column("task_id", AnyText(128), primary_key=True),
    Column("created_at", UTCDateTime, nullable=False),
    Column("job", AnyText, nullable=False, index=True),
    Column("submit_key", AnyText),
    Column("request", AnyText, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("enough", Integer),
    Column("state", String(16), nullable=False),
    Column("finished_at", UTCDateTime),
    Column("callback", String(16)),
    UniqueConstraint("job", "submit_key"),
)

rollouts = Table(
    "rollouts",
    metadata,
    Column("task_id", ForeignKey("tasks.task_id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("state", String(16), nullable=False, index=True),
    Column("attempts", Integer, nullable=False),
    # No reference: a session may be pruned, and what became of the rollout stays.
    Column("session_id", AnyText(128)),
    Column("started_at", UTCDateTime),
    Column("finished_at", UTCDateTime),
    Column("status", String(32)),
    Column("usable", Boolean),
    Column("reward", Float),
    Column("outcome", AnyText),
)

task_events = Table(
    "task_events",
    metadata,
    Column("event_id", _ROW_NUMBER, primary_key=True, autoincrement=True),
    Column("recorded_at", UTCDateTime, nullable=False),
    Column("task_id", ForeignKey("tasks.task_id"), nullable=False, index=True),
    Column("number", Integer),
    Column("name", String(32), nullable=False),
    Column("detail", AnyText),
)

batches = Table(
    "batches",
    metadata,
    Column("batch_id", String(32), primary_key=True),
    Column("consumer", AnyText(128), nullable=False, index=True),
    Column("made_at", UTCDateTime, nullable=False),
    Column("rows", Integer, nullable=False),
    # NULL once it is acknowledged: nobody asks for it again.
    Column("body", LargeBinary),
    # The lease in force.
    Column("lease_id", AnyText(128), nullable=False),
    Column("expires_at", UTCDateTime, nullable=False),
    Column("acked_at", UTCDateTime),
)

batch_leases = Table(
    "batch_leases",
    metadata,
    Column("consumer", AnyText(128), primary_key=True),
    Column("lease_id", AnyText(128), primary_key=True),
    Column("batch_id", ForeignKey("batches.batch_id"), nullable=False, index=True),
)

batch_sessions = Table(
    "batch_sessions",
    metadata,
    Column("consumer", AnyText(128), primary_key=True),
    # No reference: a session may be pruned, and comes back from an archive as one that was handed out.
    Column("session_id", AnyText(128), primary_key=True),
    Column("batch_id", ForeignKey("batches.batch_id"), nullable=False, index=True),
)

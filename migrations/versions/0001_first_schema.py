"""first schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

LARGE = (
    ("blobs", "data"),
    ("bodies", "data"),
    ("calls", "prompt_suffix"),
    ("calls", "headers"),
    ("calls", "error"),
    ("calls", "losses"),
    ("completions", "token_ids"),
    ("completions", "logprobs"),
    ("responses", "input"),
    ("responses", "reply"),
    ("sessions", "metadata"),
)
"""What PostgreSQL would try to compress: slowly, and mostly what is compressed already."""


def upgrade() -> None:
    op.create_table(
        "bodies",
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.Column("base_digest", sa.LargeBinary(16), nullable=True),
        sa.Column("base_length", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_bodies")),
    )
    op.create_table(
        "blobs",
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_blobs")),
    )
    op.create_table(
        "body_blobs",
        sa.Column("body_digest", sa.LargeBinary(16), nullable=False),
        sa.Column("blob_digest", sa.LargeBinary(16), nullable=False),
        sa.ForeignKeyConstraint(["blob_digest"], ["blobs.digest"], name=op.f("fk_body_blobs_blob_digest_blobs")),
        sa.ForeignKeyConstraint(["body_digest"], ["bodies.digest"], name=op.f("fk_body_blobs_body_digest_bodies")),
        sa.PrimaryKeyConstraint("body_digest", "blob_digest", name=op.f("pk_body_blobs")),
    )
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.String(length=128), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("task_id", sa.String(), nullable=True),
        sa.Column("group_id", sa.String(), nullable=True),
        sa.Column("harness", sa.String(), nullable=True),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_sessions")),
    )
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_sessions_created_at"), ["created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_sessions_group_id"), ["group_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_sessions_task_id"), ["task_id"], unique=False)

    op.create_table(
        "token_texts",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("token_id", sa.Integer(), nullable=False),
        sa.Column("text", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("model", "token_id", name=op.f("pk_token_texts")),
    )
    op.create_table(
        "calls",
        sa.Column("call_id", sa.String(length=32), nullable=False),
        sa.Column("session_id", sa.String(length=128), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("arrived_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("dialect", sa.String(length=16), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("streamed", sa.Boolean(), nullable=False),
        sa.Column("engine", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("requested_model", sa.String(), nullable=True),
        sa.Column("served_model", sa.String(), nullable=True),
        sa.Column("token_source", sa.String(length=16), nullable=False),
        sa.Column("prompt_length", sa.Integer(), nullable=True),
        sa.Column("prompt_digest", sa.LargeBinary(16), nullable=True),
        sa.Column("base_call_id", sa.String(length=32), nullable=True),
        sa.Column("base_choice", sa.Integer(), nullable=True),
        sa.Column("base_length", sa.Integer(), nullable=True),
        sa.Column("prompt_suffix", sa.LargeBinary(), nullable=True),
        sa.Column("usage_prompt_tokens", sa.BigInteger(), nullable=True),
        sa.Column("usage_completion_tokens", sa.BigInteger(), nullable=True),
        sa.Column("usage_cached_tokens", sa.BigInteger(), nullable=True),
        sa.Column("usage_reasoning_tokens", sa.BigInteger(), nullable=True),
        sa.Column("temperature", sa.Float(), nullable=True),
        sa.Column("top_p", sa.Float(), nullable=True),
        sa.Column("top_k", sa.BigInteger(), nullable=True),
        sa.Column("min_p", sa.Float(), nullable=True),
        sa.Column("presence_penalty", sa.Float(), nullable=True),
        sa.Column("frequency_penalty", sa.Float(), nullable=True),
        sa.Column("repetition_penalty", sa.Float(), nullable=True),
        sa.Column("max_tokens", sa.BigInteger(), nullable=True),
        sa.Column("seed", sa.Text(), nullable=True),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("logprobs_mode", sa.String(length=16), nullable=False),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("body_digest", sa.LargeBinary(16), nullable=True),
        sa.Column("tools_digest", sa.String(length=32), nullable=True),
        sa.Column("template_digest", sa.String(length=32), nullable=True),
        sa.Column("caveat", sa.String(length=16), nullable=True),
        sa.Column("losses", sa.Text(), nullable=True),
        sa.Column("choices", sa.Integer(), nullable=False),
        sa.Column("engine_request_id", sa.String(), nullable=True),
        sa.Column("policy_version_min", sa.Integer(), nullable=False),
        sa.Column("policy_version_max", sa.Integer(), nullable=False),
        sa.Column("first_byte_us", sa.BigInteger(), nullable=True),
        sa.Column("last_byte_us", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["body_digest"], ["bodies.digest"], name=op.f("fk_calls_body_digest_bodies")),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.session_id"], name=op.f("fk_calls_session_id_sessions")),
        sa.PrimaryKeyConstraint("call_id", name=op.f("pk_calls")),
        sa.UniqueConstraint("session_id", "ordinal", name=op.f("uq_calls_session_id_ordinal")),
    )
    op.create_table(
        "rewards",
        sa.Column("reward_id", ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("session_id", sa.String(length=128), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.session_id"], name=op.f("fk_rewards_session_id_sessions")),
        sa.PrimaryKeyConstraint("reward_id", name=op.f("pk_rewards")),
    )
    with op.batch_alter_table("rewards", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_rewards_session_id"), ["session_id"], unique=False)

    op.create_table(
        "call_facts",
        sa.Column("fact_id", ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("call_id", sa.String(length=32), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("name", sa.String(length=16), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["call_id"], ["calls.call_id"], name=op.f("fk_call_facts_call_id_calls")),
        sa.PrimaryKeyConstraint("fact_id", name=op.f("pk_call_facts")),
    )
    with op.batch_alter_table("call_facts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_call_facts_call_id"), ["call_id"], unique=False)

    op.create_table(
        "completions",
        sa.Column("call_id", sa.String(length=32), nullable=False),
        sa.Column("choice_index", sa.Integer(), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.Column("token_ids", sa.LargeBinary(), nullable=False),
        sa.Column("logprobs", sa.LargeBinary(), nullable=True),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("finish_reason", sa.String(length=16), nullable=True),
        sa.Column("stop_reason", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["call_id"], ["calls.call_id"], name=op.f("fk_completions_call_id_calls")),
        sa.PrimaryKeyConstraint("call_id", "choice_index", name=op.f("pk_completions")),
    )
    op.create_table(
        "responses",
        sa.Column("response_id", sa.String(length=64), nullable=False),
        sa.Column("call_id", sa.String(length=32), nullable=False),
        sa.Column("previous_id", sa.String(), nullable=True),
        sa.Column("input", sa.LargeBinary(), nullable=False),
        sa.Column("reply", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["call_id"], ["calls.call_id"], name=op.f("fk_responses_call_id_calls")),
        sa.PrimaryKeyConstraint("response_id", name=op.f("pk_responses")),
    )
    op.create_table(
        "reward_components",
        sa.Column("reward_id", ROW_NUMBER, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["reward_id"], ["rewards.reward_id"], name=op.f("fk_reward_components_reward_id_rewards")
        ),
        sa.PrimaryKeyConstraint("reward_id", "name", name=op.f("pk_reward_components")),
    )
    op.create_table(
        "session_heads",
        sa.Column("session_id", sa.String(length=128), nullable=False),
        sa.Column("next_ordinal", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_session_heads")),
    )
    op.create_table(
        "policy_versions",
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_policy_versions")),
    )
    if op.get_bind().dialect.name == "postgresql":
        for table, column in LARGE:
            op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")


def downgrade() -> None:
    op.drop_table("policy_versions")
    op.drop_table("session_heads")
    op.drop_table("reward_components")
    op.drop_table("responses")
    op.drop_table("completions")
    with op.batch_alter_table("call_facts", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_call_facts_call_id"))

    op.drop_table("call_facts")
    with op.batch_alter_table("rewards", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_rewards_session_id"))

    op.drop_table("rewards")
    op.drop_table("calls")
    op.drop_table("token_texts")
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_sessions_task_id"))
        batch_op.drop_index(batch_op.f("ix_sessions_group_id"))
        batch_op.drop_index(batch_op.f("ix_sessions_created_at"))

    op.drop_table("sessions")
    op.drop_table("body_blobs")
    op.drop_table("blobs")
    op.drop_table("bodies")

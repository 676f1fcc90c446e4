"""batches that trainers take: what they hold, who has them, and until when"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    when, name = sa.DateTime(timezone=True), sa.String(length=128)
    op.create_table(
        "batches",
        sa.Column("batch_id", sa.String(length=32), nullable=False),
        sa.Column("consumer", name, nullable=False),
        sa.Column("made_at", when, nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("lease_id", name, nullable=False),
        sa.Column("expires_at", when, nullable=False),
        sa.Column("acked_at", when, nullable=True),
        sa.PrimaryKeyConstraint("batch_id", name=op.f("pk_batches")),
    )
    op.create_index(op.f("ix_batches_consumer"), "batches", ["consumer"])
    for table, own in (("batch_leases", "lease_id"), ("batch_sessions", "session_id")):
        op.create_table(
            table,
            sa.Column("consumer", name, nullable=False),
            sa.Column(own, name, nullable=False),
            sa.Column("batch_id", sa.String(length=32), nullable=False),
            sa.ForeignKeyConstraint(["batch_id"], ["batches.batch_id"], name=op.f(f"fk_{table}_batch_id_batches")),
            sa.PrimaryKeyConstraint("consumer", own, name=op.f(f"pk_{table}")),
        )
        op.create_index(op.f(f"ix_{table}_batch_id"), table, ["batch_id"])


def downgrade() -> None:
    for table in ("batch_sessions", "batch_leases"):
        op.drop_index(op.f(f"ix_{table}_batch_id"), table)
        op.drop_table(table)
    op.drop_index(op.f("ix_batches_consumer"), "batches")
    op.drop_table("batches")

"""exact prompts: what became of them, and the keys of the turns that they go on from"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INDEX = "ix_completions_turn_key"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("prompts", sa.String(length=16), nullable=True))
    op.add_column("calls", sa.Column("prompt_outcome", sa.String(length=16), nullable=True))
    op.add_column("calls", sa.Column("prompt_reason", sa.String(), nullable=True))
    op.add_column("calls", sa.Column("continued_call_id", sa.String(length=32), nullable=True))
    op.add_column("calls", sa.Column("continued_choice", sa.Integer(), nullable=True))
    op.add_column("calls", sa.Column("continued_length", sa.Integer(), nullable=True))
    op.add_column("completions", sa.Column("turn_key", sa.LargeBinary(16), nullable=True))
    has_key = sa.text("turn_key IS NOT NULL")
    op.create_index(INDEX, "completions", ["turn_key"], sqlite_where=has_key, postgresql_where=has_key)


def downgrade() -> None:
    op.drop_index(INDEX, table_name="completions")
    for table, columns in (
        ("completions", ("turn_key",)),
        ("calls", ("continued_length", "continued_choice", "continued_call_id", "prompt_reason", "prompt_outcome")),
        ("sessions", ("prompts",)),
    ):
        for column in columns:
            op.drop_column(table, column)

"""exact prompts: what became of them, and the keys of the turns that they go on from"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

COLUMNS = (
    ("sessions", ("prompts",)),
    (
        "calls",
        (
            "prompt_outcome",
            "prompt_reason",
            "prompt_detail",
            "continued_call_id",
            "continued_choice",
            "continued_length",
        ),
    ),
    ("completions", ("turn_key", "turn_spelling", "turn_reasoning", "turn_ids", "turn_template")),
)
INDEX = "ix_completions_turn_key"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("prompts", sa.String(length=16), nullable=True))
    op.add_column("calls", sa.Column("prompt_outcome", sa.String(length=16), nullable=True))
    op.add_column("calls", sa.Column("prompt_reason", sa.String(), nullable=True))
    op.add_column("calls", sa.Column("prompt_detail", sa.String(), nullable=True))
    op.add_column("calls", sa.Column("continued_call_id", sa.String(length=32), nullable=True))
    op.add_column("calls", sa.Column("continued_choice", sa.Integer(), nullable=True))
    op.add_column("calls", sa.Column("continued_length", sa.Integer(), nullable=True))
    op.add_column("completions", sa.Column("turn_key", sa.LargeBinary(16), nullable=True))
    op.add_column("completions", sa.Column("turn_spelling", sa.LargeBinary(16), nullable=True))
    op.add_column("completions", sa.Column("turn_reasoning", sa.LargeBinary(16), nullable=True))
    op.add_column("completions", sa.Column("turn_ids", sa.String(), nullable=True))
    op.add_column("completions", sa.Column("turn_template", sa.String(length=32), nullable=True))
    has_key = sa.text("turn_key IS NOT NULL")
    op.create_index(INDEX, "completions", ["turn_key"], sqlite_where=has_key, postgresql_where=has_key)


def downgrade() -> None:
    op.drop_index(INDEX, table_name="completions")
    for table, columns in reversed(COLUMNS):
        for column in reversed(columns):
            op.drop_column(table, column)

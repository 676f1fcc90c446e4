"""tasks, their rollouts, and what happened to them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    when = sa.DateTime(timezone=True)
    op.create_table(
        "tasks",
        sa.Column("task_id", sa.String(length=128), nullable=False),
        sa.Column("created_at", when, nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("submit_key", sa.String(), nullable=True),
        sa.Column("request", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("enough", sa.Integer(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("finished_at", when, nullable=True),
        sa.Column("callback", sa.String(length=16), nullable=True),
        sa.PrimaryKeyConstraint("task_id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("job", "submit_key", name=op.f("uq_tasks_job_submit_key")),
    )
    op.create_index(op.f("ix_tasks_job"), "tasks", ["job"])
    op.create_table(
        "rollouts",
        sa.Column("task_id", sa.String(length=128), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("session_id", sa.String(length=128), nullable=True),
        sa.Column("started_at", when, nullable=True),
        sa.Column("finished_at", when, nullable=True),
        sa.Column("status", sa.String(length=32), nullable=True),
        sa.Column("usable", sa.Boolean(), nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name=op.f("fk_rollouts_task_id_tasks")),
        sa.PrimaryKeyConstraint("task_id", "number", name=op.f("pk_rollouts")),
    )
    op.create_index(op.f("ix_rollouts_state"), "rollouts", ["state"])
    op.create_table(
        "task_events",
        sa.Column("event_id", ROW_NUMBER, autoincrement=True, nullable=False),
        sa.Column("recorded_at", when, nullable=False),
        sa.Column("task_id", sa.String(length=128), nullable=False),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("detail", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name=op.f("fk_task_events_task_id_tasks")),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_task_events")),
    )
    op.create_index(op.f("ix_task_events_task_id"), "task_events", ["task_id"])


def downgrade() -> None:
    for table in ("task_events", "rollouts", "tasks"):
        op.drop_table(table)

"""rewards of single turns, kinds of components, and the specification that a reward was computed by"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("rewards", sa.Column("spec", sa.String(length=32), nullable=True))
    op.add_column("reward_components", sa.Column("kind", sa.String(length=8), nullable=True))
    op.create_table(
        "turn_rewards",
        sa.Column("reward_id", ROW_NUMBER, nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("call_id", sa.String(), nullable=True),
        sa.Column("turn", sa.Integer(), nullable=True),
        sa.Column("value", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["reward_id"], ["rewards.reward_id"], name=op.f("fk_turn_rewards_reward_id_rewards")),
        sa.PrimaryKeyConstraint("reward_id", "place", name=op.f("pk_turn_rewards")),
    )


def downgrade() -> None:
    op.drop_table("turn_rewards")
    op.drop_column("reward_components", "kind")
    op.drop_column("rewards", "spec")

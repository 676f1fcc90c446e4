"""upstreams: which engine answered a call, the proxies that run, and the engines that were added or taken out meanwhile"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("calls", sa.Column("upstream", sa.String(), nullable=True))
    op.create_table(
        "proxies",
        sa.Column("proxy_id", sa.String(length=32), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("proxy_id", name=op.f("pk_proxies")),
    )
    op.create_table(
        "upstreams",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_upstreams")),
    )


def downgrade() -> None:
    op.drop_table("upstreams")
    op.drop_table("proxies")
    op.drop_column("calls", "upstream")

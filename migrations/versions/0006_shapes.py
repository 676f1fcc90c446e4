"""what a request looks like"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

COLUMNS = (
    ("shape_messages", sa.Integer()),
    ("shape_tools", sa.Text()),
    ("shape_json", sa.Boolean()),
    ("system_opening", sa.String(length=16)),
    ("last_opening", sa.String(length=16)),
)
"""NULL in all calls of before: their shape is not known, and evidence for their kind is less."""


def upgrade() -> None:
    for name, kind in COLUMNS:
        op.add_column("calls", sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    for name, _ in reversed(COLUMNS):
        op.drop_column("calls", name)

"""batches are stored as they come, as everything large is: the server's own compression costs more than it saves"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _store("EXTERNAL")


def downgrade() -> None:
    _store("EXTENDED")


def _store(how: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER TABLE batches ALTER COLUMN body SET STORAGE {how}")

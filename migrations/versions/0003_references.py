"""indexes by which what refers to a row is found"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

PARTIAL = (("ix_calls_base_call_id", "base_call_id"), ("ix_calls_body_digest", "body_digest"))
WHOLE = (("ix_body_blobs_blob_digest", "body_blobs", "blob_digest"), ("ix_responses_call_id", "responses", "call_id"))


def upgrade() -> None:
    for index, column in PARTIAL:
        given = sa.text(f"{column} IS NOT NULL")
        op.create_index(index, "calls", [column], sqlite_where=given, postgresql_where=given)
    for index, table, column in WHOLE:
        op.create_index(index, table, [column])


def downgrade() -> None:
    for index, table, _ in WHOLE:
        op.drop_index(index, table_name=table)
    for index, _ in PARTIAL:
        op.drop_index(index, table_name="calls")

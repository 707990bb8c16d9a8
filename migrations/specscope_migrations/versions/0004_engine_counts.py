"""The engine's own counters of a request, to hold our totals against."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

DIFFERING = sa.text("engine_verify_steps <> verify_steps OR engine_accepted <> accepted")


def upgrade() -> None:
    op.add_column("request", sa.Column("engine_verify_steps", sa.BigInteger(), nullable=True))
    op.add_column("request", sa.Column("engine_accepted", sa.BigInteger(), nullable=True))
    op.create_index(
        "request_differing",
        "request",
        ["engine_uid", "arrival_ns", "uid"],
        sqlite_where=DIFFERING,
        postgresql_where=DIFFERING,
    )


def downgrade() -> None:
    op.drop_index("request_differing", "request")
    op.drop_column("request", "engine_accepted")
    op.drop_column("request", "engine_verify_steps")

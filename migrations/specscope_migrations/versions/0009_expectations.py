"""Expectations: what is promised of a draft, declared or learned from a confirmed period."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

STRING = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

DOUBLE: sa.Double[float] = sa.Double()


def _key(name: str) -> sa.Column[str]:
    return sa.Column(name, STRING, nullable=False)


def upgrade() -> None:
    op.create_table(
        "expectation",
        *(_key(name) for name in ("workspace", "engine", "model", "workload", "source")),
        sa.Column("steps", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("floor", DOUBLE, nullable=True),
        sa.Column("who", STRING, server_default="", nullable=False),
        sa.Column("said_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["workspace"], ["workspace.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("workspace", "engine", "model", "workload", "source"),
    )


def downgrade() -> None:
    op.drop_table("expectation")

"""Steps of ranks as checksums, other tools' spans, and whose child a request's span is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

STRING = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, STRING, server_default="", nullable=False)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)


def upgrade() -> None:
    op.add_column("request", _text("parent_span_id"))
    op.create_table(
        "rank_steps",
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("process_uid", STRING, nullable=False),
        sa.Column("first_step", sa.BigInteger(), autoincrement=False, nullable=False),
        _count("last_step"),
        _count("size"),
        _count("event_ns"),
        sa.Column("sums", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["engine_uid", "process_uid"], ["process.engine_uid", "process.process_uid"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("engine_uid", "process_uid", "first_step"),
    )
    op.create_table(
        "span",
        sa.Column("workspace", STRING, nullable=False),
        sa.Column("trace_id", STRING, nullable=False),
        sa.Column("span_id", STRING, nullable=False),
        _text("parent_id"),
        _text("name"),
        _text("service"),
        _text("scope"),
        _count("start_ns"),
        _count("end_ns"),
        _count("received_ns"),
        _count("failed"),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["workspace"], ["workspace.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("workspace", "trace_id", "span_id"),
    )
    op.create_index("span_by_age", "span", ["workspace", "received_ns", "trace_id", "span_id"])


def downgrade() -> None:
    op.drop_table("span")
    op.drop_table("rank_steps")
    op.drop_column("request", "parent_span_id")

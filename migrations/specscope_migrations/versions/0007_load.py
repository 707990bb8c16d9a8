"""Real load: sums by the minute, what other tools call a request, log records of traces."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

STRING = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
COUNTS = (
    *("steps", "drafted_depth", "drafted_nodes", "accepted", "bonus"),
    *("committed", "zero_steps", "undrafted_steps"),
)


def _key(name: str) -> sa.Column[str]:
    return sa.Column(name, STRING, nullable=False)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, STRING, server_default="", nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)


def upgrade() -> None:
    op.create_table(
        "rollup_60s",
        _key("engine_uid"),
        _key("dimension"),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        _key("slice"),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        *(_number(name) for name in COUNTS),
        sa.ForeignKeyConstraint(["engine_uid"], ["engine.engine_uid"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("engine_uid", "dimension", "bucket", "slice", "position"),
        sqlite_with_rowid=False,
    )
    sums = ", ".join(f"CAST(SUM({name}) AS BIGINT)" for name in COUNTS)
    op.execute(
        f"INSERT INTO rollup_60s (engine_uid, dimension, bucket, slice, position, {', '.join(COUNTS)}) "
        f"SELECT engine_uid, dimension, bucket - bucket % 60, slice, position, {sums} FROM rollup_10s "
        "GROUP BY 1, 2, 3, 4, 5"
    )
    # When an increment is so old that its row here is gone, it is refused by age: see retention.
    op.add_column("rollup_applied", _number("bucket"))
    op.create_index("rollup_applied_by_bucket", "rollup_applied", ["bucket"])
    op.add_column("request", _text("response_id"))
    op.create_index(
        "request_by_response",
        "request",
        ["workspace", "response_id"],
        sqlite_where=sa.text("response_id <> ''"),
        postgresql_where=sa.text("response_id <> ''"),
    )
    for name in ("request_id", "response_id"):
        op.add_column("span", _text(name))
        op.create_index(
            f"span_by_{name.partition('_')[0]}",
            "span",
            ["workspace", name],
            sqlite_where=sa.text(f"{name} <> ''"),
            postgresql_where=sa.text(f"{name} <> ''"),
        )
    op.create_table(
        "log_record",
        _key("workspace"),
        _key("trace_id"),
        _key("record_id"),
        _text("span_id"),
        _number("time_ns"),
        _number("received_ns"),
        _number("severity"),
        _text("service"),
        _text("scope"),
        _text("body"),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["workspace"], ["workspace.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("workspace", "trace_id", "record_id"),
    )
    op.create_index("log_record_by_age", "log_record", ["workspace", "received_ns", "trace_id", "record_id"])


def downgrade() -> None:
    op.drop_table("log_record")
    for name in ("request_id", "response_id"):
        op.drop_index(f"span_by_{name.partition('_')[0]}", "span")
        op.drop_column("span", name)
    op.drop_index("request_by_response", "request")
    op.drop_column("request", "response_id")
    op.drop_index("rollup_applied_by_bucket", "rollup_applied")
    op.drop_column("rollup_applied", "bucket")
    op.drop_table("rollup_60s")

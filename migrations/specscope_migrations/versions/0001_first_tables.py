"""The first tables: engines and what they report, requests, rollups, ledger, findings, alerts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Byte order in both databases; SQLite has it by default.
STRING = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
DOUBLE: sa.Double[float] = sa.Double()
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "workspace",
        sa.Column("name", STRING, nullable=False),
        sa.Column("created_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "engine",
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("workspace", STRING, nullable=False),
        sa.Column("environment", STRING, server_default="", nullable=False),
        sa.Column("instance", STRING, server_default="", nullable=False),
        sa.Column("started_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_received_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_request_ns", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["workspace"], ["workspace.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("engine_uid"),
    )
    op.create_index("engine_by_workspace", "engine", ["workspace", "last_received_ns"])
    op.create_table(
        "model",
        sa.Column("workspace", STRING, nullable=False),
        sa.Column("name", STRING, nullable=False),
        sa.ForeignKeyConstraint(["workspace"], ["workspace.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("workspace", "name"),
    )
    op.create_table(
        "alert_event",
        sa.Column("id", ROW_ID, sa.Identity(always=False), nullable=False),
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("rule", STRING, server_default="", nullable=False),
        sa.Column("title", STRING, server_default="", nullable=False),
        sa.Column("state", STRING, server_default="", nullable=False),
        sa.Column("reason", STRING, server_default="", nullable=False),
        sa.Column("since_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("evaluated_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["engine_uid"], ["engine.engine_uid"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("alert_event_by_engine", "alert_event", ["engine_uid", "id"])
    op.create_table(
        "alert_state",
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("rule", STRING, nullable=False),
        sa.Column("title", STRING, server_default="", nullable=False),
        sa.Column("state", STRING, server_default="", nullable=False),
        sa.Column("reason", STRING, server_default="", nullable=False),
        sa.Column("since_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("evaluated_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["engine_uid"], ["engine.engine_uid"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("engine_uid", "rule"),
    )
    op.create_table(
        "delivery",
        sa.Column("id", ROW_ID, sa.Identity(always=False), nullable=False),
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("rule", STRING, server_default="", nullable=False),
        sa.Column("state", STRING, server_default="", nullable=False),
        sa.Column("target", STRING, server_default="", nullable=False),
        sa.Column("status", STRING, server_default="", nullable=False),
        sa.Column("attempts", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("next_attempt_ns", sa.BigInteger(), nullable=True),
        sa.Column("error", STRING, server_default="", nullable=False),
        sa.Column("created_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["engine_uid"], ["engine.engine_uid"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("delivery_by_engine", "delivery", ["engine_uid", "id"])
    op.create_index(
        "delivery_pending",
        "delivery",
        ["next_attempt_ns"],
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_table(
        "finding",
        sa.Column("id", ROW_ID, sa.Identity(always=False), nullable=False),
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("kind", STRING, server_default="", nullable=False),
        sa.Column("boundary", STRING, server_default="", nullable=False),
        sa.Column("fault_class", STRING, server_default="", nullable=False),
        sa.Column("severity", STRING, server_default="", nullable=False),
        sa.Column("confidence", STRING, server_default="", nullable=False),
        sa.Column("title", STRING, server_default="", nullable=False),
        sa.Column("sentence", STRING, server_default="", nullable=False),
        sa.Column("opened_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_seen_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("closed_ns", sa.BigInteger(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["engine_uid"], ["engine.engine_uid"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("finding_by_engine", "finding", ["engine_uid", "opened_ns"])
    op.create_index(
        "finding_open",
        "finding",
        ["engine_uid", "kind", "boundary"],
        unique=True,
        sqlite_where=sa.text("closed_ns IS NULL"),
        postgresql_where=sa.text("closed_ns IS NULL"),
    )
    op.create_table(
        "process",
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("process_uid", STRING, nullable=False),
        sa.Column("role", STRING, server_default="", nullable=False),
        sa.Column("pid", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("start_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tp", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("dp", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("pp", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("serving_role", STRING, server_default="", nullable=False),
        sa.Column("service_name", STRING, server_default="", nullable=False),
        sa.Column("engine_name", STRING, server_default="", nullable=False),
        sa.Column("engine_version", STRING, server_default="", nullable=False),
        sa.Column("tracer_version", STRING, server_default="", nullable=False),
        sa.Column("detail", STRING, server_default="", nullable=False),
        sa.Column("last_event_ns", sa.BigInteger(), nullable=True),
        sa.Column("last_received_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("clock_offset_ns", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["engine_uid"], ["engine.engine_uid"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("engine_uid", "process_uid"),
    )
    op.create_table(
        "request",
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("uid", STRING, nullable=False),
        sa.Column("workspace", STRING, nullable=False),
        sa.Column("process_uid", STRING, server_default="", nullable=False),
        sa.Column("rid", STRING, server_default="", nullable=False),
        sa.Column("trace_id", STRING, server_default="", nullable=False),
        sa.Column("state", STRING, server_default="", nullable=False),
        sa.Column("kind", STRING, server_default="", nullable=False),
        sa.Column("model", STRING, server_default="", nullable=False),
        sa.Column("arrival_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("end_ns", sa.BigInteger(), nullable=True),
        sa.Column("last_received_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=True),
        sa.Column("max_tokens", sa.BigInteger(), nullable=True),
        sa.Column("finish_reason", STRING, server_default="", nullable=False),
        sa.Column("temperature", DOUBLE, nullable=True),
        sa.Column("queue_s", DOUBLE, nullable=True),
        sa.Column("first_token_s", DOUBLE, nullable=True),
        sa.Column("verify_steps", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("drafted_depth", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("drafted_nodes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("accepted", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("bonus", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("committed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("zero_accept_steps", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("overshoot_steps", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("prefill_passes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("boundaries", sa.LargeBinary(), nullable=True),
        sa.Column("boundaries_rank", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("short", STRING, server_default="", nullable=False),
        sa.ForeignKeyConstraint(["engine_uid"], ["engine.engine_uid"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("engine_uid", "uid"),
    )
    op.create_index("request_by_arrival", "request", ["workspace", "arrival_ns", "uid"])
    op.create_index("request_by_engine", "request", ["engine_uid", "arrival_ns", "uid", "kind"])
    op.create_index("request_by_rid", "request", ["workspace", "rid"])
    op.create_index("request_by_trace", "request", ["workspace", "trace_id"])
    op.create_index("request_by_uid", "request", ["workspace", "uid"])
    op.create_index(
        "request_running",
        "request",
        ["workspace", "arrival_ns", "uid"],
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_index(
        "request_short",
        "request",
        ["workspace", "arrival_ns", "uid"],
        sqlite_where=sa.text("short <> ''"),
        postgresql_where=sa.text("short <> ''"),
    )
    op.create_table(
        "rollup_10s",
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("dimension", STRING, nullable=False),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("slice", STRING, nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("steps", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("drafted_depth", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("drafted_nodes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("accepted", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("bonus", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("committed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("zero_steps", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("undrafted_steps", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(["engine_uid"], ["engine.engine_uid"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("engine_uid", "dimension", "bucket", "slice", "position"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "boundary_count",
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("process_uid", STRING, nullable=False),
        sa.Column("boundary", STRING, nullable=False),
        sa.Column("source", STRING, nullable=False),
        sa.Column("mode", STRING, nullable=False),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("expected", sa.BigInteger(), nullable=True),
        sa.Column("observed", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["engine_uid", "process_uid"], ["process.engine_uid", "process.process_uid"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("engine_uid", "process_uid", "boundary", "source", "mode", "bucket"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "boundary_total",
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("process_uid", STRING, nullable=False),
        sa.Column("boundary", STRING, nullable=False),
        sa.Column("source", STRING, nullable=False),
        sa.Column("mode", STRING, nullable=False),
        sa.Column("expected", sa.BigInteger(), nullable=True),
        sa.Column("observed", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["engine_uid", "process_uid"], ["process.engine_uid", "process.process_uid"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("engine_uid", "process_uid", "boundary", "source", "mode"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "engine_event",
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("event_ns", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("process_uid", STRING, nullable=False),
        sa.Column("event", STRING, nullable=False),
        sa.Column("model", STRING, server_default="", nullable=False),
        sa.Column("speculation", sa.Integer(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["engine_uid", "process_uid"], ["process.engine_uid", "process.process_uid"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("engine_uid", "event_ns", "process_uid", "event"),
    )
    op.create_table(
        "process_counter",
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("process_uid", STRING, nullable=False),
        sa.Column("name", STRING, nullable=False),
        sa.Column("label", STRING, nullable=False),
        sa.Column("value", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["engine_uid", "process_uid"], ["process.engine_uid", "process.process_uid"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("engine_uid", "process_uid", "name", "label"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "process_gauge",
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("process_uid", STRING, nullable=False),
        sa.Column("name", STRING, nullable=False),
        sa.Column("label", STRING, nullable=False),
        sa.Column("event_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("value", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reason", STRING, server_default="", nullable=False),
        sa.ForeignKeyConstraint(
            ["engine_uid", "process_uid"], ["process.engine_uid", "process.process_uid"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("engine_uid", "process_uid", "name", "label"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rollup_applied",
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("process_uid", STRING, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(
            ["engine_uid", "process_uid"], ["process.engine_uid", "process.process_uid"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("engine_uid", "process_uid", "seq"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "step_chunk",
        sa.Column("engine_uid", STRING, nullable=False),
        sa.Column("uid", STRING, nullable=False),
        sa.Column("process_uid", STRING, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first_step", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("start_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("end_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("steps", sa.LargeBinary(), nullable=False),
        sa.Column("extends", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["engine_uid", "process_uid"], ["process.engine_uid", "process.process_uid"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("engine_uid", "uid", "process_uid", "seq"),
    )
    op.create_index("step_chunk_by_end", "step_chunk", ["engine_uid", "end_ns"])
    op.bulk_insert(
        sa.table("workspace", sa.column("name", sa.Text()), sa.column("created_ns", sa.BigInteger())),
        [{"name": "default", "created_ns": 0}],
    )


def downgrade() -> None:
    for table in (
        "step_chunk",
        "rollup_applied",
        "process_gauge",
        "process_counter",
        "engine_event",
        "boundary_total",
        "boundary_count",
        "rollup_10s",
        "request",
        "process",
        "finding",
        "delivery",
        "alert_state",
        "alert_event",
        "model",
        "engine",
        "workspace",
    ):
        op.drop_table(table)

"""Tables of what the server concludes and whom it told: findings, alerts, notifications."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Identity, Index, Table, text

from specscope_server.store.schema_parts import (
    RowId,
    String,
    engine_key,
    int_column,
    key_column,
    metadata,
    text_column,
)
from specscope_server.store.values import JsonText

finding = Table(
    "finding",
    metadata,
    Column("id", RowId, Identity(), primary_key=True),
    Column("engine_uid", String, ForeignKey("engine.engine_uid", ondelete="CASCADE"), nullable=False),
    text_column("kind"),
    text_column("boundary"),
    text_column("fault_class"),
    text_column("severity"),
    text_column("confidence"),
    text_column("title"),
    text_column("sentence"),
    int_column("opened_ns"),
    int_column("last_seen_ns"),
    int_column("closed_ns", None),
    Column("body", JsonText, nullable=False),
    Index(
        "finding_open",
        "engine_uid",
        "kind",
        "boundary",
        unique=True,
        sqlite_where=text("closed_ns IS NULL"),
        postgresql_where=text("closed_ns IS NULL"),
    ),
    Index("finding_by_engine", "engine_uid", "opened_ns"),
)


def _alert_columns() -> tuple[Column[str] | Column[int], ...]:
    return (
        text_column("title"),
        text_column("state"),
        text_column("reason"),
        int_column("since_ns"),
        int_column("evaluated_ns"),
    )


# Besides the state itself: what change waits for its duration, whether somebody was told that it fires and
# when last (``told``), why nobody is told (``quiet``), who took it on, and what the rule remembers.
alert_state = Table(
    "alert_state",
    metadata,
    engine_key(),
    key_column("rule"),
    *_alert_columns(),
    text_column("severity"),
    text_column("pending"),
    int_column("pending_since_ns", None),
    text_column("told"),
    int_column("told_ns", None),
    text_column("quiet"),
    int_column("ack_ns", None),
    text_column("ack_by"),
    text_column("ack_note"),
    Column("memo", JsonText, nullable=False, server_default="{}"),
)

alert_event = Table(
    "alert_event",
    metadata,
    Column("id", RowId, Identity(), primary_key=True),
    Column("engine_uid", String, ForeignKey("engine.engine_uid", ondelete="CASCADE"), nullable=False),
    text_column("rule"),
    *_alert_columns(),
    text_column("severity"),
    # What the diagnosis said when the state changed; it stays when findings are closed and data goes.
    Column("evidence", JsonText, nullable=False, server_default="{}"),
    Index("alert_event_by_engine", "engine_uid", "id"),
)

delivery = Table(
    "delivery",
    metadata,
    Column("id", RowId, Identity(), primary_key=True),
    Column("engine_uid", String, ForeignKey("engine.engine_uid", ondelete="CASCADE"), nullable=False),
    text_column("rule"),
    text_column("state"),
    text_column("target"),
    text_column("status"),
    int_column("attempts"),
    int_column("next_attempt_ns", None),
    text_column("error"),
    int_column("created_ns"),
    Column("payload", JsonText, nullable=False),
    Index("delivery_by_engine", "engine_uid", "id"),
    Index(
        "delivery_pending",
        "next_attempt_ns",
        sqlite_where=text("status = 'pending'"),
        postgresql_where=text("status = 'pending'"),
    ),
)

# What a workspace changed of the built-in rules, and rules of its own.
alert_rule = Table(
    "alert_rule",
    metadata,
    key_column("workspace", ForeignKey("workspace.name", ondelete="CASCADE")),
    key_column("name"),
    int_column("updated_ns"),
    Column("body", JsonText, nullable=False),
)

silence = Table(
    "silence",
    metadata,
    key_column("workspace", ForeignKey("workspace.name", ondelete="CASCADE")),
    key_column("silence_uid"),
    text_column("rule"),
    text_column("engine"),
    int_column("starts_ns"),
    int_column("ends_ns"),
    int_column("created_ns"),
    text_column("author"),
    text_column("comment"),
)

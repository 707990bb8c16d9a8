"""Rules and silences are stored; a state knows what it waits for, who was told and who acknowledged it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

STRING = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, STRING, server_default="", nullable=False)


def _time(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=True)


def _json(name: str, default: str | None = "{}") -> sa.Column[str]:
    return sa.Column(name, sa.Text(), server_default=default, nullable=False)


def _state_columns() -> tuple[sa.Column[str] | sa.Column[int], ...]:
    return (
        _text("severity"),
        _text("pending"),
        _time("pending_since_ns"),
        _text("told"),
        _time("told_ns"),
        _text("quiet"),
        _time("ack_ns"),
        _text("ack_by"),
        _text("ack_note"),
        _json("memo"),
    )


def _workspace() -> sa.Column[str]:
    owner = sa.ForeignKey("workspace.name", ondelete="CASCADE")
    return sa.Column("workspace", STRING, owner, nullable=False)


def upgrade() -> None:
    for column in _state_columns():
        op.add_column("alert_state", column)
    # Whoever was told that a rule fires must be told of its end.
    op.execute("UPDATE alert_state SET told = 'firing', told_ns = since_ns WHERE state = 'firing'")
    for column in (_text("severity"), _json("evidence")):
        op.add_column("alert_event", column)
    op.create_table(
        "alert_rule",
        _workspace(),
        sa.Column("name", STRING, nullable=False),
        sa.Column("updated_ns", sa.BigInteger(), server_default="0", nullable=False),
        _json("body", None),
        sa.PrimaryKeyConstraint("workspace", "name"),
    )
    op.create_table(
        "silence",
        _workspace(),
        sa.Column("silence_uid", STRING, nullable=False),
        _text("rule"),
        _text("engine"),
        *(
            sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)
            for name in ("starts_ns", "ends_ns", "created_ns")
        ),
        _text("author"),
        _text("comment"),
        sa.PrimaryKeyConstraint("workspace", "silence_uid"),
    )


def downgrade() -> None:
    op.drop_table("silence")
    op.drop_table("alert_rule")
    for name in ("evidence", "severity"):
        op.drop_column("alert_event", name)
    for column in reversed(_state_columns()):
        op.drop_column("alert_state", column.name)

"""Who may do what: users, API tokens, and an audit trail of what was done."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

STRING = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, STRING, server_default="", nullable=False)


def _time(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)


def _later(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=True)


def upgrade() -> None:
    op.create_table(
        "user",
        sa.Column("name", STRING, nullable=False),
        *(_text(name) for name in ("workspace", "role", "password", "session_key")),
        _time("created_ns"),
        _time("changed_ns"),
        _later("signed_in_ns"),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "api_token",
        sa.Column("token_uid", STRING, nullable=False),
        sa.Column("workspace", STRING, sa.ForeignKey("workspace.name", ondelete="CASCADE"), nullable=False),
        *(_text(name) for name in ("scopes", "name", "secret", "created_by")),
        _time("created_ns"),
        _later("used_ns"),
        sa.PrimaryKeyConstraint("token_uid"),
    )
    op.create_table(
        "audit",
        sa.Column("id", ROW_ID, sa.Identity(), nullable=False),
        _time("at_ns"),
        *(_text(name) for name in ("workspace", "who", "action", "what", "address")),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("audit_by_time", "audit", ["at_ns"])


def downgrade() -> None:
    for name in ("audit", "api_token", "user"):
        op.drop_table(name)

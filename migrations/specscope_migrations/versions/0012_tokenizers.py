"""Tokenizers: what token ids stand for, to show them as text."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

STRING = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)


def upgrade() -> None:
    op.create_table(
        "tokenizer",
        sa.Column("workspace", STRING, nullable=False),
        sa.Column("tokenizer_hash", STRING, nullable=False),
        _count("created_ns"),
        sa.Column("name", STRING, server_default="", nullable=False),
        _count("tokens"),
        _count("bytes"),
        sa.Column("vocabulary", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["workspace"], ["workspace.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("workspace", "tokenizer_hash"),
    )


def downgrade() -> None:
    op.drop_table("tokenizer")

"""References: hidden states of sound runs, to compare engines with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

STRING = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, STRING, server_default="", nullable=False)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)


def upgrade() -> None:
    op.create_table(
        "reference",
        sa.Column("workspace", STRING, nullable=False),
        sa.Column("reference_uid", STRING, nullable=False),
        _count("created_ns"),
        _text("name"),
        _count("sequences"),
        _count("tokens"),
        _count("bytes"),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["workspace"], ["workspace.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("workspace", "reference_uid"),
    )
    op.create_table(
        "reference_sequence",
        sa.Column("workspace", STRING, nullable=False),
        sa.Column("reference_uid", STRING, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        _text("name"),
        _count("tokens"),
        _count("prompt_tokens"),
        sa.Column("ids", sa.LargeBinary(), nullable=False),
        sa.Column("numbers", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace", "reference_uid"],
            ["reference.workspace", "reference.reference_uid"],
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("workspace", "reference_uid", "number"),
    )


def downgrade() -> None:
    op.drop_table("reference_sequence")
    op.drop_table("reference")

"""Hidden states: rows of a chunk, sums over time; prompts as ids."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STRING = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
DOUBLE: sa.Double[float] = sa.Double()
COUNTS = ("looks", "rows", "nonfinite", "zero_rows", "equal_rows", "levelled")
REALS = ("sum", "sum_square", "max_abs", "sum_level", "sum_level2")


def _key(name: str) -> sa.Column[str]:
    return sa.Column(name, STRING, nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)


def upgrade() -> None:
    op.add_column("step_chunk", sa.Column("hidden", sa.LargeBinary(), nullable=True))
    op.create_table(
        "request_text",
        _key("engine_uid"),
        _key("uid"),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("prompt_sha256", STRING, server_default="", nullable=False),
        sa.Column("prompt_ids", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["engine_uid"], ["engine.engine_uid"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("engine_uid", "uid"),
    )
    op.create_table(
        "hidden_stat",
        _key("engine_uid"),
        _number("bucket"),
        _key("place"),
        _key("source"),
        _number("draft_step"),
        _number("slot"),
        _key("after"),
        _key("mode"),
        *(sa.Column(name, sa.BigInteger(), server_default="0", nullable=False) for name in COUNTS),
        *(sa.Column(name, DOUBLE, nullable=False) for name in REALS),
        sa.ForeignKeyConstraint(["engine_uid"], ["engine.engine_uid"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint(
            "engine_uid", "bucket", "place", "source", "draft_step", "slot", "after", "mode"
        ),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("hidden_stat")
    op.drop_table("request_text")
    op.drop_column("step_chunk", "hidden")

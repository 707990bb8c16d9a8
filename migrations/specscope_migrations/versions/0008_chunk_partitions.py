"""Chunks by day: their key ends with their start, and PostgreSQL keeps each day in a partition of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

STRING = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
COLUMNS = (
    *("engine_uid", "uid", "process_uid", "seq", "first_step"),
    *("start_ns", "end_ns", "steps", "extends", "hidden"),
)


def _key(name: str) -> sa.Column[str]:
    return sa.Column(name, STRING, nullable=False)


def _create(*more: sa.schema.SchemaItem, of_key: bool, partition_by: str | None = None) -> None:
    default = None if of_key else "0"
    op.create_table(
        "step_chunk",
        _key("engine_uid"),
        _key("uid"),
        _key("process_uid"),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first_step", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("start_ns", sa.BigInteger(), server_default=default, autoincrement=False, nullable=False),
        sa.Column("end_ns", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("steps", sa.LargeBinary(), nullable=False),
        sa.Column("extends", sa.LargeBinary(), nullable=False),
        sa.Column("hidden", sa.LargeBinary(), nullable=True),
        *more,
        sa.PrimaryKeyConstraint("engine_uid", "uid", "process_uid", "seq", *(["start_ns"] if of_key else [])),
        postgresql_partition_by=partition_by,
    )
    op.create_index("step_chunk_by_end", "step_chunk", ["engine_uid", "end_ns"])


def _copy_from(old: str, condition: str = "") -> None:
    names = ", ".join(COLUMNS)
    op.execute(f"INSERT INTO step_chunk ({names}) SELECT {names} FROM {old} {condition}")
    op.drop_table(old)


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.drop_index("step_chunk_by_end", "step_chunk")
        op.rename_table("step_chunk", "step_chunk_before")
        _create(of_key=True)
        _copy_from("step_chunk_before")
        return
    # What is there becomes the default partition as it is: only its key is built anew, no row is copied.
    op.rename_table("step_chunk", "step_chunk_default")
    for statement in (
        "ALTER INDEX step_chunk_by_end RENAME TO step_chunk_default_by_end",
        "ALTER TABLE step_chunk_default "
        "DROP CONSTRAINT step_chunk_engine_uid_process_uid_fkey, DROP CONSTRAINT step_chunk_pkey, "
        "ALTER COLUMN start_ns DROP DEFAULT, ADD PRIMARY KEY (engine_uid, uid, process_uid, seq, start_ns)",
    ):
        op.execute(statement)
    _create(of_key=True, partition_by="RANGE (start_ns)")
    op.execute("ALTER TABLE step_chunk ATTACH PARTITION step_chunk_default DEFAULT")


def downgrade() -> None:
    old = "step_chunk_after"
    if op.get_bind().dialect.name == "sqlite":
        op.drop_index("step_chunk_by_end", "step_chunk")
    else:
        op.execute("ALTER INDEX step_chunk_by_end RENAME TO step_chunk_after_by_end")
        op.execute("ALTER TABLE step_chunk RENAME CONSTRAINT step_chunk_pkey TO step_chunk_after_pkey")
    op.rename_table("step_chunk", old)
    _create(
        sa.ForeignKeyConstraint(
            ["engine_uid", "process_uid"], ["process.engine_uid", "process.process_uid"], ondelete="CASCADE"
        ),
        of_key=False,
    )
    # Of two that differ in their start alone there can be one again; of a process that is gone none.
    _copy_from(
        old,
        f"AS chunk WHERE start_ns = (SELECT MIN(start_ns) FROM {old} WHERE engine_uid = chunk.engine_uid "
        "AND uid = chunk.uid AND process_uid = chunk.process_uid AND seq = chunk.seq) "
        "AND EXISTS (SELECT 1 FROM process WHERE process.engine_uid = chunk.engine_uid "
        "AND process.process_uid = chunk.process_uid)",
    )

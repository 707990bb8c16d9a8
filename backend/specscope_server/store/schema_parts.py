"""What tables are made of: the metadata and the kinds of column that they share."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Text,
    text,
)
from sqlalchemy.types import TypeEngine

metadata = MetaData()

# Byte order, as in SQLite: prefix searches use the index, and both databases sort and take maxima alike.
String: TypeEngine[str] = Text().with_variant(Text(collation="C"), "postgresql")
# SQLite gives out row ids only for a column declared INTEGER, which holds 64 bits there.
RowId: TypeEngine[int] = BigInteger().with_variant(Integer(), "sqlite")


def text_column(name: str) -> Column[str]:
    """Return a text, empty where nothing is known."""
    return Column(name, String, nullable=False, server_default="")


def int_column(name: str, default: int | None = 0) -> Column[int]:
    """Return a whole number; ``default`` ``None`` makes it one that may be unknown."""
    if default is None:
        return Column(name, BigInteger, nullable=True)
    return Column(name, BigInteger, nullable=False, server_default=str(default))


def key_column(name: str, *more: ForeignKey) -> Column[str]:
    """Return a text that is part of the key."""
    return Column(name, String, *more, primary_key=True)


def engine_key() -> Column[str]:
    """Return the engine's uid as part of the key; the row goes with its engine."""
    return key_column("engine_uid", ForeignKey("engine.engine_uid", ondelete="CASCADE"))


def process_reference() -> ForeignKeyConstraint:
    """Return what makes rows keyed by (engine uid, process uid, ...) go with their process."""
    return ForeignKeyConstraint(
        ["engine_uid", "process_uid"], ["process.engine_uid", "process.process_uid"], ondelete="CASCADE"
    )


def partial_index(name: str, *columns: str, where: str) -> Index:
    """Return an index over the rows alone that meet a condition."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))

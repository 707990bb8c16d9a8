"""Tables of references: what a sound run of a target holds at each token of some sequences."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, ForeignKeyConstraint, LargeBinary, Table

from specscope_server.store.schema_parts import int_column, key_column, metadata, text_column
from specscope_server.store.values import JsonText

reference = Table(
    "reference",
    metadata,
    key_column("workspace", ForeignKey("workspace.name", ondelete="CASCADE")),
    # From the file's content, so that a file sent twice is there once.
    key_column("reference_uid"),
    int_column("created_ns"),
    text_column("name"),
    int_column("sequences"),
    int_column("tokens"),
    int_column("bytes"),
    Column("facts", JsonText, nullable=False),
)

# Ids apart from the numbers: all of the former are read to find a sequence, and then the numbers of one.
reference_sequence = Table(
    "reference_sequence",
    metadata,
    key_column("workspace"),
    key_column("reference_uid"),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    text_column("name"),
    int_column("tokens"),
    int_column("prompt_tokens"),
    Column("ids", LargeBinary, nullable=False),
    Column("numbers", LargeBinary, nullable=False),
    ForeignKeyConstraint(
        ["workspace", "reference_uid"],
        ["reference.workspace", "reference.reference_uid"],
        ondelete="CASCADE",
    ),
)

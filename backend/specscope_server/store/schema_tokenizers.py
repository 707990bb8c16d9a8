"""Table of tokenizers: what token ids stand for, by the hash that engines tell of theirs."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, LargeBinary, Table

from specscope_server.store.schema_parts import int_column, key_column, metadata, text_column

tokenizer = Table(
    "tokenizer",
    metadata,
    key_column("workspace", ForeignKey("workspace.name", ondelete="CASCADE")),
    # From what its ids mean, so that a tokenizer sent twice is there once.
    key_column("tokenizer_hash"),
    int_column("created_ns"),
    text_column("name"),
    int_column("tokens"),
    int_column("bytes"),
    # As specscope_server.tokens.vocabulary packs it.
    Column("vocabulary", LargeBinary, nullable=False),
)

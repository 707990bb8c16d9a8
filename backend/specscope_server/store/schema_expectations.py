"""Table of expectations: what is promised of a draft on an engine, a model or all, by workload."""

from __future__ import annotations

from sqlalchemy import Column, Double, ForeignKey, Table

from specscope_server.store.schema_parts import int_column, key_column, metadata, text_column
from specscope_server.store.values import JsonText

expectation = Table(
    "expectation",
    metadata,
    key_column("workspace", ForeignKey("workspace.name", ondelete="CASCADE")),
    # Engine and model are empty where it holds of any, the workload where it holds of all traffic together.
    key_column("engine"),
    key_column("model"),
    key_column("workload"),
    key_column("source"),
    int_column("steps"),
    Column("floor", Double, nullable=True),
    text_column("who"),
    int_column("said_ns"),
    # The acceptance by position, what it was learned from, and a note.
    Column("body", JsonText, nullable=False),
)

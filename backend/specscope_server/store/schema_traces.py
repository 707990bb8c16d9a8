"""Tables of what is joined across processes: steps of ranks, and other tools' spans of our traces."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, LargeBinary, Table

from specscope_server.store.schema_parts import (
    int_column,
    key_column,
    metadata,
    partial_index,
    process_reference,
    text_column,
)
from specscope_server.store.values import JsonText

# A rank's verify steps: checksums and fingerprints, packed, the newest of each process (see ranks.py).
rank_steps = Table(
    "rank_steps",
    metadata,
    key_column("engine_uid"),
    key_column("process_uid"),
    Column("first_step", BigInteger, primary_key=True, autoincrement=False),
    int_column("last_step"),
    int_column("size"),
    int_column("event_ns"),
    Column("sums", LargeBinary, nullable=False),
    process_reference(),
)

# Spans that are not ours: the engine's own, or a caller's. Bounded per trace and workspace (see spans.py).
span = Table(
    "span",
    metadata,
    key_column("workspace", ForeignKey("workspace.name", ondelete="CASCADE")),
    key_column("trace_id"),
    key_column("span_id"),
    text_column("parent_id"),
    text_column("name"),
    text_column("service"),
    text_column("scope"),
    int_column("start_ns"),
    int_column("end_ns"),
    int_column("received_ns"),
    int_column("failed"),
    Column("attributes", JsonText, nullable=False),
    # Which request and answer it says it is of, to join it where the trace ids differ.
    text_column("request_id"),
    text_column("response_id"),
    partial_index("span_by_request", "workspace", "request_id", where="request_id <> ''"),
    partial_index("span_by_response", "workspace", "response_id", where="response_id <> ''"),
    Index("span_by_age", "workspace", "received_ns", "trace_id", "span_id"),
)

# Log records with a trace id. Bounded like spans; ``record_id`` is a hash of the record, so that one told
# twice is kept once.
log_record = Table(
    "log_record",
    metadata,
    key_column("workspace", ForeignKey("workspace.name", ondelete="CASCADE")),
    key_column("trace_id"),
    key_column("record_id"),
    text_column("span_id"),
    int_column("time_ns"),
    int_column("received_ns"),
    int_column("severity"),
    text_column("service"),
    text_column("scope"),
    text_column("body"),
    Column("attributes", JsonText, nullable=False),
    Index("log_record_by_age", "workspace", "received_ns", "trace_id", "record_id"),
)

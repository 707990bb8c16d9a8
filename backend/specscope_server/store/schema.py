"""The tables. One shape for SQLite and PostgreSQL; ``migrations/`` builds it and a test compares the two.

Times are whole nanoseconds since 1970 (``*_ns``), told by the engine's clock unless named *received*.
An engine's uid is derived from workspace, environment and instance, so a row keyed by it belongs to one
workspace; every query reaches the workspace through it.
Absent is ``NULL`` (numbers) or empty (text): merges never overwrite what is known with it.
"""

from __future__ import annotations

from specscope.rollup import COUNT_FIELDS
from sqlalchemy import DDL, BigInteger, Column, Double, ForeignKey, Index, Integer, LargeBinary, Table
from sqlalchemy.event import listen

from specscope_server.store.schema_access import api_token, audit, user
from specscope_server.store.schema_conclusions import (
    alert_event,
    alert_rule,
    alert_state,
    delivery,
    finding,
    silence,
)
from specscope_server.store.schema_expectations import expectation
from specscope_server.store.schema_hidden import hidden_stat, request_text
from specscope_server.store.schema_parts import (
    String,
    engine_key,
    int_column,
    key_column,
    metadata,
    partial_index,
    process_reference,
    text_column,
)
from specscope_server.store.schema_references import reference, reference_sequence
from specscope_server.store.schema_tokenizers import tokenizer
from specscope_server.store.schema_traces import log_record, rank_steps, span
from specscope_server.store.values import JsonText

__all__ = [
    "alert_event",
    "alert_rule",
    "alert_state",
    "api_token",
    "audit",
    "boundary_count",
    "boundary_total",
    "delivery",
    "engine",
    "engine_event",
    "expectation",
    "finding",
    "hidden_stat",
    "log_record",
    "metadata",
    "model",
    "process",
    "process_counter",
    "process_gauge",
    "rank_steps",
    "reference",
    "reference_sequence",
    "request",
    "request_text",
    "rollup_10s",
    "rollup_60s",
    "rollup_applied",
    "silence",
    "span",
    "step_chunk",
    "tokenizer",
    "user",
    "workspace",
]

DEFAULT_PARTITION = "step_chunk_default"
"""Of PostgreSQL: holds chunks of days without a partition, also those of absurd times."""

DIFFERING = "engine_verify_steps <> verify_steps OR engine_accepted <> accepted"
"""Condition on requests whose engine counts other totals than we do; NULL, not true, where it told none."""

workspace = Table("workspace", metadata, key_column("name"), int_column("created_ns"))

model = Table(
    "model",
    metadata,
    key_column("workspace", ForeignKey("workspace.name", ondelete="CASCADE")),
    key_column("name"),
)

engine = Table(
    "engine",
    metadata,
    key_column("engine_uid"),
    Column("workspace", String, ForeignKey("workspace.name", ondelete="CASCADE"), nullable=False),
    text_column("environment"),
    text_column("instance"),
    int_column("started_ns"),
    int_column("last_received_ns"),
    int_column("last_request_ns", None),
    Index("engine_by_workspace", "workspace", "last_received_ns"),
)

process = Table(
    "process",
    metadata,
    engine_key(),
    key_column("process_uid"),
    text_column("role"),
    int_column("pid"),
    int_column("start_ns"),
    int_column("tp"),
    int_column("dp"),
    int_column("pp"),
    text_column("serving_role"),
    text_column("service_name"),
    text_column("engine_name"),
    text_column("engine_version"),
    text_column("tracer_version"),
    text_column("detail"),
    int_column("last_event_ns", None),
    int_column("last_received_ns"),
    # Received minus event time of the promptest report: what the process' clock is behind, plus transit.
    int_column("clock_offset_ns", None),
)

# Counters that only grow (requests by kind, dropped by reason, ...): the largest told is the newest.
process_counter = Table(
    "process_counter",
    metadata,
    key_column("engine_uid"),
    key_column("process_uid"),
    key_column("name"),
    key_column("label"),
    int_column("value"),
    process_reference(),
    sqlite_with_rowid=False,
)

# States that come and go (queue length, speculation on, boundary armed and why not): the newest counts.
process_gauge = Table(
    "process_gauge",
    metadata,
    key_column("engine_uid"),
    key_column("process_uid"),
    key_column("name"),
    key_column("label"),
    int_column("event_ns"),
    int_column("value"),
    text_column("reason"),
    process_reference(),
    sqlite_with_rowid=False,
)

engine_event = Table(
    "engine_event",
    metadata,
    key_column("engine_uid"),
    Column("event_ns", BigInteger, primary_key=True, autoincrement=False),
    key_column("process_uid"),
    key_column("event"),
    text_column("model"),
    Column("speculation", Integer, nullable=False),
    Column("config", JsonText, nullable=False),
    int_column("weight_version", None),
    Column("detail", JsonText, nullable=False, server_default="{}"),
    process_reference(),
)

request = Table(
    "request",
    metadata,
    engine_key(),
    key_column("uid"),
    Column("workspace", String, nullable=False),
    text_column("process_uid"),
    text_column("rid"),
    text_column("trace_id"),
    text_column("state"),
    text_column("kind"),
    text_column("model"),
    int_column("arrival_ns"),
    int_column("end_ns", None),
    int_column("last_received_ns"),
    int_column("prompt_tokens", None),
    int_column("output_tokens", None),
    int_column("cached_tokens", None),
    int_column("max_tokens", None),
    text_column("finish_reason"),
    Column("temperature", Double, nullable=True),
    Column("queue_s", Double, nullable=True),
    Column("first_token_s", Double, nullable=True),
    int_column("verify_steps"),
    int_column("drafted_depth"),
    int_column("drafted_nodes"),
    int_column("accepted"),
    int_column("bonus"),
    int_column("committed"),
    int_column("zero_accept_steps"),
    int_column("overshoot_steps"),
    int_column("prefill_passes"),
    # The request's own ledger, packed; of the report that had seen the most (``boundaries_rank``).
    Column("boundaries", LargeBinary, nullable=True),
    int_column("boundaries_rank"),
    # Its boundaries that were crossed too seldom, as ``,draft.fc,draft.map,``.
    text_column("short"),
    # Whose child its span is, where it came with a trace context.
    text_column("parent_span_id"),
    # The engine's own counters of a request that ended, where they can be held against ours.
    int_column("engine_verify_steps", None),
    int_column("engine_accepted", None),
    # What the answer to the caller was called, where that is not the rid.
    text_column("response_id"),
    Index("request_by_arrival", "workspace", "arrival_ns", "uid"),
    Index("request_by_engine", "engine_uid", "arrival_ns", "uid", "kind"),
    Index("request_by_uid", "workspace", "uid"),
    Index("request_by_rid", "workspace", "rid"),
    Index("request_by_trace", "workspace", "trace_id"),
    partial_index("request_by_response", "workspace", "response_id", where="response_id <> ''"),
    partial_index("request_running", "workspace", "arrival_ns", "uid", where="state = 'running'"),
    partial_index("request_short", "workspace", "arrival_ns", "uid", where="short <> ''"),
    partial_index("request_differing", "engine_uid", "arrival_ns", "uid", where=DIFFERING),
)

# PostgreSQL keeps each UTC day in a partition of its own (partitions.py), so the start is part of the key.
# No foreign key: checking one for each chunk costs more than the rest of its row; retention looks after them.
step_chunk = Table(
    "step_chunk",
    metadata,
    key_column("engine_uid"),
    key_column("uid"),
    key_column("process_uid"),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    int_column("first_step"),
    Column("start_ns", BigInteger, primary_key=True, autoincrement=False),
    int_column("end_ns"),
    Column("steps", LargeBinary, nullable=False),
    Column("extends", LargeBinary, nullable=False),
    Column("hidden", LargeBinary, nullable=True),
    Index("step_chunk_by_end", "engine_uid", "end_ns"),
    postgresql_partition_by="RANGE (start_ns)",
)
listen(
    step_chunk,
    "after_create",
    DDL(f"CREATE TABLE {DEFAULT_PARTITION} PARTITION OF step_chunk DEFAULT").execute_if(dialect="postgresql"),
)


def _rollup(name: str) -> Table:
    """Return a table of sums over verify steps; ``bucket`` is its start in unix seconds."""
    return Table(
        name,
        metadata,
        engine_key(),
        key_column("dimension"),
        Column("bucket", BigInteger, primary_key=True, autoincrement=False),
        key_column("slice"),
        Column("position", BigInteger, primary_key=True, autoincrement=False),
        *(int_column(name) for name in COUNT_FIELDS),
        sqlite_with_rowid=False,
    )


# The same sums twice: long windows read a sixth of the rows.
rollup_10s = _rollup("rollup_10s")
rollup_60s = _rollup("rollup_60s")

# Which increments are in the rollups already, with the 10 s bucket they went to.
rollup_applied = Table(
    "rollup_applied",
    metadata,
    key_column("engine_uid"),
    key_column("process_uid"),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    int_column("bucket"),
    process_reference(),
    Index("rollup_applied_by_bucket", "bucket"),
    sqlite_with_rowid=False,
)

# The ledger as of now, and as of the end of each 10 s bucket; all values cumulative since process start.
boundary_total = Table(
    "boundary_total",
    metadata,
    key_column("engine_uid"),
    key_column("process_uid"),
    key_column("boundary"),
    key_column("source"),
    key_column("mode"),
    int_column("expected", None),
    int_column("observed", None),
    process_reference(),
    sqlite_with_rowid=False,
)

boundary_count = Table(
    "boundary_count",
    metadata,
    key_column("engine_uid"),
    key_column("process_uid"),
    key_column("boundary"),
    key_column("source"),
    key_column("mode"),
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),
    int_column("expected", None),
    int_column("observed", None),
    process_reference(),
    sqlite_with_rowid=False,
)

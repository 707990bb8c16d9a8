"""The tables. One shape for SQLite and PostgreSQL; ``migrations/`` builds it and a test compares the two.

Times are whole nanoseconds since 1970 (``*_ns``), told by the engine's clock unless named *received*.
An engine's uid is derived from workspace, environment and instance, so a row keyed by it belongs to one
workspace; every query reaches the workspace through it.
Absent is ``NULL`` (numbers) or empty (text): merges never overwrite what is known with it.
"""

from __future__ import annotations

from specscope.rollup import COUNT_FIELDS
from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.types import TypeEngine

from specscope_server.store.values import JsonText

metadata = MetaData()

# Byte order, as in SQLite: prefix searches use the index, and both databases sort and take maxima alike.
String: TypeEngine[str] = Text().with_variant(Text(collation="C"), "postgresql")
# SQLite gives out row ids only for a column declared INTEGER, which holds 64 bits there.
RowId: TypeEngine[int] = BigInteger().with_variant(Integer(), "sqlite")


def _text(name: str, **options: object) -> Column[str]:
    return Column(name, String, nullable=False, server_default="", **options)  # type: ignore[arg-type]


def _int(name: str, default: int | None = 0) -> Column[int]:
    """Return a whole number; ``default`` ``None`` makes it one that may be unknown."""
    if default is None:
        return Column(name, BigInteger, nullable=True)
    return Column(name, BigInteger, nullable=False, server_default=str(default))


def _key(name: str, *more: ForeignKey) -> Column[str]:
    return Column(name, String, *more, primary_key=True)


def _of_engine() -> Column[str]:
    return _key("engine_uid", ForeignKey("engine.engine_uid", ondelete="CASCADE"))


def _of_process() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["engine_uid", "process_uid"], ["process.engine_uid", "process.process_uid"], ondelete="CASCADE"
    )


workspace = Table("workspace", metadata, _key("name"), _int("created_ns"))

model = Table(
    "model", metadata, _key("workspace", ForeignKey("workspace.name", ondelete="CASCADE")), _key("name")
)

engine = Table(
    "engine",
    metadata,
    _key("engine_uid"),
    Column("workspace", String, ForeignKey("workspace.name", ondelete="CASCADE"), nullable=False),
    _text("environment"),
    _text("instance"),
    _int("started_ns"),
    _int("last_received_ns"),
    _int("last_request_ns", None),
    Index("engine_by_workspace", "workspace", "last_received_ns"),
)

process = Table(
    "process",
    metadata,
    _of_engine(),
    _key("process_uid"),
    _text("role"),
    _int("pid"),
    _int("start_ns"),
    _int("tp"),
    _int("dp"),
    _int("pp"),
    _text("serving_role"),
    _text("service_name"),
    _text("engine_name"),
    _text("engine_version"),
    _text("tracer_version"),
    _text("detail"),
    _int("last_event_ns", None),
    _int("last_received_ns"),
    # Received minus event time of the promptest report: what the process' clock is behind, plus transit.
    _int("clock_offset_ns", None),
)

# Counters that only grow (requests by kind, dropped by reason, ...): the largest told is the newest.
process_counter = Table(
    "process_counter",
    metadata,
    _key("engine_uid"),
    _key("process_uid"),
    _key("name"),
    _key("label"),
    _int("value"),
    _of_process(),
    sqlite_with_rowid=False,
)

# States that come and go (queue length, speculation on, boundary armed and why not): the newest counts.
process_gauge = Table(
    "process_gauge",
    metadata,
    _key("engine_uid"),
    _key("process_uid"),
    _key("name"),
    _key("label"),
    _int("event_ns"),
    _int("value"),
    _text("reason"),
    _of_process(),
    sqlite_with_rowid=False,
)

engine_event = Table(
    "engine_event",
    metadata,
    _key("engine_uid"),
    Column("event_ns", BigInteger, primary_key=True, autoincrement=False),
    _key("process_uid"),
    _key("event"),
    _text("model"),
    Column("speculation", Integer, nullable=False),
    Column("config", JsonText, nullable=False),
    _of_process(),
)

request = Table(
    "request",
    metadata,
    _of_engine(),
    _key("uid"),
    Column("workspace", String, nullable=False),
    _text("process_uid"),
    _text("rid"),
    _text("trace_id"),
    _text("state"),
    _text("kind"),
    _text("model"),
    _int("arrival_ns"),
    _int("end_ns", None),
    _int("last_received_ns"),
    _int("prompt_tokens", None),
    _int("output_tokens", None),
    _int("cached_tokens", None),
    _int("max_tokens", None),
    _text("finish_reason"),
    Column("temperature", Double, nullable=True),
    Column("queue_s", Double, nullable=True),
    Column("first_token_s", Double, nullable=True),
    _int("verify_steps"),
    _int("drafted_depth"),
    _int("drafted_nodes"),
    _int("accepted"),
    _int("bonus"),
    _int("committed"),
    _int("zero_accept_steps"),
    _int("overshoot_steps"),
    _int("prefill_passes"),
    # The request's own ledger, packed; of the report that had seen the most (``boundaries_rank``).
    Column("boundaries", LargeBinary, nullable=True),
    _int("boundaries_rank"),
    # Its boundaries that were crossed too seldom, as ``,draft.fc,draft.map,``.
    _text("short"),
    Index("request_by_arrival", "workspace", "arrival_ns", "uid"),
    Index("request_by_engine", "engine_uid", "arrival_ns", "uid", "kind"),
    Index("request_by_uid", "workspace", "uid"),
    Index("request_by_rid", "workspace", "rid"),
    Index("request_by_trace", "workspace", "trace_id"),
    Index(
        "request_running",
        "workspace",
        "arrival_ns",
        "uid",
        sqlite_where=text("state = 'running'"),
        postgresql_where=text("state = 'running'"),
    ),
    Index(
        "request_short",
        "workspace",
        "arrival_ns",
        "uid",
        sqlite_where=text("short <> ''"),
        postgresql_where=text("short <> ''"),
    ),
)

step_chunk = Table(
    "step_chunk",
    metadata,
    _key("engine_uid"),
    _key("uid"),
    _key("process_uid"),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    _int("first_step"),
    _int("start_ns"),
    _int("end_ns"),
    Column("steps", LargeBinary, nullable=False),
    Column("extends", LargeBinary, nullable=False),
    _of_process(),
    Index("step_chunk_by_end", "engine_uid", "end_ns"),
)

rollup_10s = Table(
    "rollup_10s",
    metadata,
    _of_engine(),
    _key("dimension"),
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),
    _key("slice"),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    *(_int(name) for name in COUNT_FIELDS),
    sqlite_with_rowid=False,
)

# Which increments are in ``rollup_10s`` already.
rollup_applied = Table(
    "rollup_applied",
    metadata,
    _key("engine_uid"),
    _key("process_uid"),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    _of_process(),
    sqlite_with_rowid=False,
)

# The ledger as of now, and as of the end of each 10 s bucket; all values cumulative since process start.
boundary_total = Table(
    "boundary_total",
    metadata,
    _key("engine_uid"),
    _key("process_uid"),
    _key("boundary"),
    _key("source"),
    _key("mode"),
    _int("expected", None),
    _int("observed", None),
    _of_process(),
    sqlite_with_rowid=False,
)

boundary_count = Table(
    "boundary_count",
    metadata,
    _key("engine_uid"),
    _key("process_uid"),
    _key("boundary"),
    _key("source"),
    _key("mode"),
    Column("bucket", BigInteger, primary_key=True, autoincrement=False),
    _int("expected", None),
    _int("observed", None),
    _of_process(),
    sqlite_with_rowid=False,
)

finding = Table(
    "finding",
    metadata,
    Column("id", RowId, Identity(), primary_key=True),
    Column("engine_uid", String, ForeignKey("engine.engine_uid", ondelete="CASCADE"), nullable=False),
    _text("kind"),
    _text("boundary"),
    _text("fault_class"),
    _text("severity"),
    _text("confidence"),
    _text("title"),
    _text("sentence"),
    _int("opened_ns"),
    _int("last_seen_ns"),
    _int("closed_ns", None),
    Column("body", JsonText, nullable=False),
    Index(
        "finding_open",
        "engine_uid",
        "kind",
        "boundary",
        unique=True,
        sqlite_where=text("closed_ns IS NULL"),
        postgresql_where=text("closed_ns IS NULL"),
    ),
    Index("finding_by_engine", "engine_uid", "opened_ns"),
)


def _alert_columns() -> tuple[Column[str] | Column[int], ...]:
    return (
        _text("title"),
        _text("state"),
        _text("reason"),
        _int("since_ns"),
        _int("evaluated_ns"),
    )


alert_state = Table("alert_state", metadata, _of_engine(), _key("rule"), *_alert_columns())

alert_event = Table(
    "alert_event",
    metadata,
    Column("id", RowId, Identity(), primary_key=True),
    Column("engine_uid", String, ForeignKey("engine.engine_uid", ondelete="CASCADE"), nullable=False),
    _text("rule"),
    *_alert_columns(),
    Index("alert_event_by_engine", "engine_uid", "id"),
)

delivery = Table(
    "delivery",
    metadata,
    Column("id", RowId, Identity(), primary_key=True),
    Column("engine_uid", String, ForeignKey("engine.engine_uid", ondelete="CASCADE"), nullable=False),
    _text("rule"),
    _text("state"),
    _text("target"),
    _text("status"),
    _int("attempts"),
    _int("next_attempt_ns", None),
    _text("error"),
    _int("created_ns"),
    Column("payload", JsonText, nullable=False),
    Index("delivery_by_engine", "engine_uid", "id"),
    Index(
        "delivery_pending",
        "next_attempt_ns",
        sqlite_where=text("status = 'pending'"),
        postgresql_where=text("status = 'pending'"),
    ),
)

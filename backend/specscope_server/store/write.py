"""Writing an export: one transaction of upserts whose order, number and grouping do not matter.

Every merge takes a maximum, a minimum, a union or (rollups, guarded by their sequence number) adds once.
These commute and may be repeated, so late, doubled and shuffled batches end in the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from specscope import convention
from specscope.rollup import COUNT_FIELDS
from sqlalchemy import Connection, Table

from specscope_server.store import hidden_rows, logs, ranks, schema, spans
from specscope_server.store.merges import LARGER, SMALLER, STATE, SUM, Merge, Together
from specscope_server.store.rows import PROCESS_TEXTS, TOTALS, Rows
from specscope_server.store.upsert import Once, Upsert

_ENGINE: dict[str, Merge] = {
    "started_ns": SMALLER,
    "last_received_ns": LARGER,
    "last_request_ns": LARGER,
}
_PROCESS: dict[str, Merge] = {
    # One process tells these the same each time; the larger text keeps what is known over the empty one.
    **dict.fromkeys((*PROCESS_TEXTS, "last_event_ns", "last_received_ns"), LARGER),
    "clock_offset_ns": SMALLER,
}
_TEXTS = (
    *("process_uid", "rid", "trace_id", "parent_span_id", "response_id"),
    *("kind", "model", "finish_reason"),
)
_NUMBERS = (
    *("end_ns", "last_received_ns", "prompt_tokens", "output_tokens", "cached_tokens", "max_tokens"),
    *("engine_verify_steps", "engine_accepted"),
)
_FLOATS = ("temperature", "queue_s", "first_token_s")
_REQUEST: dict[str, Merge] = {
    **dict.fromkeys((*_TEXTS, *_NUMBERS, *_FLOATS, *TOTALS), LARGER),
    "state": STATE,
    "arrival_ns": SMALLER,
}
_LEDGER = Together(by=("boundaries_rank", "boundaries"), carried=("short",))
"""A request's boundary counts are those of the report that saw the most passes."""
_PROMPT = Together(by=("prompt_sha256", "prompt_ids"), carried=("prompt_tokens",))
"""A request has one prompt; of two that are told, which should not be, one stays whatever the order."""
_GAUGE = Together(by=("event_ns", "value", "reason"))
"""The newest; of two told for one moment the larger."""
_BOUNDARY: dict[str, Merge] = {"expected": LARGER, "observed": LARGER}
_SUMS: dict[str, Merge] = dict.fromkeys(COUNT_FIELDS, SUM)


def _columns(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.c)


_STATE_AT: Final = _columns(schema.request).index("state")
_REQUESTS: Final = Upsert(
    schema.request,
    _REQUEST,
    together=_LEDGER,
    columns=_columns(schema.request),
    # Those of its indexes and of their conditions, but for totals, which the one on requests that differ from
    # their engine's counts has in its condition: it is empty where engine and tracer agree.
    indexed=("arrival_ns", "kind", "rid", "trace_id", "response_id", "state", "short"),
    changes=lambda row: row[_STATE_AT] != convention.STATE_RUNNING,
)
_TABLES: tuple[
    tuple[Upsert, Callable[[Rows], Sequence[Mapping[str, Any]] | Sequence[tuple[Any, ...]]]], ...
] = (
    (Upsert(schema.workspace), lambda rows: rows.workspaces),
    (Upsert(schema.model), lambda rows: rows.models),
    (Upsert(schema.engine, _ENGINE), lambda rows: rows.engines),
    (Upsert(schema.process, _PROCESS), lambda rows: rows.processes),
    (Upsert(schema.engine_event), lambda rows: rows.events),
    (Upsert(schema.process_counter, {"value": LARGER}), lambda rows: rows.counters),
    (Upsert(schema.process_gauge, together=_GAUGE), lambda rows: rows.gauges),
    (Upsert(schema.boundary_total, _BOUNDARY), lambda rows: rows.boundary_totals),
    (Upsert(schema.boundary_count, _BOUNDARY), lambda rows: rows.boundary_counts),
    (_REQUESTS, lambda rows: rows.requests),
    (Upsert(schema.step_chunk, columns=_columns(schema.step_chunk)), lambda rows: rows.chunks),
    (Upsert(schema.request_text, together=_PROMPT), lambda rows: rows.prompts),
    (Upsert(schema.rank_steps), lambda rows: rows.ranks),
    (Upsert(schema.span), lambda rows: rows.spans),
    (Upsert(schema.log_record), lambda rows: rows.logs),
)
_ROLLUP: Final = _columns(schema.rollup_10s)
_BUCKET: Final = _ROLLUP.index("bucket")
_BUCKET_OF: Final = itemgetter(_BUCKET)
_APPLIED: Final = Once(schema.rollup_applied)
_ADD = Upsert(schema.rollup_10s, _SUMS, columns=_ROLLUP)
_ADD_MINUTE = Upsert(schema.rollup_60s, _SUMS, columns=_ROLLUP)
_ADD_HIDDEN = Upsert(schema.hidden_stat, hidden_rows.MERGE)


@dataclass(frozen=True, slots=True)
class Writing:
    """The job of writing rows. Joined with others, each key is written once for all of them."""

    rows: Rows

    def __call__(self, connection: Connection) -> None:
        """Write them."""
        write(connection, self.rows)

    def join(self, others: Sequence[Writing]) -> Writing:
        """Return the job of writing these and others."""
        return Writing(self.rows.with_others(other.rows for other in others))


def write(connection: Connection, rows: Rows) -> None:
    """Write rows, tables and keys always in the same order, so that servers cannot block each other."""
    for upsert, of in _TABLES:
        upsert.run(connection, of(rows))
    ranks.forget(connection, rows.ranks)
    spans.forget(connection, rows.spans)
    logs.forget(connection, rows.logs)
    if rows.rollups:
        _add_rollups(connection, rows)


def _add_rollups(connection: Connection, rows: Rows) -> None:
    """Add each increment that is not in yet; noting it and adding it are one transaction."""
    new = [
        identity
        for identity in sorted(rows.rollups)
        if _APPLIED.note(connection, (*identity, next(map(_BUCKET_OF, rows.rollups[identity]), 0)))
    ]
    added = [row for identity in new for row in rows.rollups[identity]]
    _ADD.run(connection, added)
    _ADD_MINUTE.run(
        connection, [(*row[:_BUCKET], row[_BUCKET] // 60 * 60, *row[_BUCKET + 1 :]) for row in added]
    )
    _ADD_HIDDEN.run(connection, [row for identity in new for row in rows.hidden[identity]])

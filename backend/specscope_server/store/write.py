"""Writing an export: one transaction of upserts whose order, number and grouping do not matter.

Every merge takes a maximum, a minimum, a union or (rollups, guarded by their sequence number) adds once.
These commute and may be repeated, so late, doubled and shuffled batches end in the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specscope import convention
from specscope.rollup import COUNT_FIELDS
from sqlalchemy import ColumnElement, Connection, and_, case, or_, tuple_

from specscope_server.store import hidden_rows, logs, ranks, schema, spans
from specscope_server.store.rows import PROCESS_TEXTS, TOTALS, Row, Rows
from specscope_server.store.upsert import Insert, Merge, Upsert, insert, larger, smaller

_ENGINE: dict[str, Merge] = {
    "started_ns": smaller,
    "last_received_ns": larger,
    "last_request_ns": larger,
}
_PROCESS: dict[str, Merge] = {
    # One process tells these the same each time; the larger text keeps what is known over the empty one.
    **dict.fromkeys((*PROCESS_TEXTS, "last_event_ns", "last_received_ns"), larger),
    "clock_offset_ns": smaller,
}


def _state(stored: ColumnElement[Any], told: ColumnElement[Any]) -> ColumnElement[Any]:
    """Running until an end is told; aborted over finished, so that the order of telling does not matter."""
    return case(
        (or_(stored == convention.STATE_ABORTED, told == convention.STATE_ABORTED), convention.STATE_ABORTED),
        (
            or_(stored == convention.STATE_FINISHED, told == convention.STATE_FINISHED),
            convention.STATE_FINISHED,
        ),
        else_=larger(stored, told),
    )


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
    **dict.fromkeys((*_TEXTS, *_NUMBERS, *_FLOATS, *TOTALS), larger),
    "state": _state,
    "arrival_ns": smaller,
}
_BOUNDARY: dict[str, Merge] = {"expected": larger, "observed": larger}
_SUMS: dict[str, Merge] = dict.fromkeys(COUNT_FIELDS, lambda stored, told: stored + told)


def _told(_: ColumnElement[Any], told: ColumnElement[Any]) -> ColumnElement[Any]:
    return told


def _newer(statement: Insert) -> ColumnElement[bool]:
    """Say whether a gauge told now is newer; of two told for one moment the larger stays."""
    names = ("event_ns", "value", "reason")
    told, stored = statement.excluded, schema.process_gauge.c
    return tuple_(*(told[name] for name in names)) > tuple_(*(stored[name] for name in names))


_LEDGER = ("boundaries", "boundaries_rank", "short")


def _ledger_of_most(statement: Insert) -> dict[str, ColumnElement[Any]]:
    """Return a request's boundary counts of the report that saw the most passes."""
    told, stored = statement.excluded, schema.request.c
    better = or_(
        told.boundaries_rank > stored.boundaries_rank,
        and_(told.boundaries_rank == stored.boundaries_rank, told.boundaries > stored.boundaries),
    )
    return {name: case((better, told[name]), else_=stored[name]) for name in _LEDGER}


def _other_prompt(statement: Insert) -> ColumnElement[bool]:
    """A request has one prompt; of two that are told, which should not be, one stays whatever the order."""
    names = ("prompt_sha256", "prompt_ids")
    told, stored = statement.excluded, schema.request_text.c
    return tuple_(*(told[name] for name in names)) > tuple_(*(stored[name] for name in names))


_PROMPT: dict[str, Merge] = dict.fromkeys(("prompt_tokens", "prompt_sha256", "prompt_ids"), _told)
_GAUGE: dict[str, Merge] = dict.fromkeys(("event_ns", "value", "reason"), _told)

_TABLES: tuple[tuple[Upsert, Callable[[Rows], Sequence[Row]]], ...] = (
    (Upsert(schema.workspace), lambda rows: rows.workspaces),
    (Upsert(schema.model), lambda rows: rows.models),
    (Upsert(schema.engine, _ENGINE), lambda rows: rows.engines),
    (Upsert(schema.process, _PROCESS), lambda rows: rows.processes),
    (Upsert(schema.engine_event), lambda rows: rows.events),
    (Upsert(schema.process_counter, {"value": larger}), lambda rows: rows.counters),
    (Upsert(schema.process_gauge, _GAUGE, where=_newer), lambda rows: rows.gauges),
    (Upsert(schema.boundary_total, _BOUNDARY), lambda rows: rows.boundary_totals),
    (Upsert(schema.boundary_count, _BOUNDARY), lambda rows: rows.boundary_counts),
    (Upsert(schema.request, _REQUEST, also=_ledger_of_most), lambda rows: rows.requests),
    (Upsert(schema.step_chunk), lambda rows: rows.chunks),
    (Upsert(schema.request_text, _PROMPT, where=_other_prompt), lambda rows: rows.prompts),
    (Upsert(schema.rank_steps), lambda rows: rows.ranks),
    (Upsert(schema.span), lambda rows: rows.spans),
    (Upsert(schema.log_record), lambda rows: rows.logs),
)
_ADD = Upsert(schema.rollup_10s, _SUMS)
_ADD_MINUTE = Upsert(schema.rollup_60s, _SUMS)
_ADD_HIDDEN = Upsert(schema.hidden_stat, hidden_rows.MERGE)


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
    table = schema.rollup_applied
    names = [column.name for column in table.primary_key.columns]
    fresh = connection.execute(
        insert(connection.dialect.name, table).on_conflict_do_nothing().returning(*table.primary_key.columns),
        [
            dict(zip(names, identity, strict=True))
            | {"bucket": rows.rollups[identity][0]["bucket"] if rows.rollups[identity] else 0}
            for identity in sorted(rows.rollups)
        ],
    )
    new = [tuple(identity) for identity in fresh]
    added = [row for identity in new for row in rows.rollups[identity]]
    _ADD.run(connection, added)
    _ADD_MINUTE.run(connection, [row | {"bucket": row["bucket"] // 60 * 60} for row in added])
    _ADD_HIDDEN.run(connection, [row for identity in new for row in rows.hidden[identity]])

"""Other tools' spans joined to requests, at read time: by trace id, request id or response id.

Ids that callers choose are reused, so by them only spans are joined that overlap the request in time. What
is joined is never stored: spans may come before their request or after it, and go with their bounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import Connection, bindparam, literal, select

from specscope_server.store import schema
from specscope_server.store.model import JoinedTrace
from specscope_server.store.prepared import Prepared
from specscope_server.store.request_names import (
    BY_CHILD,
    BY_RESPONSE,
    RULES,
    request_names,
    response_names,
)
from specscope_server.store.request_rows import Summary
from specscope_server.store.spans import span_of, spans_of_trace
from specscope_server.store.told import ForeignSpan

MARGIN_NS: Final = 10 * 1_000_000_000
"""How far apart a span and a request may be: clocks of two hosts differ, and a caller starts before us."""
MOST_SPANS: Final = 50
"""Spans looked at by each kind of id. A request has one or two; an id that is reused soon may have many."""
MOST_TRACES: Final = 8
"""Other traces shown of one request."""
SAMPLES: Final = ("gen_ai.request.choice.count", "gen_ai.request.n")
"""Attributes that say how many samples a caller asked for."""
NONE: Final = literal("", literal_execute=True)
"""Nothing, in the statement itself: the partial indexes are over ids that are not it."""
_T = schema.span.c


@dataclass(frozen=True, slots=True)
class Request:
    """What of a request its spans are found by; times in ns since 1970."""

    workspace: str
    rid: str
    response_id: str
    trace_id: str
    parent_span_id: str
    engine_name: str
    start_ns: int
    end_ns: int


def request_of(row: Summary, workspace: str) -> Request:
    """Return what a row of :func:`specscope_server.store.read_detail.request_row` tells of a request."""
    end = max(row.arrival_ns, row.last_received_ns) if row.end_ns is None else row.end_ns
    return Request(
        workspace,
        row.rid,
        row.response_id,
        row.trace_id,
        row.parent_span_id,
        row.engine_name or "",
        row.arrival_ns,
        end,
    )


def joined_traces(connection: Connection, request: Request) -> tuple[JoinedTrace, ...]:
    """Return what other traces hold of a request, the surest first."""
    found: dict[str, tuple[str, set[str]]] = {}
    for rule, span in sorted(_named(connection, request), key=lambda one: RULES.index(one[0])):
        # The first rule is the surest; of a span that two rules name it is the same span.
        found.setdefault(span.trace_id, (rule, set()))[1].add(span.span_id)
    return tuple(
        JoinedTrace(trace_id, rule, _below(spans_of_trace(connection, request.workspace, trace_id), span_ids))
        for trace_id, (rule, span_ids) in list(found.items())[:MOST_TRACES]
    )


def response_id(request: Request, own: Sequence[ForeignSpan], others: Iterable[JoinedTrace]) -> str:
    """Return the id of the request's answer as told, else as its spans tell it; empty where none does.

    A span tells it that has the request's id too, or that called the request: its parent, or theirs.
    """
    if request.response_id:
        return request.response_id
    names = request_names(request.rid, request.engine_name)
    for span in (*own, *(span for trace in others for span in trace.spans)):
        if span.response_id and span.request_id in names:
            return span.response_id
    by_id = {span.span_id: span for span in own}
    at = by_id.pop(request.parent_span_id, None)
    while at is not None and not at.response_id:
        at = by_id.pop(at.parent_id, None)  # popped, so that a circle of parents ends
    return "" if at is None else at.response_id


def _named(connection: Connection, request: Request) -> list[tuple[str, ForeignSpan]]:
    """Return the spans of other traces that have an id of the request, each with its rule."""
    names = request_names(request.rid, request.engine_name)
    answers = dict.fromkeys(response_names(request.rid, request.response_id), BY_RESPONSE)
    found: list[tuple[str, ForeignSpan]] = []
    window = {
        "workspace": request.workspace,
        "trace_id": request.trace_id,
        "latest_ns": request.end_ns + MARGIN_NS,
        "earliest_ns": request.start_ns - MARGIN_NS,
    }
    for column, rules in (("request_id", names), ("response_id", answers)):
        if not rules:
            continue
        asked = {f"name_{place}": name for place, name in enumerate(rules)}
        for span in map(span_of, _called(column, len(rules)).rows(connection, asked | window)):
            rule = rules[span.request_id if column == "request_id" else span.response_id]
            if rule != BY_CHILD or _samples(span.attributes) > 1:
                found.append((rule, span))
    return found


@lru_cache
def _called(column: str, count: int) -> Prepared:
    """Return the query of spans of other traces that have one of so many names in a column."""
    named = _T[column]
    return Prepared(
        select(schema.span)
        .where(
            _T.workspace == bindparam("workspace"),
            named.in_([bindparam(f"name_{place}", type_=named.type) for place in range(count)]),
            named != NONE,  # the condition of the partial index
            _T.trace_id != bindparam("trace_id"),
            _T.start_ns <= bindparam("latest_ns"),
            _T.end_ns >= bindparam("earliest_ns"),
        )
        .order_by(_T.start_ns, _T.trace_id, _T.span_id)
        .limit(MOST_SPANS)
    )


def _samples(attributes: Mapping[str, Any]) -> int:
    told = next((attributes[name] for name in SAMPLES if name in attributes), 1)
    return told if isinstance(told, int) else 1


def _below(spans: Sequence[ForeignSpan], roots: set[str]) -> tuple[ForeignSpan, ...]:
    """Return the spans named and all below them, in their order."""
    children: dict[str, list[str]] = defaultdict(list)
    for span in spans:
        children[span.parent_id].append(span.span_id)
    kept: set[str] = set()
    following = list(roots)
    while following:
        span_id = following.pop()
        if span_id not in kept:
            kept.add(span_id)
            following += children[span_id]
    return tuple(span for span in spans if span.span_id in kept)

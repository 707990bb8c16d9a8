"""One trace as an indented list: other tools' spans and our request among them, parents before children.

Beside it what was joined from other traces, and log records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from specscope import convention, identity

from specscope_server.store import request_names as names
from specscope_server.store.model import JoinedTrace, RequestDetail, RequestRow
from specscope_server.store.told import ForeignSpan, LogRecord
from specscope_server.store.values import to_ns

MAX_DEPTH: Final = 12
"""Levels indented; deeper ones stand at the last."""

HOW: Final[Mapping[str, str]] = {
    names.BY_REQUEST: "has this request's id",
    names.BY_RESPONSE: "has the id of this request's answer",
    names.BY_END: "has the end of this request's id (SGLang cuts it at the last underscore)",
    names.BY_CHILD: "has the id that all samples of its caller's request share",
}
"""What a span of another trace has to do with the request, by the rule that joined it."""

SEVERITIES: Final = ("trace", "debug", "info", "warn", "error", "fatal")
"""OTLP's names; each stands for four numbers, from 1 on."""


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One span. ``offset_s`` counts from the first start of the list; ``took_s`` ``None``: it goes on."""

    depth: int
    name: str
    service: str
    offset_s: float
    took_s: float | None
    failed: bool
    ours: bool
    attributes: str


@dataclass(frozen=True, slots=True)
class OtherTrace:
    """What another trace has of the request; ``how`` says what joined it. Times count from its arrival."""

    trace_id: str
    how: str
    lines: tuple[TraceLine, ...]


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log record. ``offset_s`` counts from the request's arrival, ``None``: it has no time."""

    severity: str
    failed: bool
    offset_s: float | None
    service: str
    body: str
    attributes: str


@dataclass(frozen=True, slots=True)
class Trace:
    """The list; ``caller`` is the span id of a parent that was not received here, empty: there is none."""

    lines: tuple[TraceLine, ...]
    caller: str
    others: tuple[OtherTrace, ...] = ()
    logs: tuple[LogLine, ...] = ()


@dataclass(frozen=True, slots=True)
class _Node:
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int | None
    name: str
    service: str
    failed: bool
    ours: bool
    attributes: str


def of_request(detail: RequestDetail) -> Trace:
    """Return all that other tools told of a request."""
    arrival = to_ns(detail.request.arrival)
    return replace(
        trace(detail.request, detail.spans),
        others=tuple(_other(joined, arrival) for joined in detail.joined),
        logs=tuple(_log(record, arrival) for record in detail.logs),
    )


def trace(request: RequestRow, spans: Sequence[ForeignSpan]) -> Trace:
    """Return the trace of a request, our own span put among the others by its parent."""
    own_id = f"{identity.request_span_id(request.uid):016x}"
    # A span whose id is ours already is left out: ours must not vanish behind it.
    nodes = [_node(span) for span in spans if span.span_id != own_id]
    mine = _Node(
        own_id,
        request.parent_span_id,
        to_ns(request.arrival),
        None if request.end is None else to_ns(request.end),
        convention.SPAN_REQUEST,
        request.engine,
        failed=False,
        ours=True,
        attributes="",
    )
    nodes.append(mine)
    lines = _lines(nodes, min(node.start_ns for node in nodes))
    known = {node.span_id for node in nodes}
    outside = {node.parent_id for node in nodes} - known - {""}
    return Trace(lines, min(outside) if len(outside) == 1 else "")


def _other(joined: JoinedTrace, arrival_ns: int) -> OtherTrace:
    return OtherTrace(
        joined.trace_id, HOW[joined.rule], _lines([_node(span) for span in joined.spans], arrival_ns)
    )


def _log(record: LogRecord, arrival_ns: int) -> LogLine:
    severity = SEVERITIES[(record.severity - 1) // 4] if record.severity else ""
    return LogLine(
        severity,
        severity in SEVERITIES[-2:],
        (record.time_ns - arrival_ns) / 1e9 if record.time_ns else None,
        record.service,
        record.body,
        _told(record.attributes),
    )


def _node(span: ForeignSpan) -> _Node:
    return _Node(
        span.span_id,
        span.parent_id,
        span.start_ns,
        span.end_ns,
        span.name,
        span.service,
        span.failed,
        ours=False,
        attributes=_told(span.attributes),
    )


def _told(attributes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in attributes.items())


def _lines(nodes: Sequence[_Node], from_ns: int) -> tuple[TraceLine, ...]:
    known = {node.span_id for node in nodes}
    children: dict[str, list[_Node]] = defaultdict(list)
    for node in sorted(nodes, key=lambda n: (n.start_ns, n.ours, n.span_id)):
        children[node.parent_id if node.parent_id in known else ""].append(node)
    return tuple(_line(depth, node, from_ns) for depth, node in _walk(children, nodes))


def _walk(children: dict[str, list[_Node]], nodes: Sequence[_Node]) -> Iterator[tuple[int, _Node]]:
    """Yield every span once: ids that name each other as parents are told at the end, at the left."""
    seen: set[str] = set()
    stack = [(0, node) for node in reversed(children[""])]
    while stack:
        depth, node = stack.pop()
        if node.span_id in seen:
            continue
        seen.add(node.span_id)
        yield min(depth, MAX_DEPTH), node
        stack += [(depth + 1, child) for child in reversed(children[node.span_id])]
    yield from ((0, node) for node in nodes if node.span_id not in seen)


def _line(depth: int, node: _Node, first_ns: int) -> TraceLine:
    took = None if node.end_ns is None else (node.end_ns - node.start_ns) / 1e9
    return TraceLine(
        depth,
        node.name,
        node.service,
        (node.start_ns - first_ns) / 1e9,
        took,
        node.failed,
        node.ours,
        node.attributes,
    )

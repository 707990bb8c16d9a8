"""One trace as an indented list: other tools' spans and our request among them, parents before children."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from specscope import convention, identity

from specscope_server.store.model import RequestRow
from specscope_server.store.told import ForeignSpan
from specscope_server.store.values import to_ns

MAX_DEPTH: Final = 12
"""Levels indented; deeper ones stand at the last."""


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
class Trace:
    """The list; ``caller`` is the span id of a parent that was not received here, empty: there is none."""

    lines: tuple[TraceLine, ...]
    caller: str


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


def trace(request: RequestRow, spans: Sequence[ForeignSpan]) -> Trace:
    """Return the trace of a request, our own span put among the others by its parent."""
    own_id = f"{identity.request_span_id(request.uid):016x}"
    nodes = [
        _Node(
            span.span_id,
            span.parent_id,
            span.start_ns,
            span.end_ns,
            span.name,
            span.service,
            span.failed,
            ours=False,
            attributes=", ".join(f"{name}={value}" for name, value in span.attributes.items()),
        )
        for span in spans
        if span.span_id != own_id  # an id that is ours already: ours must not vanish behind it
    ]
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
    known = {node.span_id for node in nodes}
    children: dict[str, list[_Node]] = defaultdict(list)
    for node in sorted(nodes, key=lambda n: (n.start_ns, n.ours, n.span_id)):
        children[node.parent_id if node.parent_id in known else ""].append(node)
    first = min(node.start_ns for node in nodes)
    lines = tuple(_line(depth, node, first) for depth, node in _walk(children, nodes))
    outside = {node.parent_id for node in children[""]} - {""}
    return Trace(lines, min(outside) if len(outside) == 1 else "")


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

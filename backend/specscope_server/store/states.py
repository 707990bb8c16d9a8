"""The ledger of an engine from that of its processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from specscope import convention
from specscope.ledger import Arming
from specscope.records import Crossing

from specscope_server.store.model import BoundaryState
from specscope_server.store.rows import ARMINGS

Totals = Mapping[Crossing, tuple[int | None, int | None]]
"""(boundary, source, mode) to (expected, observed); expectations have the empty mode."""
Armed = Mapping[str, Arming]

UNTOLD = Arming(False, "the tracer has not said whether it can see this boundary", "")
_ORDER = {name: index for index, name in enumerate(convention.BOUNDARIES)}


@dataclass(slots=True)
class _Line:
    expected: int = 0
    observed: dict[str, int] = field(default_factory=dict[str, int])


def states(processes: Mapping[str, tuple[Totals, Armed]]) -> tuple[BoundaryState, ...]:
    """Return the ledger over processes (by uid), in the order of the path.

    Where some processes can see a boundary and some cannot, only the former count: what a process cannot
    see must not look like a gap. Where none can, all count and the state says it is not armed.
    """
    blind: dict[str, list[Arming]] = defaultdict(list)
    sighted: set[str] = set()
    for totals, armed in processes.values():
        for boundary in {name for name, _, _ in totals} | set(armed):
            found = armed.get(boundary, UNTOLD)
            if found.armed:
                sighted.add(boundary)
            else:
                blind[boundary].append(found)
    lines: dict[tuple[str, str], _Line] = {}
    for totals, armed in processes.values():
        for (boundary, source, mode), (expected, observed) in totals.items():
            if boundary in sighted and not armed.get(boundary, UNTOLD).armed:
                continue
            line = lines.setdefault((boundary, source), _Line())
            line.expected += expected or 0
            if observed is not None:
                line.observed[mode] = line.observed.get(mode, 0) + observed
    told = {boundary for boundary, _ in lines}
    for boundary in (sighted | set(blind)) - told:
        lines[boundary, convention.NO_SOURCE] = _Line()
    made = [
        BoundaryState(
            boundary,
            source,
            line.expected,
            line.observed,
            boundary in sighted,
            *_why(boundary in sighted, blind[boundary], len(processes)),
        )
        for (boundary, source), line in lines.items()
    ]
    return tuple(sorted(made, key=lambda s: (_ORDER.get(s.boundary, len(_ORDER)), s.boundary, s.source)))


def arming(value: int, reason: str) -> Arming:
    """Return what a stored gauge ``armed`` says."""
    state = ARMINGS[value] if 0 <= value < len(ARMINGS) else ""
    return Arming(value == 1, reason, state)


def _why(sighted: bool, blind: list[Arming], processes: int) -> tuple[str, str]:
    """Return (reason, state) of a boundary: of the processes that cannot see it, if any."""
    first = min(blind, key=lambda one: (not one.reason, one.reason), default=None)
    if first is None:
        return "", convention.ARMING_ARMED if sighted else ""
    reason = first.reason or "no reason was given"
    if sighted:
        return f"not seen in {len(blind)} of {processes} processes: {reason}", convention.ARMING_ARMED
    return reason, first.state

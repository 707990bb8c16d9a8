"""The ledger of an engine from that of its processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from specscope import convention
from specscope.records import Crossing

from specscope_server.store.model import BoundaryState

Totals = Mapping[Crossing, tuple[int | None, int | None]]
"""(boundary, source, mode) to (expected, observed); expectations have the empty mode."""
Armed = Mapping[str, tuple[bool, str]]
"""Boundary to (armed, reason why not)."""

UNTOLD = "the tracer has not said whether it can see this boundary"
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
    blind: dict[str, list[str]] = defaultdict(list)
    sighted: set[str] = set()
    for totals, armed in processes.values():
        for boundary in {name for name, _, _ in totals} | set(armed):
            can, reason = armed.get(boundary, (False, UNTOLD))
            if can:
                sighted.add(boundary)
            else:
                blind[boundary].append(reason)
    lines: dict[tuple[str, str], _Line] = {}
    for totals, armed in processes.values():
        for (boundary, source, mode), (expected, observed) in totals.items():
            if boundary in sighted and not armed.get(boundary, (False, ""))[0]:
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
            _reason(boundary in sighted, blind[boundary], len(processes)),
        )
        for (boundary, source), line in lines.items()
    ]
    return tuple(sorted(made, key=lambda s: (_ORDER.get(s.boundary, len(_ORDER)), s.boundary, s.source)))


def _reason(sighted: bool, reasons: list[str], processes: int) -> str:
    if not reasons:
        return ""
    first = next((reason for reason in sorted(reasons) if reason), "no reason was given")
    return f"not seen in {len(reasons)} of {processes} processes: {first}" if sighted else first

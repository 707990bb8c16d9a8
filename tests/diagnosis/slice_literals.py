"""Slices of an engine's traffic as literals: (value, steps that drafted, those with the first accepted)."""

from __future__ import annotations

from dataclasses import replace

from evidence_literals import counts, evidence, ledger, path
from specscope.rollup import Counts
from specscope_server.diagnosis import Evidence
from specscope_server.diagnosis.engine_evidence import Slice
from specscope_server.diagnosis.step_evidence import StepEvidence

Row = tuple[str, int, int]


def part(steps: int, first: int) -> Counts:
    """Return the counts of ``steps`` of a chain of 4, ``first`` of which accept two drafts on average."""
    return counts(steps, 2 * first, steps - first)


def sliced(
    dimension: str, *rows: Row, users: int = 100, more: tuple[tuple[str, tuple[Row, ...]], ...] = ()
) -> Evidence:
    """Return an engine whose window has these slices, and ``more`` dimensions of the same steps."""
    steps, first = sum(row[1] for row in rows), sum(row[2] for row in rows)
    told = tuple(
        Slice(name, value, part(n, k)) for name, group in ((dimension, rows), *more) for value, n, k in group
    )
    whole = evidence(ledger(path(steps, users)), part(steps, first), users=users)
    fading = tuple((steps, first * tenths // 10) for tenths in (10, 6, 3, 1))
    return replace(whole, slices=told, positions=fading)


def stepped(users: int = 100, **dimensions: tuple[Row, ...]) -> Evidence:
    """Return an engine whose newest steps are sliced so, each dimension over the same steps."""
    rows = next(iter(dimensions.values()))
    whole = sliced("row", ("0", sum(r[1] for r in rows), sum(r[2] for r in rows)), users=users)
    slices = {name: {value: part(n, k) for value, n, k in group if n} for name, group in dimensions.items()}
    steps = StepEvidence(steps=sum(r[1] for r in rows), requests=users, slices=slices)
    return replace(whole, steps=steps)

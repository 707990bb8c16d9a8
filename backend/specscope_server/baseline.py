"""Expectations as they are said and learned: what makes sense of them, and what needs a person's word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from specscope.rollup import ALL, BUCKET_S, Counts

from specscope_server.diagnosis.expectation import first_position
from specscope_server.diagnosis.model import CERTAIN
from specscope_server.store.model import ExpectationRow, ExpectationScope, SeriesPoint
from specscope_server.store.port import Reads
from specscope_server.store.sliced import SLICES

DECLARED: Final = "declared"
LEARNED: Final = "learned"
MAX_POSITIONS: Final = 64
MIN_LENGTH: Final = 1.5
"""Promised acceptance length below which a person must say that it is meant: broken drafts of
the tiny pair mostly have 1.0 to 1.5 (models/tiny/fault-table.md), and a baseline can itself be broken."""
MIN_STEPS: Final = 500
"""Verify steps to learn from."""


class BaselineError(ValueError):
    """An expectation that makes no sense, or that needs a person's word; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Period:
    """What an engine served in a period: conditional acceptance by position, of how many verify steps."""

    per_position: tuple[float, ...]
    steps: int


def checked(row: ExpectationRow, *, accept_low: bool) -> ExpectationRow:
    """Return an expectation that makes sense.

    Raises:
        BaselineError: a number is out of range, the workload is no slice, or it promises very little and
            nobody said that this is meant.
    """
    if not 1 <= len(row.per_position) <= MAX_POSITIONS:
        raise BaselineError(f"per_position: give 1 to {MAX_POSITIONS} numbers, from the first position on")
    for position, p in enumerate(row.per_position, start=1):
        if not 0 <= p <= 1:
            raise BaselineError(
                f"per_position: {p:g} at position {position} is no share from 0 to 1 (conditional acceptance:"
                " of the steps that accepted the position before)"
            )
    if row.floor is not None and not 1 <= row.floor <= MAX_POSITIONS + 1:
        raise BaselineError(f"floor: {row.floor:g} is no acceptance length from 1 to {MAX_POSITIONS + 1}")
    if row.scope.workload:
        split_workload(row.scope.workload)
    length = promised_length(row.per_position)
    if length < MIN_LENGTH and not accept_low:
        raise BaselineError(
            f"this promises an acceptance length of {length:.2f}, and a sound draft has {MIN_LENGTH:g} or"
            " more: what it comes from may itself be broken. If it is meant, say accept_low (--accept-low)"
        )
    return row


def promised_length(per_position: Sequence[float]) -> float:
    """Return the acceptance length that conditional acceptance by position adds up to."""
    length = chance = 1.0
    for p in per_position:
        chance *= p
        length += chance
    return length


def split_workload(workload: str) -> tuple[str, str]:
    """Return the dimension and slice of a workload.

    Raises:
        BaselineError: it is not ``dimension=slice`` of the rollups.
    """
    dimension, equals, value = workload.partition("=")
    if not equals or dimension == ALL or value not in SLICES.get(dimension, ()):
        known = ", ".join(name for name in SLICES if name != ALL)
        hint = (
            f"its slices are {', '.join(SLICES[dimension][:8])}" if SLICES.get(dimension) else f"of {known}"
        )
        raise BaselineError(
            f"workload {workload[:80]!r}: write DIMENSION=SLICE, e.g. context=128-255 ({hint})"
        )
    return dimension, value


def period(
    reads: Reads, workspace: str, engine_uid: str, workload: str, since: datetime, until: datetime
) -> Period:
    """Return what an engine served of a workload (empty: of everything) between two moments.

    Raises:
        BaselineError: that is too little to learn from.
    """
    dimension, value = split_workload(workload) if workload else (ALL, None)
    width = max(int((until - since).total_seconds()) // BUCKET_S, 1) * BUCKET_S
    found = reads.sliced(workspace, engine_uid, since, until, width, dimension, value)
    points = [point for series in found.series.values() for point in series]
    positions = _summed(points)
    steps = positions[0][0] if positions else 0
    if steps < MIN_STEPS:
        raise BaselineError(
            f"{steps} verify steps that drafted are known of that period, {MIN_STEPS} are needed: choose a"
            " longer one (--since)"
        )
    return Period(tuple(_conditional(positions)), steps)


def against(reads: Reads, workspace: str, engine_uid: str) -> list[str]:
    """Return what speaks against learning from an engine now: its open findings that are certain."""
    found = reads.findings(workspace, engine_uid)
    return [f"{one.title} ({one.kind})" for one in found if one.confidence == CERTAIN]


def learned(
    scope: ExpectationScope, served: Period, floor: float | None, who: str, now: datetime,
    note: str, span: tuple[datetime, datetime], engine_uid: str,
) -> ExpectationRow:  # fmt: skip
    """Return the expectation that a period makes."""
    return ExpectationRow(
        scope, LEARNED, served.per_position, served.steps, floor, who, now, note, span, engine_uid
    )


def _summed(points: Sequence[SeriesPoint]) -> list[tuple[int, int]]:
    counts = Counts()
    positions: list[tuple[int, int]] = []
    for point in points:
        counts.add(point.counts)
        for position, (drafted, accepted) in enumerate(point.positions):
            if position == len(positions):
                positions.append((0, 0))
            before = positions[position]
            positions[position] = (before[0] + drafted, before[1] + accepted)
    return positions or list(first_position(counts))


def _conditional(positions: Sequence[tuple[int, int]]) -> list[float]:
    found: list[float] = []
    reached = positions[0][0]
    for drafted, accepted in positions:
        reached = min(reached, drafted)
        # A share known from fewer is no promise.
        if reached < MIN_STEPS // 10:
            break
        found.append(round(min(accepted, reached) / reached, 6))
        reached = accepted
    return found

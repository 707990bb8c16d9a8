"""Small graphics drawn by the server as SVG, readable without JavaScript: lines with gaps, bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spark:
    """Geometry in a ``width`` x ``height`` box: a line, the area under it, and dots for lone values."""

    width: int
    height: int
    path: str
    area: str
    dots: tuple[tuple[float, float], ...]
    floor: float
    top: float


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar with its track: ``y`` and ``filled`` are measured from the top of the box."""

    position: int
    x: float
    width: float
    y: float
    filled: float
    share: float | None
    drafted: int
    accepted: int


def sparkline(
    values: Sequence[float | None], *, width: int, height: int, floor: float, top: float | None = None
) -> Spark:
    """Return the line of ``values`` spread evenly over the width; ``None`` interrupts it.

    The scale runs from ``floor`` to ``top``, by default the largest value, so that lines of one page can
    share a scale.
    """
    known = [v for v in values if v is not None]
    ceiling = max([floor + 1e-9, *known]) if top is None else max(top, floor + 1e-9)
    pad = 2.0
    step = (width - 2 * pad) / max(len(values) - 1, 1)

    def point(index: int, value: float) -> tuple[float, float]:
        share = min(1.0, max(0.0, (value - floor) / (ceiling - floor)))
        return round(pad + index * step, 1), round(height - pad - share * (height - 2 * pad), 1)

    parts: list[str] = []
    areas: list[str] = []
    dots: list[tuple[float, float]] = []
    run: list[tuple[float, float]] = []
    for index, value in enumerate([*values, None]):
        if value is not None:
            run.append(point(index, value))
        elif run:
            if len(run) == 1:
                dots.append(run[0])
            else:
                line = "L".join(f"{x} {y}" for x, y in run)
                parts.append("M" + line)
                areas.append(f"M{run[0][0]} {height}L{line}L{run[-1][0]} {height}Z")
            run = []
    return Spark(width, height, "".join(parts), "".join(areas), tuple(dots), floor, ceiling)


def position_bars(positions: Sequence[tuple[int, int]], *, width: int, height: int) -> list[Bar]:
    """Return one bar per draft position for (drafted, accepted); an undrafted position has no share."""
    if not positions:
        return []
    slot = width / len(positions)
    bar = min(slot * 0.72, 26.0)
    found: list[Bar] = []
    for index, (drafted, accepted) in enumerate(positions):
        share = accepted / drafted if drafted else None
        filled = height * (share or 0.0)
        found.append(
            Bar(
                index + 1,
                round(index * slot + (slot - bar) / 2, 1),
                round(bar, 1),
                round(height - filled, 1),
                round(filled, 1),
                share,
                drafted,
                accepted,
            )
        )
    return found

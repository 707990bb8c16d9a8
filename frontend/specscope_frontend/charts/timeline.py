"""Acceptance over time. A bucket without data is a gap in the line, never a zero and never bridged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from specscope_frontend.charts.figure import COLORS, Figure, layout, role, utc


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """One bucket. ``length`` in tokens per verify step and ``rate`` (0 to 1) are ``None`` when undefined."""

    start: datetime
    length: float | None
    rate: float | None
    verify_steps: int


def with_gaps(points: Sequence[TimelinePoint], bucket_s: int) -> list[TimelinePoint]:
    """Return the points with one empty point in each hole, so that lines break there."""
    filled: list[TimelinePoint] = []
    for point in sorted(points, key=lambda p: p.start):
        if filled and (point.start - filled[-1].start).total_seconds() > bucket_s * 1.5:
            hole = filled[-1].start + timedelta(seconds=bucket_s)
            filled.append(TimelinePoint(hole, None, None, 0))
        filled.append(point)
    return filled


def acceptance_timeline(
    points: Sequence[TimelinePoint], *, bucket_s: int, since: datetime, until: datetime
) -> Figure:
    """Return acceptance length above acceptance rate over one time axis (UTC) from ``since`` to ``until``."""
    filled = with_gaps(points, bucket_s)
    times = [utc(p.start) for p in filled]
    steps = [p.verify_steps for p in filled]
    return {
        "data": [
            _line(times, [p.length for p in filled], steps, "length", "acceptance length", "y",
                  "%{y:.2f} tokens per verify step, %{customdata:,} steps"),
            _line(times, [p.rate for p in filled], steps, "rate", "acceptance rate", "y2",
                  "%{y:.1%} of drafted positions"),
        ],
        "layout": layout(
            height=330,
            x={"type": "date", "range": [utc(since), utc(until)], "anchor": "y2",
               "title": {"text": "time (UTC)"}},
            y={"domain": [0.56, 1], "title": {"text": "tokens / step"}},
            yaxis2={"domain": [0, 0.44], "range": [0, 1], "tickformat": ".0%", "zeroline": False,
                    "automargin": True, "title": {"text": "accepted"}},
        ),
    }  # fmt: skip


def _line(
    x: list[str], y: list[float | None], steps: list[int], color: str, name: str, axis: str, hover: str
) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": x,
        "y": y,
        "yaxis": axis,
        "customdata": steps,
        "connectgaps": False,
        "line": {"color": COLORS[color], "width": 2, "shape": "linear"},
        "marker": {"color": COLORS[color], "size": 4},
        "hovertemplate": hover + "<extra></extra>",
        "meta": role(color),
    }

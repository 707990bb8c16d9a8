"""Hidden states: sizes and errors along the tokens of a request, and sizes over time.

Sizes span powers of ten, so their axis is logarithmic; what has no logarithm (a row that is all zero, or not
finite) is marked at the foot of the figure. A gap is no data, never a zero and never bridged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from specscope_frontend.charts.figure import COLORS, Figure, layout, role, utc

_SERIES: Final = tuple(name for name in COLORS if name.startswith("series-"))
_DASHES: Final = ("solid", "dot", "dash")
MAX_LINES: Final = len(_SERIES) * len(_DASHES)
"""Lines that can be told apart in one figure."""


@dataclass(frozen=True, slots=True)
class PositionLine:
    """One line along a request's tokens: ``name`` and its (position, value), in order of position.

    Values are finite, and above 0 where the axis is logarithmic; ``broken`` are positions whose row has no
    such value. Points of two ``runs`` are never joined: the run says which stretch of tokens without a hole
    a point is of.
    """

    name: str
    positions: Sequence[int]
    values: Sequence[float]
    runs: Sequence[int]
    broken: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class TimeLine:
    """One line over time: ``name`` and its (bucket start, value); finite and above 0, ``None`` undefined."""

    name: str
    points: Sequence[tuple[datetime, float | None]]


def by_position(lines: Sequence[PositionLine], *, says: str, log: bool) -> Figure:
    """Return the figure of the first :data:`MAX_LINES` lines; ``says`` is what the values are."""
    shown = lines[:MAX_LINES]
    data = [_along(line, at) for at, line in enumerate(shown)]
    values = [value for line in shown for value in line.values]
    foot = [(position, line.name) for line in shown for position in line.broken]
    if foot:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "all zero or not finite",
                "x": [position for position, _ in foot],
                "y": [min(values, default=1.0) / 2] * len(foot),
                "customdata": [name for _, name in foot],
                "marker": {"color": COLORS["rejected"], "size": 9, "symbol": "x", "line": {"width": 1}},
                "hovertemplate": "%{customdata}: no size<extra></extra>",
                "meta": role("rejected"),
            }
        )
    return {
        "data": data,
        "layout": layout(
            height=300,
            x={"title": {"text": "position (tokens before)"}, "tickformat": ",d"},
            y=_log(says, values) if log else {"title": {"text": says}},
        ),
    }


def hidden_timeline(
    fed: Sequence[TimeLine], inside: Sequence[TimeLine], *, bucket_s: int, since: datetime, until: datetime
) -> Figure:
    """Return what the draft was fed above what became of it, over one time axis (UTC)."""
    sizes = [[v for line in half for _, v in line.points if v is not None] for half in (fed, inside)]
    fed_axis, inside_axis = _log("rms fed", sizes[0]), _log("rms inside", sizes[1])
    return {
        "data": [
            *(_over_time(line, at, "y", bucket_s) for at, line in enumerate(fed)),
            *(_over_time(line, at + len(fed), "y2", bucket_s) for at, line in enumerate(inside)),
        ],
        "layout": layout(
            height=420,
            x={"type": "date", "range": [utc(since), utc(until)], "anchor": "y2",
               "title": {"text": "time (UTC)"}},
            y={"domain": [0.55, 1], **fed_axis},
            yaxis2={"domain": [0, 0.45], "zeroline": False, "automargin": True, **inside_axis},
        ),
    }  # fmt: skip


def _log(says: str, values: Sequence[float]) -> Figure:
    """Return a logarithmic axis. Over several powers of ten Plotly's own ticks run into each other."""
    axis: Figure = {"type": "log", "rangemode": "normal", "title": {"text": says}, "tickformat": ".3~g"}
    ticks = ticks_of(values)
    return axis | {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]} if ticks else axis


def ticks_of(values: Sequence[float]) -> list[float]:
    """Return at most seven round numbers in the range of the values; none where they lie close together."""
    if not values or max(values) < 5 * min(values):
        return []
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1, 2, 5) if last - first <= 2 else (1,)
    every = -(-(last - first + 1) // 6)
    round_ones = [step * 10.0**power for power in range(first, last + 1, every) for step in steps]
    return [one for one in round_ones if min(values) / 2 <= one <= max(values) * 2]


def _style(at: int) -> Figure:
    color = _SERIES[at % len(_SERIES)]
    dash = _DASHES[at // len(_SERIES) % len(_DASHES)]
    return {
        "line": {"color": COLORS[color], "width": 1.5, "dash": dash},
        "marker": {"color": COLORS[color], "size": 4},
        "meta": role(color),
    }


def _along(line: PositionLine, at: int) -> Figure:
    x: list[int | None] = []
    y: list[float | None] = []
    for i, position in enumerate(line.positions):
        if i and line.runs[i] != line.runs[i - 1]:
            x.append(None)
            y.append(None)
        x.append(position)
        y.append(line.values[i])
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": line.name,
        "x": x,
        "y": y,
        "connectgaps": False,
        "hovertemplate": f"%{{y:.4g}} {line.name}<extra></extra>",
        **_style(at),
    }


def _over_time(line: TimeLine, at: int, axis: str, bucket_s: int) -> Figure:
    x: list[str] = []
    y: list[float | None] = []
    last: datetime | None = None
    for start, value in line.points:
        if last is not None and (start - last).total_seconds() > bucket_s * 1.5:
            x.append(utc(last + timedelta(seconds=bucket_s)))
            y.append(None)
        x.append(utc(start))
        y.append(value)
        last = start
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": line.name,
        "x": x,
        "y": y,
        "yaxis": axis,
        "connectgaps": False,
        "hovertemplate": f"%{{y:.4g}} {line.name}<extra></extra>",
        **_style(at),
    }

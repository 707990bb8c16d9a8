"""One bar per verify step: as high as the draft was deep, accepted positions below, rejected above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specscope_frontend.charts.figure import COLORS, Figure, layout, role

MARKS_UP_TO = 240
"""Steps shown with a mark for the bonus token; with more, marks would touch and hide the bars."""


@dataclass(frozen=True, slots=True)
class VerifyBar:
    """One verify step: its number in the request (from 1), depth drafted, accepted, bonus tokens."""

    number: int
    drafted_depth: int
    accepted: int
    bonus: int


def verify_steps(steps: Sequence[VerifyBar]) -> Figure:
    """Return the figure; the height of a segment is its number of draft positions.

    Acceptance is a prefix of the drafted path, so position d is accepted where the accepted part of the bar
    reaches d. The bonus token stands where the first rejected position was, or after the last accepted one.
    """
    numbers = [s.number for s in steps]
    data: list[Figure] = [
        _bar(numbers, [s.accepted for s in steps], "accepted"),
        # Hatched and fainter: what was accepted is the figure's subject.
        _bar(numbers, [max(0, s.drafted_depth - s.accepted) for s in steps], "rejected", "/", 0.6),
    ]
    with_bonus = [s for s in steps if s.bonus]
    if len(steps) <= MARKS_UP_TO and with_bonus:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "bonus token (the target's own)",
                "x": [s.number for s in with_bonus],
                "y": [s.accepted + 0.5 for s in with_bonus],
                "marker": {"color": COLORS["bonus"], "size": 8, "symbol": "diamond", "line": {"width": 1.5}},
                "customdata": [s.bonus for s in with_bonus],
                "hovertemplate": "%{customdata} bonus<extra></extra>",
                "meta": role("bonus"),
            }
        )
    deepest = max((max(s.drafted_depth, s.accepted + s.bonus) for s in steps), default=1)
    return {
        "data": data,
        "layout": layout(
            height=300,
            x={
                "title": {"text": "verify step"},
                "tickformat": ",d",
                "range": [
                    min((s.number for s in steps), default=0) - 0.8,
                    max((s.number for s in steps), default=1) + 0.8,
                ],
            },
            y={
                "title": {"text": "draft position"},
                "range": [0, max(deepest, 1) + 0.25],
                "dtick": 1 if deepest <= 12 else 4,
            },
            barmode="stack",
            bargap=0.15 if len(steps) <= MARKS_UP_TO else 0,
        ),
    }


def _bar(x: list[int], y: list[int], name: str, pattern: str = "", opacity: float = 1.0) -> Figure:
    return {
        "type": "bar",
        "name": name,
        "x": x,
        "y": y,
        "opacity": opacity,
        "marker": {"color": COLORS[name], "pattern": {"shape": pattern, "size": 6, "solidity": 0.16}},
        "hovertemplate": f"%{{y}} {name}<extra></extra>",
        "meta": role(name),
    }

"""Acceptance by draft position: where along the draft tokens stop being accepted."""

from __future__ import annotations

from collections.abc import Sequence

from specscope_frontend.charts.figure import COLORS, Figure, layout, role


def unconditional(positions: Sequence[tuple[int, int]]) -> list[float | None]:
    """Return accepted / drafted for each (drafted, accepted); ``None`` where nothing was drafted."""
    return [accepted / drafted if drafted else None for drafted, accepted in positions]


def conditional(positions: Sequence[tuple[int, int]]) -> list[float | None]:
    """Return accepted at a position / steps that accepted the one before; ``None`` where there were none."""
    reached = [drafted for drafted, _ in positions[:1]] + [accepted for _, accepted in positions[:-1]]
    return [
        accepted / steps if steps else None for (_, accepted), steps in zip(positions, reached, strict=True)
    ]


def per_position(positions: Sequence[tuple[int, int]]) -> Figure:
    """Return bars of acceptance by position, from 1, with the conditional rate as marks.

    ``positions`` is, per position, the steps that drafted that deep and the steps that accepted it.
    """
    labels = [str(i + 1) for i in range(len(positions))]
    counts = [[drafted, accepted] for drafted, accepted in positions]
    return {
        "data": [
            {
                "type": "bar",
                "name": "accepted / drafted there",
                "x": labels,
                "y": unconditional(positions),
                "customdata": counts,
                "marker": {"color": COLORS["accepted"]},
                "hovertemplate": "%{y:.1%}: %{customdata[1]:,} of %{customdata[0]:,} steps<extra></extra>",
                "meta": role("accepted"),
            },
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": "given the position before was accepted",
                "x": labels,
                "y": conditional(positions),
                "connectgaps": False,
                "line": {"color": COLORS["bonus"], "width": 1.5, "dash": "dot"},
                "marker": {"color": COLORS["bonus"], "size": 8, "symbol": "diamond"},
                "hovertemplate": "%{y:.1%} of the steps that got here<extra></extra>",
                "meta": role("bonus"),
            },
        ],
        "layout": layout(
            height=330,
            x={"type": "category", "title": {"text": "draft position"}},
            y={"range": [0, 1.02], "tickformat": ".0%", "title": {"text": "accepted"}},
            bargap=0.35,
        ),
    }

"""What every figure shares: colours by role, axes, margins.

A trace names the role of its colour in ``meta``; ``static/figures.js`` replaces the colour by that of the
page's theme (``--accepted`` and so on), so that one figure serves light and dark. The colours here are those
of the light theme and are what a figure shows by itself. They are of the Okabe-Ito set, which stays apart
for colour-blind readers; rejected is hatched as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

Figure = dict[str, Any]
"""``{"data": [trace, ...], "layout": {...}}`` as Plotly takes it."""

COLORS: Final[Mapping[str, str]] = {
    "accepted": "#0b6fc2",
    "rejected": "#d55e00",
    "bonus": "#b0428f",
    "length": "#0b6fc2",
    "rate": "#00795c",
    "muted": "#6b7280",
    # Lines that are alike but for their number.
    "series-1": "#0b6fc2",
    "series-2": "#d55e00",
    "series-3": "#00795c",
    "series-4": "#b0428f",
    "series-5": "#574399",
    "series-6": "#616b78",
}


def layout(*, height: int, x: Mapping[str, Any], y: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the shared layout; colours of text and lines come from the page's theme."""
    return {
        "height": height,
        "margin": {"l": 52, "r": 12, "t": 8, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "x unified",
        "showlegend": True,
        "legend": {
            "orientation": "h",
            "traceorder": "normal",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
        },
        # A refresh with the same revision keeps the reader's zoom.
        "uirevision": "keep",
        "xaxis": {"zeroline": False, "showgrid": False, "automargin": True, **x},
        "yaxis": {"zeroline": False, "rangemode": "tozero", "automargin": True, **y},
        **more,
    }


def role(name: str) -> dict[str, str]:
    """Return the ``meta`` that names a trace's colour.

    Raises:
        KeyError: there is no colour of that role.
    """
    COLORS[name]
    return {"color": name}


def utc(moment: datetime) -> str:
    """Return the moment as Plotly takes it: it knows no zones, so all times are given in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")

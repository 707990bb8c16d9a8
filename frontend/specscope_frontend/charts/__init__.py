"""Figures as plain dicts in Plotly's schema, and small server-drawn graphics: pure functions of numbers.

Figures hold numbers and fixed words only, never a name or an id that an engine sent: Plotly reads a little
HTML in its texts, and hostile text must have no way there.
"""

from specscope_frontend.charts.hidden import PositionLine, TimeLine, by_position, hidden_timeline
from specscope_frontend.charts.positions import per_position
from specscope_frontend.charts.spark import Spark, position_bars, sparkline
from specscope_frontend.charts.steps import VerifyBar, verify_steps
from specscope_frontend.charts.timeline import TimelinePoint, acceptance_timeline

__all__ = [
    "PositionLine",
    "Spark",
    "TimeLine",
    "TimelinePoint",
    "VerifyBar",
    "acceptance_timeline",
    "by_position",
    "hidden_timeline",
    "per_position",
    "position_bars",
    "sparkline",
    "verify_steps",
]

"""Numbers, shares and times as text: one way for all pages, absent values as a dash, never as 0."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

DASH: Final = "–"
"""Shown for what is undefined or was not recorded; beside it stands the reason."""


def count(value: int | None) -> str:
    """Return a whole number with thousands separators."""
    return DASH if value is None else f"{value:,}"


def decimal(value: float | None, digits: int = 2) -> str:
    """Return a number with a fixed number of decimals."""
    return DASH if value is None else f"{value:,.{digits}f}"


def share(value: float | None) -> str:
    """Return a share (0 to 1) in percent; small ones keep a digit that shows they are not 0."""
    if value is None:
        return DASH
    percent = value * 100
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.1f} %"


def significant(value: float | None) -> str:
    """Return a statistic with four significant digits."""
    return DASH if value is None else f"{value:.4g}"


def seconds(value: float | None) -> str:
    """Return a duration with its unit: microseconds to days."""
    if value is None:
        return DASH
    if value < 0:
        return f"−{seconds(-value)}"
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    if value < 1:
        return f"{value * 1e3:.0f} ms"
    if value < 60:
        return f"{value:.2f}".removesuffix(".00") + " s"
    if value < 3600:
        return f"{value / 60:.0f} min"
    if value < 86400:
        return f"{value / 3600:.1f} h"
    return f"{value / 86400:.1f} d"


def ago(moment: datetime | None, now: datetime) -> str:
    """Return how long ago a moment was; clocks may differ, so the near future reads as now."""
    if moment is None:
        return DASH
    elapsed = (now - moment).total_seconds()
    if elapsed < -60:
        return f"in {_span(-elapsed)}"
    return "just now" if elapsed < 2 else f"{_span(elapsed)} ago"


def _span(elapsed: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if elapsed >= size:
            return f"{elapsed / size:.0f} {unit}"
    return f"{elapsed:.0f} s"


def utc(moment: datetime | None) -> str:
    """Return date and time in UTC to the second, with the zone."""
    return DASH if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(moment: datetime | None) -> str:
    """Return the time of day in UTC, without the zone: for columns whose head names it."""
    return DASH if moment is None else moment.astimezone(UTC).strftime("%H:%M:%S")


def iso(moment: datetime) -> str:
    """Return the moment for a ``datetime`` attribute."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def short(identifier: str, keep: int = 12) -> str:
    """Return the start of a long identifier; the whole one stands in a title or beside it."""
    return identifier if len(identifier) <= keep + 1 else identifier[:keep] + "…"

"""Spans of time as they are typed: ``2h``, or ``2026-11-30T04:00..2026-11-30T05:00``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> int:
    """Return how long ``90s``, ``30m``, ``2h`` or ``1d`` is.

    Raises:
        ValueError: it is none of these, or nothing.
    """
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text.strip())
    if found is None or not int(found[1]):
        raise ValueError(f"{text!r} is no length of time: write 90s, 30m, 2h or 1d")
    return int(found[1]) * _UNITS[found[2]]


def moment(text: str, now: datetime) -> datetime:
    """Return a moment: so long before ``now``, or as ISO 8601 (UTC where it names no zone).

    Raises:
        ValueError: it is neither.
    """
    try:
        length = timedelta(seconds=seconds(text))
    except ValueError:
        length = None
    if length is not None:
        try:
            return now - length
        except OverflowError as error:
            raise ValueError(f"{text!r} ago is before the year 1: write a shorter length of time") from error
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(f"{text!r} is no moment: write 2h or 2026-11-30T04:00") from error
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def span(text: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the two ends of ``SINCE`` or ``SINCE..UNTIL``; without an end it is ``now``.

    Raises:
        ValueError: it is neither, or ends before it starts.
    """
    since, dots, until = text.partition("..")
    start, end = moment(since, now), moment(until, now) if dots and until.strip() else now
    if start >= end:
        raise ValueError(f"{text!r} ends before it starts")
    return start, end

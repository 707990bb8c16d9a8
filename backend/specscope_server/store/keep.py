"""How long what is stored is kept, and what is too old to be taken."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Final

FOREVER: Final = 0
DAY_NS: Final = 86_400 * 1_000_000_000
GIB: Final = 1 << 30
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Oldest:
    """Event times, ns since 1970, before which what is told is too old to be taken; 0 takes everything.

    What is older may have been forgotten together with the key that tells whether it came before.
    """

    steps_ns: int = 0
    """Of chunks, by their end, and of steps of ranks."""
    requests_ns: int = 0
    """Of requests that ended, by their end."""
    rollups_ns: int = 0
    """Of rollups and the ledger, by the start of their 10 s bucket."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Ages in days, 0 for ever, and the size that the database may have."""

    steps_days: int = 7
    """Chunks (steps, draft extends, hidden states) and prompts."""
    requests_days: int = 30
    """Requests, other tools' spans and log records."""
    rollups_days: int = 30
    """Sums by 10 s: acceptance, hidden states, ledger; and which increments are in them."""
    minutes_days: int = 400
    """Sums by the minute."""
    alerts_days: int = 90
    """Closed findings, changes of alerts, notifications that are not pending."""
    engines_days: int = 400
    """Engines from the time they were last heard, with all that is left of them."""
    max_bytes: int = 0
    """Of the whole database: beyond it the oldest chunks go, whatever their age. 0: no limit."""

    def before(self, days: int, now: datetime) -> int | None:
        """Return the time, ns since 1970, before which things of an age go; ``None``: they never do."""
        if days == FOREVER:
            return None
        return max(0, (now - timedelta(days=days) - _EPOCH) // timedelta(microseconds=1) * 1000)

    def oldest(self, now: datetime) -> Oldest:
        """Return what is too old to be taken at a time."""
        return Oldest(
            self.before(self.steps_days, now) or 0,
            self.before(self.requests_days, now) or 0,
            self.before(self.rollups_days, now) or 0,
        )

    @property
    def anything(self) -> bool:
        """Say whether anything is ever deleted."""
        return any(getattr(self, field.name) for field in fields(self))


NOTHING_GOES: Final = Keep(0, 0, 0, 0, 0, 0)
"""Keeps everything for ever."""

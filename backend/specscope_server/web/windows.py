"""The time windows a reader can choose, and the bucket width that keeps each chart at about 120 points."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final


@dataclass(frozen=True, slots=True)
class Window:
    """A window ending now. ``bucket_s`` is a multiple of the rollups' 10 seconds."""

    key: str
    label: str
    span: str
    seconds: int
    bucket_s: int

    def since(self, now: datetime) -> datetime:
        """Return the start of the window, on a bucket's edge so that points do not wander on refresh."""
        start = (int(now.timestamp()) - self.seconds) // self.bucket_s * self.bucket_s
        return datetime.fromtimestamp(start, now.tzinfo)

    def buckets(self, now: datetime) -> list[datetime]:
        """Return the start of each bucket up to now."""
        start = self.since(now)
        number = int((now - start).total_seconds() // self.bucket_s) + 1
        return [start + timedelta(seconds=i * self.bucket_s) for i in range(number)]


WINDOWS: Final = (
    Window("15m", "15 min", "last 15 minutes", 900, 10),
    Window("1h", "1 hour", "last hour", 3600, 30),
    Window("6h", "6 hours", "last 6 hours", 21600, 180),
    Window("24h", "24 hours", "last 24 hours", 86400, 720),
    Window("7d", "7 days", "last 7 days", 604800, 5040),
)
DEFAULT: Final = WINDOWS[1]


def choose(key: str | None) -> Window:
    """Return the window of that key, the default for an unknown one: a stale link still shows its page."""
    return next((w for w in WINDOWS if w.key == key), DEFAULT)

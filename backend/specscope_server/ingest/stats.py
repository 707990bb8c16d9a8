"""What the receiver did since the server started, for ``/api/v1/status``."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from specscope_server.ingest.values import Tally

REPEAT: Final = timedelta(minutes=1)
"""How often the same reason is logged."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class IngestStats:
    """Counts by signal (``traces``, ``metrics``); ``refused`` counts whole requests by HTTP status."""

    accepted: Counter[str] = field(default_factory=Counter[str])
    foreign: Counter[str] = field(default_factory=Counter[str])
    rejected: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[int] = field(default_factory=Counter[int])
    last_reason: str = ""
    last_reason_at: datetime | None = None
    _logged_at: datetime | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, signal: str, tally: Tally) -> None:
        """Count the items of a decoded export; one of which nothing was taken is refused and noted there."""
        with self._lock:
            self.accepted[signal] += tally.accepted
            self.foreign[signal] += tally.foreign
            self.rejected[signal] += tally.rejected
            if tally.rejected and (tally.accepted or tally.foreign):
                self._note(f"rejected {tally.rejected} items of {signal}: {tally.explain()}")

    def refuse(self, status: int, message: str) -> None:
        """Count a refused request."""
        with self._lock:
            self.refused[status] += 1
            self._note(f"refused with {status}: {message}")

    def _note(self, reason: str) -> None:
        """Remember a reason, and log it unless it is the last one again: tracers export twice a second."""
        now = datetime.now(UTC)
        if reason != self.last_reason:
            self._logged_at = None
        if self._logged_at is None or now - self._logged_at > REPEAT:
            _log.warning("%s", reason)
            self._logged_at = now
        self.last_reason, self.last_reason_at = reason, now

"""What the receiver did since the server started, for ``/api/v1/status``."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from specscope_server.ingest.values import Tally


@dataclass(slots=True)
class IngestStats:
    """Counts by signal (``traces``, ``metrics``); ``refused`` counts whole requests by HTTP status."""

    accepted: Counter[str] = field(default_factory=Counter[str])
    foreign: Counter[str] = field(default_factory=Counter[str])
    rejected: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[int] = field(default_factory=Counter[int])
    last_reason: str = ""
    last_reason_at: datetime | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, signal: str, tally: Tally) -> None:
        """Count a stored export."""
        with self._lock:
            self.accepted[signal] += tally.accepted
            self.foreign[signal] += tally.foreign
            self.rejected[signal] += tally.rejected
            if tally.rejected:
                self._note(tally.explain())

    def refuse(self, status: int, message: str) -> None:
        """Count a refused request."""
        with self._lock:
            self.refused[status] += 1
            self._note(message)

    def _note(self, reason: str) -> None:
        self.last_reason, self.last_reason_at = reason, datetime.now(UTC)

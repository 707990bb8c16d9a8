"""The last reasons why something was not taken, in words, and how often each was given."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from specscope_server.ingest import workers

MOST: Final = 30
"""Different reasons kept; the one longest not given goes first."""
_PREFIX: Final = "specscope_notes_"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Note:
    """One reason: how often it was given since it was first remembered, and when last."""

    reason: str
    times: int
    last: datetime


class Notes:
    """The last reasons of this process; with several workers, also of the others. Thread-safe."""

    def __init__(self) -> None:
        """Start with none."""
        self._found: OrderedDict[str, tuple[int, datetime]] = OrderedDict()
        self._lock = threading.Lock()
        self._shared = workers.directory()

    def add(self, reason: str, now: datetime) -> None:
        """Remember a reason given ``now``."""
        with self._lock:
            times, _ = self._found.pop(reason, (0, now))
            self._found[reason] = times + 1, now
            if len(self._found) > MOST:
                self._found.popitem(last=False)
            if self._shared is not None:
                self._share(self._shared)

    def _share(self, directory: Path) -> None:
        """Write them where the other workers read them; a full disk there must not refuse an export."""
        told = [[reason, times, last.timestamp()] for reason, (times, last) in self._found.items()]
        written = directory / f"{_PREFIX}{os.getpid()}.tmp"
        try:
            written.write_text(json.dumps(told))
            written.replace(written.with_suffix(".json"))
        except OSError as error:
            _log.warning("the other workers do not hear why something was refused: %s", error)

    def recent(self) -> list[Note]:
        """Return them, the last one given first; of all workers."""
        with self._lock:
            found: dict[str, list[Any]] = {reason: list(entry) for reason, entry in self._found.items()}
        if self._shared is not None:
            for path in self._shared.glob(f"{_PREFIX}*.json"):
                if path.stem != f"{_PREFIX}{os.getpid()}":
                    _merge(found, path)
        notes = [Note(reason, times, last) for reason, (times, last) in found.items()]
        return sorted(notes, key=lambda note: note.last, reverse=True)[:MOST]


def _merge(found: dict[str, list[Any]], path: Path) -> None:
    """Add what another worker wrote; it may just be gone with its directory."""
    try:
        told = cast("list[tuple[str, int, float]]", json.loads(path.read_text()))
    except (OSError, ValueError):
        return
    for reason, times, last in told:
        at = datetime.fromtimestamp(last, UTC)
        known = found.setdefault(reason, [0, at])
        found[reason] = [known[0] + times, max(known[1], at)]

"""What engines were judged lately, for whoever asks for many at once.

An engine that told something new since is read and judged anew, also one that fell silent; of the others what
was found holds until something may have left the window: at most ten seconds, or a minute where only its
silence grows longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from specscope_server.alerts.known import OLD, Silence, every, light, silence_of
from specscope_server.diagnosis import Diagnosis, Evidence, diagnose
from specscope_server.store.model import EngineRow, Heard
from specscope_server.store.port import Reads

MOST: Final = 8192
"""Engines and windows that are remembered; each takes some kilobytes."""
_MARKED_S: Final = 900
Judged = tuple[Evidence | None, Diagnosis]


@dataclass(frozen=True, slots=True)
class _Kept:
    heard: Heard
    since: datetime
    """Marks of another time cannot be compared."""
    read: datetime
    every: timedelta | None
    silence: Silence
    evidence: Evidence
    said: Diagnosis


class Lately:
    """Of one server, by engine and window. Thread-safe: two who ask at once may both read."""

    def __init__(self) -> None:
        """Remember nothing."""
        self._kept: dict[tuple[str, float], _Kept] = {}

    def judged(
        self, reads: Reads, rows: Iterable[EngineRow], now: datetime, window_s: float
    ) -> Mapping[str, Judged]:
        """Return evidence and diagnosis of engines by uid; ``reads`` is the snapshot that ``rows`` are from.

        Of what is large the evidence has only ranks and reconciliation; its ``now`` is when it was read.
        """
        since = datetime.fromtimestamp(now.timestamp() // _MARKED_S * _MARKED_S - _MARKED_S, now.tzinfo)
        marked = {one.engine_uid: one for one in reads.heard(since)}
        found: dict[str, Judged] = {}
        for row in rows:
            # Of one that was not heard for a day nothing is marked: nothing but its age changes.
            silent = Heard(row.workspace, row.engine_uid, row.last_received, 0)
            heard = marked.get(row.engine_uid, silent)
            kept = self._kept.get((row.engine_uid, window_s))
            if kept is None or not _holds(kept, heard, since, now):
                kept = self._read(reads, heard, since, now, window_s)
            found[row.engine_uid] = (None, diagnose(None)) if kept is None else (kept.evidence, kept.said)
        return found

    def _read(
        self, reads: Reads, heard: Heard, since: datetime, now: datetime, window_s: float
    ) -> _Kept | None:
        evidence = reads.evidence(heard.workspace, heard.engine_uid, now, window_s)
        if evidence is None:
            return None
        said, silence = diagnose(evidence), silence_of(evidence, heard, now)
        small = replace(light(evidence), ranks=evidence.ranks, reconciliation=evidence.reconciliation)
        kept = _Kept(heard, since, now, every([evidence], any(silence)), silence, small, said)
        while len(self._kept) >= MOST:
            self._kept.pop(next(iter(self._kept)), None)
        self._kept.pop((heard.engine_uid, window_s), None)  # so that the oldest come first
        self._kept[heard.engine_uid, window_s] = kept
        return kept


def _holds(kept: _Kept, heard: Heard, since: datetime, now: datetime) -> bool:
    at_most = OLD if kept.every is None else kept.every
    return (
        kept.heard.told == heard.told
        and kept.heard.workspace == heard.workspace
        and kept.since == since
        and timedelta(0) <= now - kept.read < at_most
        and silence_of(kept.evidence, heard, now) == kept.silence
    )

"""What the receiver did since the server started: counted here, read by ``/metrics`` and the status pages.

The counters are prometheus-client's, in a registry of each server's own. With several workers they live in
files that :mod:`specscope_server.ingest.workers` lets them share, and whoever is asked adds all of them up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from google.rpc.code_pb2 import Code  # pyright: ignore[reportMissingTypeStubs] - it ships them beside itself
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from specscope.version import __version__

from specscope_server.ingest import reasons
from specscope_server.ingest.notes import Notes
from specscope_server.ingest.refusal import GRPC_CODES, RPC_CODES
from specscope_server.ingest.values import Tally
from specscope_server.store.port import Store
from specscope_server.store.told import Batch, Told

REPEAT: Final = timedelta(minutes=1)
"""How often the same reason is logged."""
SIGNALS: Final = ("traces", "metrics", "logs")
HTTP: Final = "http"
GRPC: Final = "grpc"
OTHER: Final = "other"

COMMIT_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Buckets of a commit: one disk sync is about 4 ms, a locked SQLite file gives up after 5 s."""
LAG_S: Final = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600, 86_400)
"""Buckets of the lag: a tracer sends twice a second, and keeps minutes while it cannot."""

_STATUSES: Final = frozenset((*map(str, RPC_CODES), *map(Code.Name, GRPC_CODES.values())))

_log = logging.getLogger(__name__)


class IngestStats:
    """Counters of one server process. Thread-safe."""

    def __init__(self) -> None:
        """Start from nothing."""
        self.registry = CollectorRegistry()
        self.notes = Notes()
        mine = self.registry
        self._exports = Counter(
            "specscope_ingest_exports",
            "Exports acknowledged, by protocol and signal.",
            ("protocol", "signal"),
            registry=mine,
        )
        self._bytes = Counter(
            "specscope_ingest_bytes",
            "Bytes of acknowledged exports as sent.",
            ("protocol", "signal"),
            registry=mine,
        )
        self._accepted = Counter(
            "specscope_ingest_accepted", "Spans, points and records stored.", ("signal",), registry=mine
        )
        self._foreign = Counter(
            "specscope_ingest_foreign",
            "Spans, points and records of other tools, taken without an error.",
            ("signal",),
            registry=mine,
        )
        self._rejected = Counter(
            "specscope_ingest_rejected",
            "Spans, points and records rejected alone, by class.",
            ("signal", "reason"),
            registry=mine,
        )
        self._refused = Counter(
            "specscope_ingest_refused",
            "Exports refused whole, by HTTP status or gRPC code.",
            ("protocol", "status"),
            registry=mine,
        )
        self._waiting = Gauge(
            "specscope_ingest_waiting_exports",
            "Exports waiting for their commit.",
            multiprocess_mode="livesum",
            registry=mine,
        )
        self._waiting_bytes = Gauge(
            "specscope_ingest_waiting_bytes",
            "Bytes of the exports waiting.",
            multiprocess_mode="livesum",
            registry=mine,
        )
        self._commit = Histogram(
            "specscope_ingest_commit_seconds",
            "Seconds from a decoded export to its commit.",
            buckets=COMMIT_S,
            registry=mine,
        )
        self._lag = Histogram(
            "specscope_ingest_lag_seconds",
            "Seconds from an export's newest event to its commit.",
            buckets=LAG_S,
            registry=mine,
        )
        self._ahead = Counter(
            "specscope_ingest_ahead", "Exports whose newest event is dated after their commit.", registry=mine
        )
        self._last = Gauge(
            "specscope_ingest_last_export_timestamp_seconds",
            "When the last export was committed; 0: none.",
            multiprocess_mode="max",
            registry=mine,
        )
        info = Gauge(
            "specscope_server_info",
            "The server's version.",
            ("version",),
            multiprocess_mode="max",
            registry=mine,
        )
        info.labels(__version__).set(1)
        started = Gauge(
            "specscope_server_start_time_seconds",
            "When the first worker started.",
            multiprocess_mode="min",
            registry=mine,
        )
        started.set(time.time())
        self._logged: tuple[str, datetime] | None = None
        self._lock = threading.Lock()

    def add(self, signal: str, tally: Tally, *, protocol: str = HTTP, size: int = 0) -> None:
        """Count a committed export of ``size`` bytes as sent, and its items.

        One of which nothing was taken is refused, counted as such, and no export here.
        """
        self._accepted.labels(signal).inc(tally.accepted)
        self._foreign.labels(signal).inc(tally.foreign)
        for reason, count in tally.reasons.items():
            self._rejected.labels(signal, reasons.class_of(reason)).inc(count)
        if tally.rejected and not (tally.accepted or tally.foreign):
            return
        self._exports.labels(protocol, signal).inc()
        self._bytes.labels(protocol, signal).inc(size)
        if tally.rejected:
            self._note(f"rejected {tally.rejected} items of {signal}: {tally.explain()}")

    def refuse(self, status: int | str, message: str, *, protocol: str = HTTP) -> None:
        """Count a refused export, by its HTTP status or the name of its gRPC code."""
        named = str(status)
        self._refused.labels(protocol, named if named in _STATUSES else OTHER).inc()
        self._note(f"refused with {named}: {message}")

    def waiting(self, exports: int, size: int) -> None:
        """Tell how many exports, and bytes of them, wait for their commit now."""
        self._waiting.set(exports)
        self._waiting_bytes.set(size)

    def commit(self, store: Store, batches: Sequence[Told], received: datetime) -> int:
        """Write to the store, and count how long that took and how far behind the newest event it is.

        Return how many spans and points were left out as too old.

        Raises:
            StoreError: as :meth:`Store.write`; then nothing is counted.
        """
        began = time.perf_counter()
        left_out = store.write(batches, received)
        self._commit.observe(time.perf_counter() - began)
        now = time.time()
        self._last.set(now)
        newest = max(_event_times(batches), default=None)
        if newest is None:
            return left_out
        lag = now - newest / 1e9
        if lag < 0:
            self._ahead.inc()
        else:
            self._lag.observe(lag)
        return left_out

    def _note(self, reason: str) -> None:
        """Remember a reason, and log it unless it is the last one again: tracers export twice a second."""
        now = datetime.now(UTC)
        with self._lock:
            self.notes.add(reason, now)
            if self._logged is not None and self._logged[0] == reason and now - self._logged[1] <= REPEAT:
                return
            self._logged = reason, now
        _log.warning("%s", reason)


def _event_times(batches: Sequence[Told]) -> Iterator[int]:
    """Return the times, ns since 1970, at which what is told had happened."""
    for batch in batches:
        if isinstance(batch, Batch):
            yield from (chunk.end_ns for chunk in batch.chunks)
            yield from (beat.event_ns for beat in batch.heartbeats)
            yield from (report.event_ns for report in batch.engines)
            yield from (report.event_ns for report in batch.ranks)
            yield from (request.end_ns for request in batch.requests if request.end_ns is not None)

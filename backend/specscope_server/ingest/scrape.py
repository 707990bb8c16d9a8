"""The ingest statistics as they are read: Prometheus text, or numbers for the API and the status page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Metric, multiprocess
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from specscope_server.ingest import workers
from specscope_server.ingest.notes import Note
from specscope_server.ingest.stats import IngestStats

_INGEST = "specscope_ingest_"


@dataclass(frozen=True, slots=True)
class Times:
    """A histogram of seconds: how many, their sum, and how many took at most so long (cumulative)."""

    count: int = 0
    total_s: float = 0.0
    within: Mapping[float, int] = field(default_factory=dict[float, int])

    def quantile(self, share: float) -> float | None:
        """Return the smallest bucket that holds this share: it took at most so long.

        ``None``: nothing was counted. Infinite: longer than the last bucket.
        """
        if not self.count:
            return None
        return next(bound for bound, count in sorted(self.within.items()) if count >= share * self.count)


@dataclass(frozen=True, slots=True)
class Ingest:
    """What all workers did since the first of them started. Counters are by signal unless told otherwise.

    ``rejected`` is by (signal, class of reason), ``refused`` by (protocol, status). ``last_export`` is
    ``None`` where nothing was ever committed.
    """

    started: datetime
    exports: Mapping[str, int]
    bytes: Mapping[str, int]
    accepted: Mapping[str, int]
    foreign: Mapping[str, int]
    rejected: Mapping[tuple[str, str], int]
    refused: Mapping[tuple[str, str], int]
    waiting: int
    waiting_bytes: int
    commit: Times
    lag: Times
    ahead: int
    last_export: datetime | None
    notes: tuple[Note, ...]

    def rejected_of(self, signal: str) -> dict[str, int]:
        """Return rejections of a signal by class of reason."""
        return {reason: count for (of, reason), count in sorted(self.rejected.items()) if of == signal}


def _registry(stats: IngestStats) -> CollectorRegistry:
    directory = workers.directory()
    if directory is None:
        return stats.registry
    workers.forget_dead(directory)
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, str(directory))
    return registry


class _Together(Collector):
    """Several collectors as one: those of the database are no worker's own and in no shared file."""

    def __init__(self, *parts: Collector) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        for part in self._parts:
            yield from part.collect()


def exposition(stats: IngestStats, accept: str, *more: Collector) -> tuple[bytes, str]:
    """Return all metrics, and those of ``more``, as (body, content type), in the format of ``accept``."""
    encode, content_type = choose_encoder(accept)
    together = CollectorRegistry()
    together.register(_Together(_registry(stats), *more))
    return encode(together), content_type


def without_reasons(told: Ingest) -> Ingest:
    """Leave out why things were not taken: that may quote what other workspaces sent."""
    return replace(told, notes=())


def read(stats: IngestStats) -> Ingest:
    """Return the numbers as of now."""
    sums: dict[str, dict[tuple[str, ...], float]] = {}
    for family in _registry(stats).collect():
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                sums.setdefault(sample.name, {})[labels] = sample.value
    last = _one(sums, f"{_INGEST}last_export_timestamp_seconds")
    return Ingest(
        started=datetime.fromtimestamp(_one(sums, "specscope_server_start_time_seconds"), UTC),
        exports=_by(sums, "exports_total", 1),
        bytes=_by(sums, "bytes_total", 1),
        accepted=_by(sums, "accepted_total", 0),
        foreign=_by(sums, "foreign_total", 0),
        rejected={(of, why): count for (why, of), count in _pairs(sums, "rejected_total")},
        refused=dict(_pairs(sums, "refused_total")),
        waiting=int(_one(sums, f"{_INGEST}waiting_exports")),
        waiting_bytes=int(_one(sums, f"{_INGEST}waiting_bytes")),
        commit=_times(sums, "commit_seconds"),
        lag=_times(sums, "lag_seconds"),
        ahead=int(_one(sums, f"{_INGEST}ahead_total")),
        last_export=datetime.fromtimestamp(last, UTC) if last else None,
        notes=tuple(stats.notes.recent()),
    )


_Sums = Mapping[str, Mapping[tuple[str, ...], float]]


def _one(sums: _Sums, name: str) -> float:
    return sum(sums.get(name, {}).values())


def _by(sums: _Sums, name: str, label: int) -> dict[str, int]:
    """Return a counter by its ``label``-th label in order of their names, over the others."""
    found: Counter[str] = Counter()
    for labels, value in sums.get(_INGEST + name, {}).items():
        found[labels[label]] += int(value)
    return dict(sorted(found.items()))


def _pairs(sums: _Sums, name: str) -> Iterator[tuple[tuple[str, str], int]]:
    for (first, second), value in sums.get(_INGEST + name, {}).items():
        yield (first, second), int(value)


def _times(sums: _Sums, name: str) -> Times:
    within = sums.get(f"{_INGEST}{name}_bucket", {})
    return Times(
        count=int(_one(sums, f"{_INGEST}{name}_count")),
        total_s=_one(sums, f"{_INGEST}{name}_sum"),
        within={float(le): int(value) for (le,), value in within.items()},
    )

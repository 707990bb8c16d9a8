"""What is found and what fires, for those who alert in Prometheus: read from the database at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from specscope_server.store.port import Reads, Store

_OF: Final = ("workspace", "engine_uid", "engine")


class AlertMetrics(Collector):
    """Gauges of findings, alerts and notifications; what is absent does not hold, or nobody looked."""

    def __init__(self, store: Store, sees: Callable[[str], bool] = lambda _workspace: True) -> None:
        """Read from ``store`` of the workspaces that whoever asks ``sees``."""
        self._store, self._sees = store, sees

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges as of one moment.

        Raises:
            StoreError: the database cannot be read.
        """
        with self._store.snapshot() as reads:
            known = {"default"} | {workspace for workspace, _ in reads.engine_uids()}
            workspaces = sorted(filter(self._sees, known))
            yield _findings(reads, workspaces)
            yield from _alerts(reads, workspaces)
            yield _deliveries(reads, workspaces)


def _findings(reads: Reads, workspaces: list[str]) -> Metric:
    labels = (*_OF, "kind", "fault_class", "severity", "confidence")
    family = GaugeMetricFamily("specscope_finding", "1 while a finding holds on an engine.", labels=labels)
    for workspace in workspaces:
        # A kind may hold at several boundaries of one engine, which is one series.
        for told in sorted(
            {
                (workspace, f.engine_uid, f.engine, f.kind, f.fault_class, f.severity, f.confidence)
                for f in reads.findings(workspace)
            }
        ):
            family.add_metric(told, 1)
    return family


def _alerts(reads: Reads, workspaces: list[str]) -> Iterator[Metric]:
    firing = GaugeMetricFamily(
        "specscope_alert_firing",
        "1 while a rule fires on an engine; quiet=1 where nobody is told.",
        labels=(*_OF, "rule", "severity", "quiet"),
    )
    states = GaugeMetricFamily(
        "specscope_alerts", "Rules on engines by state.", labels=("workspace", "rule", "state")
    )
    evaluated = GaugeMetricFamily(
        "specscope_alerts_evaluated_timestamp_seconds",
        "When rules were last evaluated on any engine of a workspace.",
        labels=("workspace",),
    )
    oldest = GaugeMetricFamily(
        "specscope_alerts_oldest_evaluation_timestamp_seconds",
        "When the engine was evaluated that has waited longest of those heard within a day.",
        labels=("workspace",),
    )
    heard = {uid for _, uid in reads.engine_uids()}
    for workspace in workspaces:
        rows = reads.alerts(workspace)
        for row in rows:
            if row.state == "firing":
                told = (workspace, row.engine_uid, row.engine, row.rule, row.severity)
                firing.add_metric((*told, "1" if row.quiet else "0"), 1)
        for (rule, state), count in sorted(Counter((row.rule, row.state) for row in rows).items()):
            states.add_metric((workspace, rule, state), count)
        if rows:
            evaluated.add_metric((workspace,), max(row.evaluated for row in rows).timestamp())
        last: dict[str, float] = {}
        for row in rows:
            # Of a rule that there is no more the state stays as it was.
            last[row.engine_uid] = max(last.get(row.engine_uid, 0.0), row.evaluated.timestamp())
        waiting = [at for uid, at in last.items() if uid in heard]
        if waiting:
            oldest.add_metric((workspace,), min(waiting))
    yield from (firing, states, evaluated, oldest)


def _deliveries(reads: Reads, workspaces: list[str]) -> Metric:
    family = GaugeMetricFamily(
        "specscope_notifications",
        "Notifications among the newest 1000 of a workspace, by what became of them.",
        labels=("workspace", "status"),
    )
    for workspace in workspaces:
        counted = Counter(row.status for row in reads.deliveries(workspace, 1000))
        for status in ("pending", "delivered", "failed"):
            family.add_metric((workspace, status), counted[status])
    return family

"""The SQL adapter: the port's methods, each a transaction around one module's function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from specscope_server.diagnosis.model import Evidence, Finding
from specscope_server.store import alerts as alerting
from specscope_server.store import findings as found
from specscope_server.store.database import Database
from specscope_server.store.evidence import evidence
from specscope_server.store.model import (
    AlertRow,
    DeliveryRow,
    EngineRow,
    FindingRow,
    Page,
    RequestDetail,
    RequestFilter,
    SeriesPoint,
    Told,
)
from specscope_server.store.port import Capabilities, NewDelivery
from specscope_server.store.read_detail import detail
from specscope_server.store.read_engines import engines, heard_since, models
from specscope_server.store.read_requests import page
from specscope_server.store.read_rollups import series
from specscope_server.store.rows import rows_of
from specscope_server.store.values import to_ns
from specscope_server.store.write import write

_DAY_NS = 86_400 * 1_000_000_000


class SqlStore:
    """A :class:`specscope_server.store.port.Store` on a SQL database."""

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        """Serve a database whose schema is up to date; ``clock`` tells ns since 1970."""
        self._database, self._clock = database, clock

    @property
    def capabilities(self) -> Capabilities:
        """Say what the database can do."""
        return self._database.capabilities

    def close(self) -> None:
        """Release connections; idempotent."""
        self._database.close()

    def write(self, batches: Sequence[Told], received: datetime) -> None:
        """See the port."""
        rows = rows_of(batches, to_ns(received))
        self._database.write(lambda connection: write(connection, rows))

    def replace_findings(self, engine_uid: str, findings: Sequence[Finding], at: datetime) -> None:
        """See the port."""
        at_ns = to_ns(at)
        self._database.write(lambda connection: found.replace(connection, engine_uid, findings, at_ns))

    def set_alerts(self, alerts: Sequence[AlertRow], deliveries: Sequence[NewDelivery]) -> None:
        """See the port."""
        now_ns = self._clock()
        self._database.write(lambda connection: alerting.set_states(connection, alerts, deliveries, now_ns))

    def due_deliveries(self, now: datetime, limit: int) -> list[DeliveryRow]:
        """See the port."""
        with self._database.read() as connection:
            return alerting.due(connection, to_ns(now), limit)

    def settle_delivery(self, delivery_id: int, *, error: str, next_attempt: datetime | None) -> None:
        """See the port."""
        next_ns = None if next_attempt is None else to_ns(next_attempt)
        self._database.write(lambda connection: alerting.settle(connection, delivery_id, error, next_ns))

    def engines(self, workspace: str, since: datetime) -> list[EngineRow]:
        """See the port."""
        with self._database.read() as connection:
            return engines(connection, workspace, to_ns(since))

    def engine(self, workspace: str, engine_uid: str, since: datetime) -> EngineRow | None:
        """See the port."""
        with self._database.read() as connection:
            return next(iter(engines(connection, workspace, to_ns(since), engine_uid)), None)

    def series(
        self, workspace: str, engine_uid: str | None, since: datetime, until: datetime, bucket_s: int
    ) -> list[SeriesPoint]:
        """See the port."""
        window = to_ns(since) // 1_000_000_000, to_ns(until) // 1_000_000_000
        with self._database.read() as connection:
            return series(connection, workspace, engine_uid, *window, bucket_s)

    def requests(self, where: RequestFilter, limit: int, cursor: str | None = None) -> Page:
        """See the port."""
        with self._database.read() as connection:
            return page(connection, where, limit, cursor, self._clock())

    def request(
        self, workspace: str, uid: str, first_step: int = 0, limit: int = 2000
    ) -> RequestDetail | None:
        """See the port."""
        with self._database.read() as connection:
            return detail(connection, workspace, uid, first_step, limit, self._clock())

    def models(self, workspace: str) -> list[str]:
        """See the port."""
        with self._database.read() as connection:
            return models(connection, workspace)

    def evidence(self, engine_uid: str, now: datetime, window_s: float) -> Evidence | None:
        """See the port."""
        with self._database.read() as connection:
            return evidence(connection, engine_uid, to_ns(now), round(window_s * 1e9))

    def engine_uids(self) -> list[tuple[str, str]]:
        """See the port."""
        with self._database.read() as connection:
            return heard_since(connection, self._clock() - _DAY_NS)

    def findings(
        self, workspace: str, engine_uid: str | None = None, active: bool = True
    ) -> list[FindingRow]:
        """See the port."""
        with self._database.read() as connection:
            return found.read(connection, workspace, engine_uid, active)

    def alerts(self, workspace: str) -> list[AlertRow]:
        """See the port."""
        with self._database.read() as connection:
            return alerting.states(connection, workspace)

    def alert_history(self, workspace: str, limit: int) -> list[AlertRow]:
        """See the port."""
        with self._database.read() as connection:
            return alerting.history(connection, workspace, limit)

    def deliveries(self, workspace: str, limit: int) -> list[DeliveryRow]:
        """See the port."""
        with self._database.read() as connection:
            return alerting.deliveries(connection, workspace, limit)

"""The port's reads, on a connection of their own each or all on that of one snapshot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime

from sqlalchemy import Connection

from specscope_server.diagnosis.model import Evidence
from specscope_server.store import alerts as alerting
from specscope_server.store import findings as found
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
)
from specscope_server.store.read_detail import detail
from specscope_server.store.read_engines import engines, heard_since, models
from specscope_server.store.read_requests import page
from specscope_server.store.read_rollups import series
from specscope_server.store.values import to_ns

_DAY_NS = 86_400 * 1_000_000_000


class SqlReads:
    """The :class:`specscope_server.store.port.Reads` of a SQL database."""

    def __init__(
        self, connect: Callable[[], AbstractContextManager[Connection]], clock: Callable[[], int]
    ) -> None:
        """Read on what ``connect`` opens, once a read; ``clock`` tells ns since 1970."""
        self._connect, self._clock = connect, clock

    def engines(self, workspace: str, since: datetime) -> list[EngineRow]:
        """See the port."""
        with self._connect() as connection:
            return engines(connection, workspace, to_ns(since))

    def engine(self, workspace: str, engine_uid: str, since: datetime) -> EngineRow | None:
        """See the port."""
        with self._connect() as connection:
            return next(iter(engines(connection, workspace, to_ns(since), engine_uid)), None)

    def series(
        self, workspace: str, engine_uid: str | None, since: datetime, until: datetime, bucket_s: int
    ) -> list[SeriesPoint]:
        """See the port."""
        window = to_ns(since) // 1_000_000_000, to_ns(until) // 1_000_000_000
        with self._connect() as connection:
            return series(connection, workspace, engine_uid, *window, bucket_s)

    def requests(self, where: RequestFilter, limit: int, cursor: str | None = None) -> Page:
        """See the port."""
        with self._connect() as connection:
            return page(connection, where, limit, cursor, self._clock())

    def request(
        self, workspace: str, uid: str, first_step: int = 0, limit: int = 2000
    ) -> RequestDetail | None:
        """See the port."""
        with self._connect() as connection:
            return detail(connection, workspace, uid, first_step, limit, self._clock())

    def models(self, workspace: str) -> list[str]:
        """See the port."""
        with self._connect() as connection:
            return models(connection, workspace)

    def evidence(self, engine_uid: str, now: datetime, window_s: float) -> Evidence | None:
        """See the port."""
        with self._connect() as connection:
            return evidence(connection, engine_uid, to_ns(now), round(window_s * 1e9))

    def engine_uids(self) -> list[tuple[str, str]]:
        """See the port."""
        with self._connect() as connection:
            return heard_since(connection, self._clock() - _DAY_NS)

    def findings(
        self, workspace: str, engine_uid: str | None = None, active: bool = True
    ) -> list[FindingRow]:
        """See the port."""
        with self._connect() as connection:
            return found.read(connection, workspace, engine_uid, active)

    def alerts(self, workspace: str) -> list[AlertRow]:
        """See the port."""
        with self._connect() as connection:
            return alerting.states(connection, workspace)

    def alert_history(self, workspace: str, limit: int) -> list[AlertRow]:
        """See the port."""
        with self._connect() as connection:
            return alerting.history(connection, workspace, limit)

    def deliveries(self, workspace: str, limit: int) -> list[DeliveryRow]:
        """See the port."""
        with self._connect() as connection:
            return alerting.deliveries(connection, workspace, limit)

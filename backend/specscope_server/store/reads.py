"""The port's reads, on a connection of their own each or all on that of one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

from specscope import hidden_rollup
from specscope.reference_file import Stored
from specscope.rollup import Counts
from sqlalchemy import Connection

from specscope_server.diagnosis.engine_evidence import Moment, Referred
from specscope_server.diagnosis.model import Evidence
from specscope_server.store import alert_rules as rules
from specscope_server.store import alerts as alerting
from specscope_server.store import expectations, hidden_sums, references, tokenizers
from specscope_server.store import findings as found
from specscope_server.store.evidence import evidence
from specscope_server.store.histories import Histories
from specscope_server.store.holdings import holdings
from specscope_server.store.model import (
    AlertEvent,
    AlertRow,
    AlertSubject,
    DeliveryRow,
    EngineRow,
    ExpectationRow,
    FindingRow,
    Heard,
    HiddenPoint,
    Holdings,
    Page,
    ReferenceRow,
    ReferenceSequence,
    RequestDetail,
    RequestFilter,
    RequestHidden,
    RuleRow,
    SeriesPoint,
    SilenceRow,
    TokenizerRow,
)
from specscope_server.store.news import heard
from specscope_server.store.opened import Opened
from specscope_server.store.read_detail import detail
from specscope_server.store.read_engines import engines, heard_since, models
from specscope_server.store.read_hidden import request_hidden
from specscope_server.store.read_requests import page
from specscope_server.store.read_rollups import series, sliced, window_sums
from specscope_server.store.reference_evidence import ReferenceEvidences
from specscope_server.store.sizes import used_bytes
from specscope_server.store.sliced import Sliced
from specscope_server.store.values import to_ns

_SECOND_NS = 1_000_000_000
_DAY_NS = 86_400 * _SECOND_NS


def _seconds(since: datetime, until: datetime) -> tuple[int, int]:
    return to_ns(since) // _SECOND_NS, to_ns(until) // _SECOND_NS


class SqlReads:
    """The :class:`specscope_server.store.port.Reads` of a SQL database."""

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Connection]],
        clock: Callable[[], int],
        opened: Callable[[], Opened] = Opened,
        compared: ReferenceEvidences | None = None,
        histories: Histories | None = None,
    ) -> None:
        """Read on what ``connect`` opens, once a read; ``clock`` tells ns since 1970.

        ``opened`` gives what a read may find opened already, ``compared`` what was held against references,
        ``histories`` the minutes of engines as they were read before.
        """
        self._connect, self._clock, self._opened = connect, clock, opened
        self._compared = ReferenceEvidences() if compared is None else compared
        self._histories = Histories() if histories is None else histories

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
        with self._connect() as connection:
            return series(connection, workspace, engine_uid, *_seconds(since, until), bucket_s)

    def sliced(
        self,
        workspace: str,
        engine_uid: str | None,
        since: datetime,
        until: datetime,
        bucket_s: int,
        dimension: str,
        value: str | None = None,
        position: int | None = None,
    ) -> Sliced:
        """See the port."""
        with self._connect() as connection:
            window = _seconds(since, until)
            return sliced(connection, workspace, engine_uid, *window, bucket_s, dimension, value, position)

    def requests(self, where: RequestFilter, limit: int, cursor: str | None = None) -> Page:
        """See the port."""
        with self._connect() as connection:
            return page(connection, where, limit, cursor, self._clock())

    def request(
        self, workspace: str, uid: str, first_step: int = 0, limit: int = 2000
    ) -> RequestDetail | None:
        """See the port."""
        with self._connect() as connection:
            return detail(connection, workspace, uid, first_step, limit, self._clock(), self._opened())

    def counts(self, workspace: str, engine_uid: str, since: datetime, until: datetime) -> Counts | None:
        """See the port."""
        with self._connect() as connection:
            if not hidden_sums.is_of(connection, workspace, engine_uid):
                return None
            found = window_sums(connection, [engine_uid], *_seconds(since, until)).get(engine_uid)
            return None if found is None else found.counts

    def hidden(
        self, workspace: str, uid: str, first_step: int = 0, steps: int = 200, limit: int = 2000
    ) -> RequestHidden | None:
        """See the port."""
        with self._connect() as connection:
            window = (first_step, steps, limit)
            return request_hidden(connection, workspace, uid, *window, self._clock(), self._opened())

    def hidden_stats(
        self, workspace: str, engine_uid: str, since: datetime, until: datetime
    ) -> dict[hidden_rollup.Key, hidden_rollup.Sums]:
        """See the port."""
        with self._connect() as connection:
            return hidden_sums.stats(connection, workspace, engine_uid, *_seconds(since, until))

    def hidden_series(
        self, workspace: str, engine_uid: str, since: datetime, until: datetime, bucket_s: int
    ) -> list[HiddenPoint]:
        """See the port."""
        with self._connect() as connection:
            return hidden_sums.series(connection, workspace, engine_uid, *_seconds(since, until), bucket_s)

    def holdings(self, workspace: str) -> Holdings:
        """See the port."""
        with self._connect() as connection:
            return holdings(connection, workspace)

    def used_bytes(self) -> int:
        """See the port."""
        with self._connect() as connection:
            return used_bytes(connection)

    def models(self, workspace: str) -> list[str]:
        """See the port."""
        with self._connect() as connection:
            return models(connection, workspace)

    def evidence(self, workspace: str, engine_uid: str, now: datetime, window_s: float) -> Evidence | None:
        """See the port."""
        with self._connect() as connection:
            now_ns, window_ns = to_ns(now), round(window_s * 1e9)
            here = SqlReads(lambda: nullcontext(connection), self._clock, self._opened, self._compared)

            def referred(start_ns: int) -> Referred:
                window = start_ns, window_ns, now_ns
                return self._compared.of(connection, here, workspace, engine_uid, window)

            def past(now_s: int) -> tuple[Moment, ...]:
                return self._histories.of(connection, engine_uid, now_s)

            return evidence(connection, workspace, engine_uid, now_ns, window_ns, referred, past)

    def engine_uids(self) -> list[tuple[str, str]]:
        """See the port."""
        with self._connect() as connection:
            return heard_since(connection, self._clock() - _DAY_NS)

    def heard(self, since: datetime) -> list[Heard]:
        """See the port."""
        with self._connect() as connection:
            return heard(connection, self._clock() - _DAY_NS, to_ns(since))

    def references(self, workspace: str) -> list[ReferenceRow]:
        """See the port."""
        with self._connect() as connection:
            return references.listed(connection, workspace)

    def reference(self, workspace: str, reference_uid: str) -> ReferenceRow | None:
        """See the port."""
        with self._connect() as connection:
            return next(iter(references.listed(connection, workspace, reference_uid)), None)

    def reference_sequences(self, workspace: str, reference_uid: str) -> list[ReferenceSequence]:
        """See the port."""
        with self._connect() as connection:
            return references.sequences(connection, workspace, reference_uid)

    def reference_numbers(self, workspace: str, reference_uid: str, number: int) -> Stored | None:
        """See the port."""
        with self._connect() as connection:
            return references.sequence(connection, workspace, reference_uid, number)

    def tokenizers(self, workspace: str) -> list[TokenizerRow]:
        """See the port."""
        with self._connect() as connection:
            return tokenizers.listed(connection, workspace)

    def vocabulary(self, workspace: str, tokenizer_hash: str) -> bytes | None:
        """See the port."""
        with self._connect() as connection:
            return tokenizers.vocabulary(connection, workspace, tokenizer_hash)

    def engine_tokenizer(self, workspace: str, engine_uid: str) -> str:
        """See the port."""
        with self._connect() as connection:
            return tokenizers.of_engine(connection, workspace, engine_uid)

    def expectations(self, workspace: str) -> list[ExpectationRow]:
        """See the port."""
        with self._connect() as connection:
            return expectations.listed(connection, workspace)

    def findings(
        self, workspace: str, engine_uid: str | None = None, active: bool = True
    ) -> list[FindingRow]:
        """See the port."""
        with self._connect() as connection:
            return found.read(connection, workspace, engine_uid, active)

    def alerts(self, workspace: str, engine_uids: Sequence[str] | None = None) -> list[AlertRow]:
        """See the port."""
        with self._connect() as connection:
            return alerting.states(connection, workspace, engine_uids)

    def alerted(self, workspace: str) -> list[str]:
        """See the port."""
        with self._connect() as connection:
            return alerting.alerted(connection, workspace)

    def alert_history(self, workspace: str, limit: int) -> list[AlertEvent]:
        """See the port."""
        with self._connect() as connection:
            return alerting.history(connection, workspace, limit)

    def alert_event(self, workspace: str, event_id: int) -> AlertEvent | None:
        """See the port."""
        with self._connect() as connection:
            return alerting.event(connection, workspace, event_id)

    def alert_rules(self, workspace: str) -> list[RuleRow]:
        """See the port."""
        with self._connect() as connection:
            return rules.rules(connection, workspace)

    def alert_subjects(self, workspace: str) -> list[AlertSubject]:
        """See the port."""
        now_ns = self._clock()
        with self._connect() as connection:
            return rules.subjects(connection, workspace, now_ns - _DAY_NS, now_ns)

    def silences(self, workspace: str) -> list[SilenceRow]:
        """See the port."""
        with self._connect() as connection:
            return rules.silences(connection, workspace)

    def deliveries(self, workspace: str, limit: int) -> list[DeliveryRow]:
        """See the port."""
        with self._connect() as connection:
            return alerting.deliveries(connection, workspace, limit)

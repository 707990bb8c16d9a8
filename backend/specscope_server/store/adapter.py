"""The SQL adapter: the port's methods, each a transaction around one module's function."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import Any

from specscope.reference_file import Facts, Stored
from sqlalchemy import Connection

from specscope_server.diagnosis.model import Finding
from specscope_server.store import alert_rules as rules
from specscope_server.store import alerts as alerting
from specscope_server.store import expectations as expected
from specscope_server.store import findings as found
from specscope_server.store import forget, references, tokenizers
from specscope_server.store.accounts import Accounts
from specscope_server.store.database import Database
from specscope_server.store.housekeeping import Housekeeping
from specscope_server.store.keep import NOTHING_GOES, Keep
from specscope_server.store.model import (
    AlertRow,
    DeliveryRow,
    ExpectationRow,
    ExpectationScope,
    SilenceRow,
    TokenizerRow,
)
from specscope_server.store.opened import Opened
from specscope_server.store.port import Capabilities, Lease, NewDelivery, Pruned
from specscope_server.store.reads import SqlReads
from specscope_server.store.rows import rows_of
from specscope_server.store.told import Told
from specscope_server.store.values import to_ns
from specscope_server.store.write import Writing


class SqlStore(SqlReads):
    """A :class:`specscope_server.store.port.Store` on a SQL database."""

    def __init__(self, database: Database, clock: Callable[[], int], keep: Keep = NOTHING_GOES) -> None:
        """Serve a database whose schema is up to date; ``clock`` tells ns since 1970."""
        super().__init__(database.read, clock)
        self._database = database
        self._housekeeping = Housekeeping(database, keep)
        self._accounts = Accounts(database)

    @property
    def capabilities(self) -> Capabilities:
        """Say what the database can do."""
        return self._database.capabilities

    @property
    def accounts(self) -> Accounts:
        """See the port."""
        return self._accounts

    @property
    def keep(self) -> Keep:
        """See the port."""
        return self._housekeeping.keep

    def close(self) -> None:
        """Release connections; idempotent."""
        self._database.close()

    def lease(self, name: str) -> Lease:
        """See the port."""
        return self._database.lease(name)

    def prune(self, now: datetime) -> Iterator[Pruned]:
        """See the port."""
        return self._housekeeping.prune(now)

    def would_prune(self, now: datetime) -> Mapping[str, int]:
        """See the port."""
        return self._housekeeping.would_prune(now)

    def shrink(self, now: datetime) -> Iterator[Pruned]:
        """See the port."""
        return self._housekeeping.shrink(now)

    def write(self, batches: Sequence[Told], received: datetime) -> int:
        """See the port."""
        rows = rows_of(batches, to_ns(received), self.keep.oldest(received))
        self._database.write(Writing(rows))
        return rows.too_old

    def replace_findings(self, engine_uid: str, findings: Sequence[Finding], at: datetime) -> None:
        """See the port."""
        at_ns = to_ns(at)
        self._database.write(lambda connection: found.replace(connection, engine_uid, findings, at_ns))

    def set_alerts(
        self,
        alerts: Sequence[AlertRow],
        deliveries: Sequence[NewDelivery],
        evidence: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
    ) -> None:
        """See the port."""
        given = (alerts, deliveries, self._clock(), evidence or {})
        self._database.write(lambda connection: alerting.set_states(connection, *given))

    def acknowledge(
        self, workspace: str, engine_uid: str, rule: str, by: str, note: str, at: datetime
    ) -> bool:
        """See the port."""
        given = (workspace, engine_uid, rule, by, note, to_ns(at))
        return self._done(lambda connection: alerting.acknowledge(connection, *given))

    def set_rule(self, workspace: str, name: str, body: Mapping[str, Any], at: datetime) -> None:
        """See the port."""
        at_ns = to_ns(at)
        self._database.write(lambda connection: rules.set_rule(connection, workspace, name, body, at_ns))

    def delete_rule(self, workspace: str, name: str) -> bool:
        """See the port."""
        return self._done(lambda connection: rules.delete_rule(connection, workspace, name))

    def add_silence(self, workspace: str, silence: SilenceRow) -> None:
        """See the port."""
        self._database.write(lambda connection: rules.add_silence(connection, workspace, silence))

    def end_silence(self, workspace: str, silence_uid: str, at: datetime) -> bool:
        """See the port."""
        at_ns = to_ns(at)
        return self._done(lambda connection: rules.end_silence(connection, workspace, silence_uid, at_ns))

    def send_again(self, workspace: str, delivery_id: int) -> bool:
        """See the port."""
        now_ns = self._clock()
        return self._done(lambda connection: alerting.send_again(connection, workspace, delivery_id, now_ns))

    def _done(self, change: Callable[[Connection], bool]) -> bool:
        """Write, and return what the change says of itself."""
        done = False

        def job(connection: Connection) -> None:
            nonlocal done
            done = change(connection)

        self._database.write(job)
        return done

    def due_deliveries(self, now: datetime, limit: int) -> list[DeliveryRow]:
        """See the port."""
        with self._database.read() as connection:
            return alerting.due(connection, to_ns(now), limit)

    def settle_delivery(self, delivery_id: int, *, error: str, next_attempt: datetime | None) -> None:
        """See the port."""
        next_ns = None if next_attempt is None else to_ns(next_attempt)
        self._database.write(lambda connection: alerting.settle(connection, delivery_id, error, next_ns))

    def add_reference(
        self,
        workspace: str,
        reference_uid: str,
        facts: Facts,
        sequences: Sequence[Stored],
        size: int,
        at: datetime,
    ) -> None:
        """See the port."""
        given = (workspace, reference_uid, facts, sequences, size, to_ns(at))
        self._database.write(lambda connection: references.add(connection, *given))

    def delete_reference(self, workspace: str, reference_uid: str) -> bool:
        """See the port."""
        found = False

        def job(connection: Connection) -> None:
            nonlocal found
            found = references.remove(connection, workspace, reference_uid)

        self._database.write(job)
        return found

    def add_tokenizer(self, workspace: str, tokenizer: TokenizerRow, vocabulary: bytes) -> None:
        """See the port."""
        self._database.write(lambda connection: tokenizers.add(connection, workspace, tokenizer, vocabulary))

    def delete_tokenizer(self, workspace: str, tokenizer_hash: str) -> bool:
        """See the port."""
        return self._done(lambda connection: tokenizers.remove(connection, workspace, tokenizer_hash))

    def delete_request(self, workspace: str, uid: str) -> bool:
        """See the port."""
        return self._done(lambda connection: forget.request(connection, workspace, uid))

    def set_expectation(self, workspace: str, expectation: ExpectationRow) -> None:
        """See the port."""
        self._database.write(lambda connection: expected.say(connection, workspace, expectation))

    def clear_expectations(self, workspace: str, scope: ExpectationScope, source: str | None = None) -> int:
        """See the port."""
        cleared = 0

        def job(connection: Connection) -> None:
            nonlocal cleared
            cleared = expected.clear(connection, workspace, scope, source)

        self._database.write(job)
        return cleared

    @contextmanager
    def snapshot(self) -> Generator[SqlReads]:
        """See the port."""
        with self._database.read() as connection:
            opened = Opened()
            kept = self._compared, self._histories
            yield SqlReads(lambda: nullcontext(connection), self._clock, lambda: opened, *kept)

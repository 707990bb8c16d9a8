"""The store's one port. Every adapter MUST pass ``tests/store``, whatever its database.

All methods are synchronous and thread-safe; the web layer calls them in worker threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from specscope import hidden_rollup
from specscope.reference_file import Facts, Stored
from specscope.rollup import Counts

from specscope_server.diagnosis.model import Evidence, Finding
from specscope_server.store.keep import Keep
from specscope_server.store.model import (
    AlertEvent,
    AlertRow,
    AlertSubject,
    DeliveryRow,
    EngineRow,
    ExpectationRow,
    ExpectationScope,
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
from specscope_server.store.sliced import Sliced
from specscope_server.store.told import Told

if TYPE_CHECKING:
    from specscope_server.store.accounts import Accounts


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an adapter can do; the zero value is least capable."""

    several_servers: bool = False
    """Servers on several machines may share the database."""
    durable_commit: bool = False
    """What was acknowledged survives a loss of power."""
    bulk_copy: bool = False
    """Rows come in by bulk copy."""
    partitions: bool = False
    """Old chunks go a day at a time, at no cost by the row."""
    size_known: bool = False
    """It can tell its size, so a size cap holds."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one step of housekeeping deleted: rows of a table or (about so many) a whole partition."""

    table: str
    rows: int


class Lease(Protocol):
    """What one server at a time holds. It is lost when its process or its connection ends."""

    def hold(self) -> bool:
        """Take it, or make sure that it is still held; say whether it is. Never waits for another holder.

        Raises:
            Unavailable: it cannot be told, so it is not held.
        """
        ...

    def release(self) -> None:
        """Let another have it; idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """A notification to queue, in the same transaction as the state change that causes it."""

    rule: str
    engine_uid: str
    state: str
    target: str
    payload: Mapping[str, Any]


class StoreError(Exception):
    """The database cannot serve; the message says what, where and what to do."""


class Unavailable(StoreError):
    """The database cannot take writes now (locked, away, disk full); retrying may help."""


class Refused(StoreError):
    """The batch cannot be stored (a number out of range, an engine unknown); repeating it will not help."""


class Reads(Protocol):
    """Reads, each bound to a workspace or an engine. What is told together MUST be read from one snapshot."""

    def engines(self, workspace: str, since: datetime) -> list[EngineRow]:
        """Return every engine of the workspace, with counts over rollups from ``since`` on."""
        ...

    def engine(self, workspace: str, engine_uid: str, since: datetime) -> EngineRow | None:
        """Return one engine, ``None`` when the workspace has none of that id."""
        ...

    def series(
        self, workspace: str, engine_uid: str | None, since: datetime, until: datetime, bucket_s: int
    ) -> list[SeriesPoint]:
        """Return acceptance over time (dimension ``all``); gaps stay gaps.

        Raises:
            ValueError: ``bucket_s`` is not a positive multiple of 10.
        """
        ...

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
        """Return acceptance over time by slice of a dimension of :data:`sliced.SLICES`; gaps stay gaps.

        Of the slice ``value`` alone, if told; else of the :data:`sliced.MOST` with most steps. Of the draft
        positions that of ``position`` (from 0) alone, if told.

        Raises:
            ValueError: ``bucket_s`` is not a positive multiple of 10.
        """
        ...

    def requests(self, where: RequestFilter, limit: int, cursor: str | None = None) -> Page:
        """Return a page of requests by keyset.

        Raises:
            ValueError: the cursor is not one of ours, the flag is unknown or the limit is not positive.
        """
        ...

    def request(
        self, workspace: str, uid: str, first_step: int = 0, limit: int = 2000
    ) -> RequestDetail | None:
        """Return one request with at most ``limit`` steps from ``first_step`` on, decoded."""
        ...

    def counts(self, workspace: str, engine_uid: str, since: datetime, until: datetime) -> Counts | None:
        """Return an engine's verify steps in a window of 10 s buckets; ``None``: no rollup, which is no 0."""
        ...

    def hidden(
        self, workspace: str, uid: str, first_step: int = 0, steps: int = 200, limit: int = 2000
    ) -> RequestHidden | None:
        """Return hidden states and tokens of a request, of ``steps`` verify steps from ``first_step`` on.

        From step 0 on those of the prefill are among them. ``None`` when there is no such request.
        """
        ...

    def hidden_stats(
        self, workspace: str, engine_uid: str, since: datetime, until: datetime
    ) -> dict[hidden_rollup.Key, hidden_rollup.Sums]:
        """Return sums of hidden states by place; one that was not looked at has no entry.

        The window is one of 10 s buckets, from that of ``since`` on.
        """
        ...

    def hidden_series(
        self, workspace: str, engine_uid: str, since: datetime, until: datetime, bucket_s: int
    ) -> list[HiddenPoint]:
        """Return sums of hidden states by place over time; gaps stay gaps.

        Raises:
            ValueError: ``bucket_s`` is not a positive multiple of 10.
        """
        ...

    def holdings(self, workspace: str) -> Holdings:
        """Return what is stored of a workspace, and from when to when; quick at any size."""
        ...

    def used_bytes(self) -> int:
        """Return the bytes of the whole database in use, of every workspace together."""
        ...

    def models(self, workspace: str) -> list[str]:
        """Return the model names seen, sorted."""
        ...

    def evidence(self, workspace: str, engine_uid: str, now: datetime, window_s: float) -> Evidence | None:
        """Return what the diagnosis needs of one engine, ``None`` when the workspace has none of that id."""
        ...

    def engine_uids(self) -> list[tuple[str, str]]:
        """Return (workspace, engine uid) of every engine heard within the last day, for the evaluator."""
        ...

    def heard(self, since: datetime) -> list[Heard]:
        """Return every engine heard within the last day, by workspace and uid, each with a mark.

        Marks of one ``since`` differ where the engine told more than that it is alive, or where somebody
        changed what is expected of it. Of steps and requests from before ``since`` one may not see that.
        """
        ...

    def references(self, workspace: str) -> list[ReferenceRow]:
        """Return references, newest first."""
        ...

    def reference(self, workspace: str, reference_uid: str) -> ReferenceRow | None:
        """Return one reference, ``None`` when the workspace has none of that id."""
        ...

    def reference_sequences(self, workspace: str, reference_uid: str) -> list[ReferenceSequence]:
        """Return the sequences of a reference in the order of its file; empty where there is none."""
        ...

    def reference_numbers(self, workspace: str, reference_uid: str, number: int) -> Stored | None:
        """Return one sequence of a reference with its packed numbers."""
        ...

    def tokenizers(self, workspace: str) -> list[TokenizerRow]:
        """Return tokenizers, newest first."""
        ...

    def vocabulary(self, workspace: str, tokenizer_hash: str) -> bytes | None:
        """Return the packed vocabulary of a tokenizer, ``None`` when the workspace has none of that hash."""
        ...

    def engine_tokenizer(self, workspace: str, engine_uid: str) -> str:
        """Return the hash of the target's tokenizer as an engine told it last; empty: it told none."""
        ...

    def expectations(self, workspace: str) -> list[ExpectationRow]:
        """Return what is expected of drafts, in the order of the scopes."""
        ...

    def findings(
        self, workspace: str, engine_uid: str | None = None, active: bool = True
    ) -> list[FindingRow]:
        """Return findings, worst first; ``active`` leaves out the closed ones."""
        ...

    def alerts(self, workspace: str, engine_uids: Sequence[str] | None = None) -> list[AlertRow]:
        """Return the state of every rule on every engine (or on those named), firing first."""
        ...

    def alerted(self, workspace: str) -> list[str]:
        """Return the uids of engines on which any rule is in another state than ``no data``."""
        ...

    def alert_history(self, workspace: str, limit: int) -> list[AlertEvent]:
        """Return state changes, newest first."""
        ...

    def alert_event(self, workspace: str, event_id: int) -> AlertEvent | None:
        """Return one state change, ``None`` when the workspace has none of that id."""
        ...

    def alert_rules(self, workspace: str) -> list[RuleRow]:
        """Return what was stored of rules, by name; a built-in rule that nobody changed is not among them."""
        ...

    def alert_subjects(self, workspace: str) -> list[AlertSubject]:
        """Return every engine heard within the last day, as rules choose them, by uid."""
        ...

    def silences(self, workspace: str) -> list[SilenceRow]:
        """Return silences, also those that are over, the last to end first."""
        ...

    def deliveries(self, workspace: str, limit: int) -> list[DeliveryRow]:
        """Return notifications, newest first."""
        ...


class Store(Reads, Protocol):
    """Reads and writes; each read called here by itself sees a moment of its own, see :meth:`snapshot`."""

    @property
    def capabilities(self) -> Capabilities:
        """Say what this adapter can do."""
        ...

    @property
    def keep(self) -> Keep:
        """Say how long what is stored is kept; :meth:`write` refuses what is older."""
        ...

    @property
    def accounts(self) -> Accounts:
        """Return users, tokens and the audit trail."""
        ...

    def close(self) -> None:
        """Release connections; idempotent."""
        ...

    def lease(self, name: str) -> Lease:
        """Return the lease of a name: of all that work on this database one holds it. Release it yourself."""
        ...

    # housekeeping
    def prune(self, now: datetime) -> Iterator[Pruned]:
        """Delete what is older than :attr:`keep` says, oldest first, then as :meth:`shrink`.

        Each item asked for is one short transaction; between two of them others write.

        Raises:
            StoreError: the database cannot serve; what was done before stays done.
        """
        ...

    def would_prune(self, now: datetime) -> Mapping[str, int]:
        """Return how many rows :meth:`prune` would delete for their age, by table or partition.

        Raises:
            StoreError: the database cannot serve.
        """
        ...

    def shrink(self, now: datetime) -> Iterator[Pruned]:
        """Delete the oldest chunks while the database is larger than :attr:`keep` allows.

        Raises:
            StoreError: the database cannot serve; what was done before stays done.
        """
        ...

    # writes
    def write(self, batches: Sequence[Told], received: datetime) -> int:
        """Commit the batches of one export in one transaction, durably; returning is the acknowledgement.

        MUST be idempotent: repeated, late and out-of-order batches leave the same end state. What is older
        than :attr:`keep` says MUST be left out: its key may be forgotten. Return how many spans and points
        that was.

        Raises:
            Unavailable: nothing was stored; the same batches may succeed later.
            Refused: nothing was stored and these batches never will be.
        """
        ...

    def replace_findings(self, engine_uid: str, findings: Sequence[Finding], at: datetime) -> None:
        """Open new findings, refresh those that still hold, close those of the engine that do not.

        A finding is the same while its kind and boundary are.

        Raises:
            Refused: there is no such engine.
        """
        ...

    def set_alerts(
        self,
        alerts: Sequence[AlertRow],
        deliveries: Sequence[NewDelivery],
        evidence: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
    ) -> None:
        """Store rule states; history gets an event where the state changed; queue notifications due at once.

        While a state lasts, its first ``since`` and who acknowledged it stay. A rule first heard of changes
        only if it fires. A notification of a state that was stored before, with as much told of it, is not
        queued again. ``evidence`` of a change, by (engine uid, rule), is kept with its event.

        Raises:
            Refused: there is no such engine.
        """
        ...

    def acknowledge(
        self, workspace: str, engine_uid: str, rule: str, by: str, note: str, at: datetime
    ) -> bool:
        """Note who took on a rule that fires, until it fires no more; say whether it does."""
        ...

    def set_rule(self, workspace: str, name: str, body: Mapping[str, Any], at: datetime) -> None:
        """Store a rule in place of one of its name.

        Raises:
            Refused: the workspace has as many as it may have.
        """
        ...

    def delete_rule(self, workspace: str, name: str) -> bool:
        """Delete what is stored of a rule; say whether there was any."""
        ...

    def add_silence(self, workspace: str, silence: SilenceRow) -> None:
        """Store a silence; those that are over make room.

        Raises:
            Refused: the workspace has as many as it may have.
        """
        ...

    def end_silence(self, workspace: str, silence_uid: str, at: datetime) -> bool:
        """End a silence, unless it ended before; say whether there is one."""
        ...

    def due_deliveries(self, now: datetime, limit: int) -> list[DeliveryRow]:
        """Return pending notifications whose next attempt is due, oldest first, at most ``limit`` an address.

        Of one address, rule and engine only the first that is pending: the others wait for it.
        """
        ...

    def settle_delivery(self, delivery_id: int, *, error: str, next_attempt: datetime | None) -> None:
        """Record an attempt: an empty ``error`` delivered it, else retry at ``next_attempt`` or give up."""
        ...

    def send_again(self, workspace: str, delivery_id: int) -> bool:
        """Queue a notification that was given up again; say whether there was one."""
        ...

    def add_reference(
        self,
        workspace: str,
        reference_uid: str,
        facts: Facts,
        sequences: Sequence[Stored],
        size: int,
        at: datetime,
    ) -> None:
        """Store a reference of ``size`` bytes; one of the same id stays as it is.

        Raises:
            Refused: the workspace has as many references as it may have.
        """
        ...

    def delete_reference(self, workspace: str, reference_uid: str) -> bool:
        """Delete a reference; say whether there was one."""
        ...

    def add_tokenizer(self, workspace: str, tokenizer: TokenizerRow, vocabulary: bytes) -> None:
        """Store a tokenizer with its packed vocabulary; one of the same hash stays as it is.

        Raises:
            Refused: the workspace has as many tokenizers as it may have.
        """
        ...

    def delete_tokenizer(self, workspace: str, tokenizer_hash: str) -> bool:
        """Delete a tokenizer; say whether there was one."""
        ...

    def delete_request(self, workspace: str, uid: str) -> bool:
        """Delete a request with its prompt and steps; say whether there was one.

        What was summed of it stays, and so does what other tools sent of its trace. What is told of it
        afterwards is stored as of a new one.
        """
        ...

    def set_expectation(self, workspace: str, expectation: ExpectationRow) -> None:
        """Store an expectation; one of the same scope and source is replaced.

        Raises:
            Refused: the workspace has as many as it may have, or a number is out of range.
        """
        ...

    def clear_expectations(self, workspace: str, scope: ExpectationScope, source: str | None = None) -> int:
        """Delete the expectations of exactly this scope, of one source if named; return how many."""
        ...

    # reads
    def snapshot(self) -> AbstractContextManager[Reads]:
        """Open one view of the database for several reads: all of them see the same commits.

        What one answer or page says of an engine comes from one snapshot, else it may contradict itself.
        Leave it soon: it holds a connection. Call nothing else of the store inside.

        Raises:
            StoreError: the database cannot be read.
        """
        ...

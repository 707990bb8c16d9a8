"""What is stored of engines and their processes, loaded with a fixed number of queries for any number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from specscope import clock, convention
from specscope.records import Crossing
from sqlalchemy import ColumnElement, Connection, Row, Table, bindparam, func, select

from specscope_server.store import rows as names
from specscope_server.store import schema
from specscope_server.store.model import ProcessRow
from specscope_server.store.prepared import Prepared
from specscope_server.store.states import Armed, arming
from specscope_server.store.values import from_ns, unpacked_json

_TOGETHER_NS: Final = 15_000_000_000
"""Processes that were last heard within so long ended together: each sends every second."""


@dataclass(slots=True)
class StoredProcess:
    """One process: its row, counters by name and label, and gauges by name and label as (value, reason)."""

    row: Row[Any]
    counters: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    gauges: dict[str, dict[str, tuple[int, str, int]]] = field(default_factory=lambda: defaultdict(dict))
    totals: dict[Crossing, tuple[int | None, int | None]] = field(
        default_factory=dict[Crossing, tuple[int | None, int | None]]
    )

    @property
    def uid(self) -> str:
        """Return its process uid."""
        return self.row.process_uid

    @property
    def armed(self) -> Armed:
        """Return which boundaries it can see, and why not."""
        return {name: arming(value, why) for name, (value, why, _) in self.gauges[names.ARMED].items()}

    def gauge(self, name: str) -> tuple[int, int] | None:
        """Return (event time in ns, value) of a gauge without label; ``None`` when never told."""
        told = self.gauges[name].get("")
        return None if told is None else (told[2], told[0])

    @property
    def clock_skewed(self) -> bool:
        """Say whether its clock and the server's are more than five minutes apart."""
        offset: int | None = self.row.clock_offset_ns
        return offset is not None and clock.is_skewed(0, offset)

    def public(self) -> ProcessRow:
        """Return it as the port shows it."""
        row, queued = self.row, self.gauge(names.QUEUED)
        last_event: int | None = row.last_event_ns
        return ProcessRow(
            process_uid=row.process_uid,
            role=row.role,
            pid=row.pid,
            started=from_ns(row.start_ns),
            tp=row.tp,
            dp=row.dp,
            pp=row.pp,
            serving_role=row.serving_role,
            detail=row.detail,
            tracer_version=row.tracer_version,
            last_event=from_ns(row.start_ns if last_event is None else last_event),
            last_received=from_ns(row.last_received_ns),
            clock_skewed=self.clock_skewed,
            requests=dict(self.counters[names.REQUESTS]),
            dropped=dict(self.counters[names.DROPPED]),
            hook_errors=dict(self.counters[names.HOOK_ERRORS]),
            queued=None if queued is None else queued[1],
            export_failures=self.counters[names.EXPORT_FAILURES].get(""),
        )


@dataclass(slots=True)
class StoredEngine:
    """One engine: its row, its processes (oldest first) and its newest configuration report, if any."""

    row: Row[Any]
    processes: list[StoredProcess] = field(default_factory=list[StoredProcess])
    report: Row[Any] | None = None

    @property
    def model(self) -> str:
        """Return the name of the model it last reported, empty when it has not."""
        return "" if self.report is None else self.report.model

    @property
    def name(self) -> str:
        """Return what to call it: service name, else model, else instance."""
        service = next((p.row.service_name for p in self.processes if p.row.service_name), "")
        return service or self.model or self.row.instance

    @property
    def config(self) -> Mapping[str, Any]:
        """Return its newest configuration, empty when it has not reported one."""
        return {} if self.report is None else unpacked_json(self.report.config)

    @property
    def speculation(self) -> bool | None:
        """Say whether it is set to draft: the newest of gauge and report; ``None`` when never told."""
        told = [gauge for p in self.processes if (gauge := p.gauge(names.SPECULATION)) is not None]
        if self.report is not None:
            told.append((self.report.event_ns, self.report.speculation))
        return bool(max(told)[1]) if told else None

    @property
    def requests(self) -> dict[str, int]:
        """Return requests since start by kind. Ranks of one data-parallel group see the same requests."""
        groups: dict[tuple[int, str], int] = {}
        for process in self.processes:
            for kind, value in process.counters[names.REQUESTS].items():
                group = (process.row.dp, kind)
                groups[group] = max(groups.get(group, 0), value)
        total: dict[str, int] = defaultdict(int)
        for (_, kind), value in groups.items():
            total[kind] += value
        return dict(total)

    def summed(self, name: str) -> dict[str, int]:
        """Return a counter by label, summed over processes."""
        total: dict[str, int] = defaultdict(int)
        for process in self.processes:
            for label, value in process.counters[name].items():
                total[label] += value
        return dict(total)

    @property
    def ended_ns(self) -> int | None:
        """Return when it ended in order, by the server's clock; ``None``: it has not.

        Every process that was heard to the last must have told its end: beside one that was killed, and
        beside one that serves on in the place of an earlier one, no other's word counts.
        """
        told = [p.counters[names.ENDED].get("") for p in self._heard_last()]
        known = [ended for ended in told if ended is not None]
        return max(known) + self.clock_shift_ns if known and len(known) == len(told) else None

    @property
    def detail(self) -> str:
        """Return the lowest detail level of the processes that were heard last; empty: none has told one."""
        told = [p.row.detail for p in self._heard_last() if p.row.detail in convention.DETAIL_LEVELS]
        return min(told, key=convention.DETAIL_LEVELS.index, default="")

    def _heard_last(self) -> list[StoredProcess]:
        newest = max((p.row.last_received_ns for p in self.processes), default=0)
        return [p for p in self.processes if p.row.last_received_ns > newest - _TOGETHER_NS]

    def text(self, name: str) -> str:
        """Return a text that all processes share."""
        return max((getattr(p.row, name) for p in self.processes), default="")

    @property
    def clock_shift_ns(self) -> int:
        """Return what to take from the server's time to get the engine's; 0 unless a clock is far off."""
        offsets = [p.row.clock_offset_ns for p in self.processes if p.clock_skewed]
        return min(offsets, key=abs, default=0)


def load(
    connection: Connection,
    *,
    workspace: str | None = None,
    uids: Iterable[str] | None = None,
    states: bool = True,
) -> list[StoredEngine]:
    """Return engines of a workspace (``None``: of all) and of the given uids (``None``: all of them).

    Without ``states`` the processes come without counters, gauges and ledger.
    """
    wanted = None if uids is None else sorted(set(uids))
    of = _Chosen(workspace is not None, None if wanted is None else len(wanted))
    values = {f"uid_{place}": uid for place, uid in enumerate(wanted or ())} | {"workspace": workspace}
    engines = {row.engine_uid: StoredEngine(row) for row in _engines_of(of).rows(connection, values)}
    if engines:
        processes: dict[tuple[str, str], StoredProcess] = {}
        for row in _processes_of(of).rows(connection, values):
            process = processes[row.engine_uid, row.process_uid] = StoredProcess(row)
            engines[row.engine_uid].processes.append(process)
        if states:
            _add_states(connection, of, values, processes)
        # Several ranks may report at the same moment; the last one here is always the same.
        for row in _reports_of(of).rows(connection, values):
            engines[row.engine_uid].report = row
    return list(engines.values())


class _Chosen(NamedTuple):
    """Which engines: of one workspace or all, and how many uids are named (``None``: every engine)."""

    of_workspace: bool
    uids: int | None

    def of(self, table: Table) -> list[ColumnElement[bool]]:
        """Return the conditions on a table that has the uids of engines."""
        engine = schema.engine.c
        found: list[ColumnElement[bool]] = []
        if self.uids is not None:
            uid = table.c.engine_uid
            found.append(uid.in_([bindparam(f"uid_{place}", type_=uid.type) for place in range(self.uids)]))
        if self.of_workspace:
            mine = select(engine.engine_uid).where(engine.workspace == bindparam("workspace"))
            found.append(table.c.engine_uid.in_(mine))
        return found


@lru_cache(64)
def _engines_of(of: _Chosen) -> Prepared:
    t = schema.engine
    return Prepared(select(t).where(*of.of(t)).order_by(t.c.started_ns.desc(), t.c.engine_uid))


@lru_cache(64)
def _processes_of(of: _Chosen) -> Prepared:
    t = schema.process
    return Prepared(select(t).where(*of.of(t)).order_by(t.c.start_ns, t.c.process_uid))


@lru_cache(64)
def _all_of(of: _Chosen, name: str) -> Prepared:
    t = schema.metadata.tables[name]
    return Prepared(select(t).where(*of.of(t)))


def _add_states(
    connection: Connection,
    of: _Chosen,
    values: Mapping[str, Any],
    by_key: Mapping[tuple[str, str], StoredProcess],
) -> None:
    for row in _all_of(of, schema.process_counter.name).rows(connection, values):
        by_key[row.engine_uid, row.process_uid].counters[row.name][row.label] = row.value
    for row in _all_of(of, schema.process_gauge.name).rows(connection, values):
        gauges = by_key[row.engine_uid, row.process_uid].gauges
        gauges[row.name][row.label] = (row.value, row.reason, row.event_ns)
    for row in _all_of(of, schema.boundary_total.name).rows(connection, values):
        totals = by_key[row.engine_uid, row.process_uid].totals
        totals[row.boundary, row.source, row.mode] = (row.expected, row.observed)


@lru_cache(64)
def _reports_of(of: _Chosen) -> Prepared:
    """Return the query of the newest reports of each engine; ``config`` comes as text.

    Every rank reports, of its own part of the weights. That of the lowest tensor-parallel rank is taken, as
    it tells of the requests too: else it is by chance which of them is judged.
    """
    t, other, process = schema.engine_event, schema.engine_event.alias("other"), schema.process.alias("told")
    newest = (
        select(other.c.event_ns)
        .join(process, process.c.process_uid == other.c.process_uid)
        .where(other.c.engine_uid == t.c.engine_uid, process.c.engine_uid == t.c.engine_uid)
        .order_by(process.c.tp, other.c.event_ns.desc())
        .limit(1)
        .correlate(t)
    )
    return Prepared(
        select(t)
        .where(*of.of(t), t.c.event_ns == newest.scalar_subquery())
        .order_by(t.c.process_uid.desc(), t.c.event.desc())
    )


def engine_names(connection: Connection, uids: Iterable[str]) -> dict[str, str]:
    """Return the names of engines by uid, as :attr:`StoredEngine.name` has them, by one query."""
    wanted = {f"uid_{place}": uid for place, uid in enumerate(sorted(set(uids)))}
    return {row[0]: row[1] for row in _names_of(len(wanted)).rows(connection, wanted)} if wanted else {}


@lru_cache(64)
def _names_of(count: int) -> Prepared:
    """Return the query of the names of so many engines."""
    uid, process, event = schema.engine.c.engine_uid, schema.process.c, schema.engine_event.c
    service = (
        select(process.service_name)
        .where(process.engine_uid == uid, process.service_name != "")
        .order_by(process.start_ns, process.process_uid)
        .limit(1)
    )
    other = schema.engine_event.alias("other").c
    newest = select(func.max(other.event_ns)).where(other.engine_uid == uid)
    model = (
        select(event.model)
        .where(event.engine_uid == uid, event.event_ns == newest.scalar_subquery())
        .order_by(event.process_uid, event.event)
        .limit(1)
    )
    name = func.coalesce(
        service.scalar_subquery(),
        func.nullif(model.scalar_subquery(), ""),
        schema.engine.c.instance,
    )
    wanted = [bindparam(f"uid_{place}", type_=uid.type) for place in range(count)]
    return Prepared(select(uid, name).where(uid.in_(wanted)))

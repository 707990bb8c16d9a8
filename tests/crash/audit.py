"""The end of a run: what is in the database against what was sent, acknowledged and recounted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specscope import chunks, rollup
from specscope_server.store import schema
from specscope_server.store.databases import database
from specscope_server.store.values import engine_uid
from sqlalchemy import Connection, Table, select

from crash.load import Load
from crash.told import TOTALS, Key

Sums = dict[Key, tuple[int, ...]]
"""(engine, dimension, bucket, slice, position) to the counts of :data:`rollup.COUNT_FIELDS`."""
SHOWN = 5


@dataclass
class Report:
    """What was compared and what was found wrong, by words for both."""

    compared: Counter[str] = field(default_factory=Counter[str])
    wrong: Counter[str] = field(default_factory=Counter[str])
    examples: list[str] = field(default_factory=list[str])

    def blame(self, what: str, found: Iterable[Any]) -> None:
        """Count each of ``found`` as wrong."""
        listed = [str(one) for one in found]
        if listed:
            self.wrong[what] += len(listed)
            self.examples += [f"{what}: {one}" for one in listed[:SHOWN]]

    def keys(self, what: str, stored: Counter[Key], sent: Iterable[Key], acked: Iterable[Key]) -> None:
        """Compare keys: each acknowledged one is there, none twice, none that nobody sent."""
        acknowledged, known = set(acked), set(sent)
        self.compared[what] += len(acknowledged)
        self.blame(f"{what} lost", acknowledged - set(stored))
        self.blame(f"{what} doubled", (key for key, times in stored.items() if times > 1))
        self.blame(f"{what} that nobody sent", set(stored) - known)
        self.blame(f"{what} never acknowledged", known - acknowledged)


def audit(url: str, load: Load, truth: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Report:
    """Compare everything. ``truth`` is what each instance's requests really did."""
    report = Report()
    if load.rejected:
        report.wrong["spans rejected"] += load.rejected
    opened = database(url)
    try:
        with opened.read() as connection:
            _chunks(report, connection, load)
            _requests(report, connection, load, truth)
            _rollups(report, connection, load)
            _ledger(report, connection, load)
            _others(report, connection, load)
    finally:
        opened.close()
    return report


def _rows(connection: Connection, table: Table, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(select(*(table.c[name] for name in names)))]


def _chunks(report: Report, connection: Connection, load: Load) -> None:
    rows = _rows(connection, schema.step_chunk, "engine_uid", "uid", "process_uid", "seq", "steps", "extends")
    stored = Counter(row[:4] for row in rows)
    report.keys("chunks", stored, load.sent.chunks, load.acknowledged.chunks)
    changed = (row[:4] for row in rows if load.sent.chunks.get(row[:4]) != (bytes(row[4]), bytes(row[5])))
    report.blame("chunks of another content", changed)
    recount = _recount(rows)
    kept = {
        key: counts
        for key, counts in _sums(connection, schema.rollup_10s).items()
        if key[1] == rollup.ALL and key[4] == rollup.STEP
    }
    report.compared["rollups recounted from chunks"] += len(recount)
    _differences(report, "rollups other than a recount from chunks", kept, recount)


def _recount(rows: Iterable[tuple[Any, ...]]) -> Sums:
    """Sum the stored steps themselves, which the rollups must equal where all steps are told."""
    counts: dict[Key, rollup.Counts] = {}
    for engine, _, _, _, packed, _ in rows:
        for step in chunks.unpack_steps(bytes(packed)) if packed else ():
            key = (engine, rollup.ALL, rollup.bucket_start(step.t), "", rollup.STEP)
            one = rollup.Counts(
                steps=1,
                drafted_depth=step.drafted_depth,
                drafted_nodes=step.drafted_nodes,
                accepted=step.accepted,
                bonus=step.bonus,
                committed=step.committed,
                zero_steps=int(step.drafted_depth > 0 and not step.accepted),
                undrafted_steps=int(not step.drafted_depth),
            )
            counts.setdefault(key, rollup.Counts()).add(one)
    return {key: _plain(found) for key, found in counts.items()}


def _requests(
    report: Report,
    connection: Connection,
    load: Load,
    truth: Mapping[str, Mapping[str, Mapping[str, int]]],
) -> None:
    rows = _rows(connection, schema.request, "engine_uid", "uid", "state", *TOTALS)
    stored = Counter(row[:2] for row in rows)
    report.keys("requests", stored, load.sent.requests, load.acknowledged.requests)
    real = {
        (engine_uid("default", "default", instance), uid): told
        for instance, requests in truth.items()
        for uid, told in requests.items()
    }
    report.blame("requests that nobody told of", set(real) - set(stored))
    for engine, uid, state, *totals in rows:
        found = dict(zip(TOTALS, totals, strict=True))
        told = load.acknowledged.requests.get((engine, uid), {})
        if any(found[name] != told.get(name) for name in TOTALS) or found != real.get((engine, uid)):
            report.blame("requests with other totals", [(uid, found, told, real.get((engine, uid)))])
        if told.get("ended") and state != "finished":
            report.blame("requests whose end is lost", [(uid, state)])


def _sums(connection: Connection, table: Table) -> Sums:
    names = ("engine_uid", "dimension", "bucket", "slice", "position")
    return {
        row[:5]: tuple(int(count) for count in row[5:])
        for row in _rows(connection, table, *names, *rollup.COUNT_FIELDS)
    }


def _plain(counts: rollup.Counts) -> tuple[int, ...]:
    return tuple(getattr(counts, name) for name in rollup.COUNT_FIELDS)


def _differences(report: Report, what: str, stored: Sums, wanted: Sums) -> None:
    differing = [key for key in {*stored, *wanted} if stored.get(key) != wanted.get(key)]
    report.blame(what, ((key, stored.get(key), wanted.get(key)) for key in differing))


def _rollups(report: Report, connection: Connection, load: Load) -> None:
    applied = Counter(_rows(connection, schema.rollup_applied, "engine_uid", "process_uid", "seq"))
    report.keys("rollup increments", applied, load.sent.rollups, load.acknowledged.rollups)
    for table, width in ((schema.rollup_10s, 10), (schema.rollup_60s, 60)):
        sums: dict[Key, rollup.Counts] = {}
        for (engine, _, _), (bucket, rows) in load.acknowledged.rollups.items():
            for (dimension, value, position), counts in rows.items():
                key = (engine, dimension, bucket // width * width, value, position)
                sums.setdefault(key, rollup.Counts()).add(counts)
        wanted = {key: _plain(counts) for key, counts in sums.items()}
        report.compared[f"rows of {table.name}"] += len(wanted)
        _differences(report, f"rows of {table.name} that differ", _sums(connection, table), wanted)


def _ledger(report: Report, connection: Connection, load: Load) -> None:
    """Counts are cumulative and only the newest is sent: the store has one between acknowledged and sent."""
    names = ("engine_uid", "process_uid", "boundary", "source", "mode")
    stored: dict[Key, int] = {}
    for *key, expected, observed in _rows(connection, schema.boundary_total, *names, "expected", "observed"):
        for kind, value in (("expected", expected), ("observed", observed)):
            if value is not None:
                stored[(*key, kind)] = value
    report.compared["ledger counts"] += len(load.acknowledged.ledger)
    report.blame(
        "ledger counts out of what was told",
        (
            (key, least, stored.get(key), load.sent.ledger[key])
            for key, least in load.acknowledged.ledger.items()
            if not least <= stored.get(key, -1) <= load.sent.ledger[key]
        ),
    )


def _others(report: Report, connection: Connection, load: Load) -> None:
    events = Counter(_rows(connection, schema.engine_event, "engine_uid", "process_uid", "event_ns", "event"))
    report.keys("engine events", events, load.sent.events, load.acknowledged.events)
    spans = Counter(_rows(connection, schema.span, "trace_id", "span_id"))
    report.keys("other tools' spans", spans, load.sent.spans, load.acknowledged.spans)

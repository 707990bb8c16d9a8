"""View model of one engine: its path, acceptance over time and by position, configuration, processes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

from specscope_frontend.charts import TimelinePoint, acceptance_timeline, per_position
from specscope_frontend.charts.figure import Figure
from specscope_frontend.charts.positions import conditional, unconditional

from specscope_server.diagnosis import rank_divergence, shapes
from specscope_server.diagnosis.model import ExtendEvidence, RankEvidence
from specscope_server.store.model import BoundaryState, EngineRow
from specscope_server.store.port import Reads
from specscope_server.web import engine_states, expected, hidden_engine, speedup, stats, weights
from specscope_server.web.engine_states import FindingView, Judged
from specscope_server.web.expected import Expected
from specscope_server.web.hidden_engine import EngineHidden
from specscope_server.web.overview import no_data
from specscope_server.web.speedup import Speedup
from specscope_server.web.stations import Station, gaps, stations
from specscope_server.web.stats import Acceptance, Stat
from specscope_server.web.weights import WeightsView
from specscope_server.web.windows import Window

ELSEWHERE: Final = ("weights", "differences")
"""Parts of the configuration that have a section of their own."""


@dataclass(frozen=True, slots=True)
class PositionRow:
    """One draft position: steps that drafted and accepted it, and both rates."""

    position: int
    drafted: int
    accepted: int
    unconditional: float | None
    conditional: float | None


@dataclass(frozen=True, slots=True)
class ConfigGroup:
    """One part of the reported configuration as (dotted name, value) pairs."""

    name: str
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RankLine:
    """What the ranks of one group came to: its name (empty: the only group), a sentence and its tone."""

    group: str
    sentence: str
    tone: str


@dataclass(frozen=True, slots=True)
class EnginePage:
    """The whole page."""

    row: EngineRow
    judged: Judged
    window: Window
    findings: tuple[FindingView, ...]
    stations: tuple[Station, ...]
    broken: tuple[Station, ...]
    accused: frozenset[str]
    recent: Mapping[tuple[str, str], tuple[int, int]]
    judge_s: float
    extends: tuple[ExtendEvidence, ...]
    numbers: tuple[Stat, ...]
    timeline: Figure | None
    points: tuple[TimelinePoint, ...]
    positions: Figure | None
    position_rows: tuple[PositionRow, ...]
    shape: str
    """The shape of the curve in words; empty where too few steps tell one."""
    expected: Expected
    speedup: Speedup
    config: tuple[ConfigGroup, ...]
    dropped: tuple[tuple[str, int], ...]
    hook_errors: tuple[tuple[str, int], ...]
    unknown: Mapping[str, str]
    no_data: str
    hidden: EngineHidden
    weights: WeightsView
    ranks: tuple[RankLine, ...]
    requests: Mapping[str, int]
    """Since start by kind, as the state was judged by."""


def build(
    store: Reads,
    workspace: str,
    engine_uid: str,
    window: Window,
    now: datetime,
    judge_s: float,
    baseline: str = "",
) -> EnginePage | None:
    """Read the store and return the page, ``None`` when the workspace has no such engine.

    ``baseline`` is the key of the earlier period that hidden states are compared with.
    """
    since = window.since(now)
    row = store.engine(workspace, engine_uid, since)
    if row is None:
        return None
    judged = engine_states.judge(store, workspace, engine_uid, now, judge_s)
    points = [
        TimelinePoint(p.start, a.length, a.rate, a.steps)
        for p in store.series(workspace, engine_uid, since, now, window.bucket_s)
        for a in (Acceptance.of_counts(p.counts),)
    ]
    evidence = judged.evidence
    findings = engine_states.current(judged, row, store.findings(workspace, engine_uid), now)
    return EnginePage(
        row=row,
        judged=judged,
        window=window,
        findings=findings,
        stations=tuple(stations(row.ledger)),
        broken=tuple(gaps(stations(row.ledger))),
        accused=frozenset(f.boundary for f in findings if f.boundary),
        recent=_recent(evidence.window if evidence else ()),
        judge_s=judge_s,
        extends=evidence.extends if evidence else (),
        numbers=_numbers(row, window),
        timeline=acceptance_timeline(points, bucket_s=window.bucket_s, since=since, until=now)
        if points
        else None,
        points=tuple(points),
        positions=per_position(row.positions) if row.positions else None,
        position_rows=_position_rows(row.positions),
        shape=_shape(row.positions),
        expected=expected.build(evidence, row.name),
        speedup=speedup.build(evidence),
        config=tuple(config_groups({k: v for k, v in row.config.items() if k not in ELSEWHERE})),
        dropped=_sum(p.dropped for p in row.processes),
        hook_errors=_sum(p.hook_errors for p in row.processes),
        unknown=judged.diagnosis.unknown,
        no_data=no_data(row, window),
        hidden=hidden_engine.build(
            store, workspace, row, window, now, baseline, evidence.ranks if evidence else ()
        ),
        weights=weights.build(row),
        ranks=tuple(rank_lines(evidence.ranks if evidence else ())),
        requests=evidence.requests if evidence else row.requests,
    )


def rank_lines(groups: Sequence[RankEvidence]) -> Iterator[RankLine]:
    """Yield a sentence on each group of ranks that must agree; none where an engine has one rank."""
    for group in groups:
        name = group.name if len(groups) > 1 else ""
        heard = f"{len(group.heard)} of {group.size} ranks heard"
        why = rank_divergence.not_comparable(group)
        compared = f"{group.compared:,} steps compared"
        if group.first_step is not None:
            differ = f"from step {group.first_step:,} on {group.proposals_differ:,} proposals and"
            differ += f" {group.accepts_differ:,} accepts differ"
            yield RankLine(name, f"{heard}, {compared}: {differ}", "bad")
        elif why:
            yield RankLine(name, f"Not comparable: {why}", "lost")
        else:
            unseen = group.compared - group.proposals_compared
            only = (
                f" (of {unseen:,} only the accepts: their proposals were not on the host)" if unseen else ""
            )
            yield RankLine(name, f"{heard}, {compared}, 0 differ{only}", "ok")


def _numbers(row: EngineRow, window: Window) -> tuple[Stat, ...]:
    counts = Acceptance.of_counts(row.counts) if row.counts else None
    why = no_data(row, window)
    found = [
        stats.length_stat(counts, why),
        stats.rate_stat(counts, why),
        stats.zero_stat(counts, why),
        stats.depth_stat(counts, why),
    ]
    node_yield = stats.yield_stat(counts) if counts else None
    return (*found, node_yield) if node_yield else tuple(found)


def _recent(window: Sequence[BoundaryState]) -> dict[tuple[str, str], tuple[int, int]]:
    return {(s.boundary, s.source): (s.expected, s.observed_total) for s in window}


def _position_rows(positions: Sequence[tuple[int, int]]) -> tuple[PositionRow, ...]:
    rates = zip(positions, unconditional(positions), conditional(positions), strict=True)
    return tuple(PositionRow(i + 1, p[0], p[1], u, k) for i, (p, u, k) in enumerate(rates))


def _shape(positions: Sequence[tuple[int, int]]) -> str:
    found = shapes.shape(positions)
    return "" if found.word == shapes.UNKNOWN else found.words


def _sum(counters: Iterator[Mapping[str, int]]) -> tuple[tuple[str, int], ...]:
    total: dict[str, int] = {}
    for counter in counters:
        for name, value in counter.items():
            total[name] = total.get(name, 0) + value
    return tuple(sorted((name, n) for name, n in total.items() if n))


def config_groups(config: Mapping[str, Any]) -> Iterator[ConfigGroup]:
    """Yield the configuration by its top-level parts, nested names dotted; loose values come first."""
    loose = [(name, _text(value)) for name, value in config.items() if not isinstance(value, Mapping)]
    if loose:
        yield ConfigGroup("general", tuple(loose))
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield ConfigGroup(name, tuple(_flat("", cast("Mapping[str, Any]", value))))


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(f"{prefix}{name}.", cast("Mapping[str, Any]", value))
        else:
            yield f"{prefix}{name}", _text(cast("object", value))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)

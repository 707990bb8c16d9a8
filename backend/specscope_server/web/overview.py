"""View model of the overview: what needs a person first, then every engine with its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from specscope_frontend.charts import Spark, position_bars, sparkline
from specscope_frontend.charts.spark import Bar

from specscope_server.lately import Lately
from specscope_server.store.model import EngineRow, SeriesPoint
from specscope_server.store.port import Reads
from specscope_server.web import engine_states, stats
from specscope_server.web.engine_states import FindingView, Judged
from specscope_server.web.stats import Acceptance, Stat
from specscope_server.web.windows import Window

SPARK_WIDTH, SPARK_HEIGHT = 300, 44
BARS_WIDTH, BARS_HEIGHT = 150, 44


@dataclass(frozen=True, slots=True)
class EngineCard:
    """One engine on the overview."""

    row: EngineRow
    judged: Judged
    length: Stat
    rate: Stat
    length_line: Spark
    rate_line: Spark
    bars: list[Bar]
    findings: tuple[FindingView, ...]


@dataclass(frozen=True, slots=True)
class StateCount:
    """How many engines are in a state."""

    word: str
    tone: str
    engines: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The whole page."""

    window: Window
    findings: tuple[FindingView, ...]
    engines: tuple[EngineCard, ...]
    states: tuple[StateCount, ...]

    @property
    def unproven(self) -> int:
        """Return how many engines are not known to be healthy although nothing was found."""
        return sum(1 for e in self.engines if e.judged.state.word != "healthy" and not e.findings)


def no_data(row: EngineRow, window: Window) -> str:
    """Say why an engine has no counts in the window."""
    if row.last_request is None:
        return f"no data in the {window.span}: no request so far"
    return f"no data in the {window.span}: no verify step ran"


def values_on(
    buckets: Sequence[datetime], points: Sequence[SeriesPoint]
) -> tuple[list[float | None], list[float | None]]:
    """Return acceptance length and rate per bucket; ``None`` without data or where undefined."""
    by_start: Mapping[datetime, Acceptance] = {p.start: Acceptance.of_counts(p.counts) for p in points}
    found = [by_start.get(start) for start in buckets]
    return [a.length if a else None for a in found], [a.rate if a else None for a in found]


def build(
    store: Reads, workspace: str, window: Window, now: datetime, judge_s: float, lately: Lately
) -> Overview:
    """Read the store and return the page; engines are judged over the last ``judge_s`` seconds."""
    since = window.since(now)
    rows = store.engines(workspace, since)
    stored = store.findings(workspace)
    judged = {uid: Judged(*both) for uid, both in lately.judged(store, rows, now, judge_s).items()}
    buckets = window.buckets(now)
    lines = {
        row.engine_uid: values_on(
            buckets, store.series(workspace, row.engine_uid, since, now, window.bucket_s)
        )
        for row in rows
    }
    # One scale for all engines, so that lines can be compared by eye.
    highest = max((v for length, _ in lines.values() for v in length if v is not None), default=1.0)
    cards: list[EngineCard] = []
    for row in rows:
        length, rate = lines[row.engine_uid]
        counts = Acceptance.of_counts(row.counts) if row.counts else None
        why = no_data(row, window)
        cards.append(
            EngineCard(
                row,
                judged[row.engine_uid],
                stats.length_stat(counts, why),
                stats.rate_stat(counts, why),
                sparkline(length, width=SPARK_WIDTH, height=SPARK_HEIGHT, floor=0.0, top=max(highest, 1.0)),
                sparkline(rate, width=SPARK_WIDTH, height=SPARK_HEIGHT, floor=0.0, top=1.0),
                position_bars(row.positions, width=BARS_WIDTH, height=BARS_HEIGHT),
                engine_states.current(
                    judged[row.engine_uid], row, [f for f in stored if f.engine_uid == row.engine_uid], now
                ),
            )
        )
    # Two stable passes: newest first among equals, then the most urgent state on top.
    cards.sort(key=lambda card: card.row.started, reverse=True)
    cards.sort(key=lambda card: engine_states.urgency(card.judged.state.word))
    findings = engine_states.worst_first([finding for card in cards for finding in card.findings])
    return Overview(window, tuple(findings), tuple(cards), _states(cards))


def _states(cards: Sequence[EngineCard]) -> tuple[StateCount, ...]:
    tally: dict[str, int] = {}
    for card in cards:
        word = card.judged.state.word
        tally[word] = tally.get(word, 0) + 1
    return tuple(StateCount(word, engine_states.tone(word), n) for word, n in tally.items())

"""View model of an engine's hidden states: now against an earlier period, over time, and between ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from specscope import convention as c
from specscope import hidden
from specscope.hidden_rollup import Key, Sums
from specscope.rollup import Counts
from specscope_frontend.charts import TimeLine, hidden_timeline
from specscope_frontend.charts.figure import Figure

from specscope_server.diagnosis import hidden_drift, hidden_evidence, rank_divergence
from specscope_server.diagnosis.hidden_drift import MOVED, SAME, Comparison, Drift
from specscope_server.diagnosis.model import RankEvidence, RankHidden
from specscope_server.store.model import EngineRow, HiddenPoint
from specscope_server.store.port import Reads
from specscope_server.web import format as f
from specscope_server.web import hidden_places as places
from specscope_server.web.hidden_table import Table, table
from specscope_server.web.windows import Window

DRAWN: Final = 8
"""Lines of each half of the timeline; the table names all tensors."""
NAMED: Final = 6
TONES: Final = {MOVED: "warn", SAME: "ok"}
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Baseline:
    """An earlier period to compare with, as long as the page's window."""

    key: str
    label: str
    span: str
    before_s: int | None
    """Seconds that it lies before the window; 0: right before it; ``None``: at the engine's start."""

    def period(self, row: EngineRow, since: datetime, window: Window) -> tuple[datetime, datetime]:
        """Return its start and end; nothing lies between them where there is no such period."""
        length = timedelta(seconds=window.seconds)
        if self.before_s is None:
            return row.started, max(row.started, min(row.started + length, since))
        end = since - timedelta(seconds=max(0, self.before_s - window.seconds))
        return end - length, end


BASELINES: Final = (
    Baseline("before", "Before", "as long a period right before it", 0),
    Baseline("day", "A day ago", "the same window a day ago", _DAY_S),
    Baseline("week", "A week ago", "the same window a week ago", 7 * _DAY_S),
    Baseline("start", "Its start", "as long a period from the engine's start", None),
)


def offered(window: Window) -> tuple[Baseline, ...]:
    """Return the baselines that do not overlap a window of that length."""
    return tuple(one for one in BASELINES if not one.before_s or one.before_s > window.seconds)


def choose(key: str, window: Window) -> Baseline:
    """Return the baseline of that key, the first one where there is none: a stale link shows its page."""
    return next((one for one in offered(window) if one.key == key), BASELINES[0])


@dataclass(frozen=True, slots=True)
class Moved:
    """How one tensor moved: in words, with the verdict's tone."""

    change: str
    tone: str
    verdict: str
    reason: str
    earlier: float | None


@dataclass(frozen=True, slots=True)
class RankSentence:
    """What the draft was fed on the ranks of a group, as a sentence."""

    tone: str
    text: str


@dataclass(frozen=True, slots=True)
class EngineHidden:
    """The section; ``none`` says why nothing was looked at, empty where something was."""

    none: str
    baseline: Baseline
    baselines: tuple[Baseline, ...]
    table: Table | None
    moved: Mapping[Key, Moved]
    named: tuple[str, ...]
    """The tensors that moved, each with what moved; at most :data:`NAMED`."""
    tone: str
    summary: str
    doubt: str
    """Why the baseline is not known to be healthy; empty: it accepted drafts."""
    figure: Figure | None
    lines: tuple[TimeLine, ...]
    times: tuple[tuple[datetime, tuple[float | None, ...]], ...]
    """The figure's numbers, newest first: a time and one value a line."""
    not_drawn: int
    ranks: tuple[RankSentence, ...]


def build(
    store: Reads,
    workspace: str,
    row: EngineRow,
    window: Window,
    now: datetime,
    baseline: str,
    ranks: Sequence[RankEvidence],
) -> EngineHidden:
    """Read the sums of both periods and return the section; ``baseline`` is the key that was asked for."""
    chosen = choose(baseline, window)
    since = window.since(now)
    sums = store.hidden_stats(workspace, row.engine_uid, since, now)
    told = tuple(rank_sentences(ranks))
    if not sums:
        none = _why_none(row, window)
        return EngineHidden(
            none, chosen, offered(window), None, {}, (), "off", "not looked at", "", None, (), (), 0, told
        )
    start, end = chosen.period(row, since, window)
    earlier = store.hidden_stats(workspace, row.engine_uid, start, end) if start < end else {}
    counts = _counts(store, workspace, row.engine_uid, start, end, window) if start < end else None
    compared = hidden_drift.compare(hidden_evidence.of(sums), hidden_evidence.of(earlier), counts)
    before = {one.key: one.geometric_rms for one in hidden_evidence.of(earlier)}
    points = store.hidden_series(workspace, row.engine_uid, since, now, window.bucket_s)
    fed, inside, not_drawn = time_lines(points)
    level = _detail(row)
    return EngineHidden(
        none="",
        baseline=chosen,
        baselines=offered(window),
        table=table(sums, None, row.ledger, level),
        moved={one.key: _moved(one, before.get(one.key)) for one in compared.drifts},
        named=tuple(_named(one) for one in compared.drifts if one.verdict == MOVED)[:NAMED],
        tone=tone_of(compared),
        summary=_summary(compared),
        doubt=_doubt(compared, earlier),
        figure=hidden_timeline(fed, inside, bucket_s=window.bucket_s, since=since, until=now),
        lines=(*fed, *inside),
        times=tuple(_times((*fed, *inside))),
        not_drawn=not_drawn,
        ranks=told,
    )


def _detail(row: EngineRow) -> str:
    """Return the most detailed level of the engine's processes."""
    told = [p.detail for p in row.processes if p.detail in c.DETAIL_LEVELS]
    return max(told, key=c.DETAIL_LEVELS.index, default="")


def _why_none(row: EngineRow, window: Window) -> str:
    if row.speculation is False:
        return "Speculation is off: there is no draft to feed."
    if _detail(row) == c.DETAIL_SUMMARY:
        return "Not taken at detail level summary: start the engine with SPECSCOPE_DETAIL=steps."
    return (
        f"No look at hidden states came in the {window.span}: each prefill and every n-th engine step of "
        "users' requests is looked at (SPECSCOPE_SAMPLE_EVERY)."
    )


def _counts(
    store: Reads, workspace: str, engine_uid: str, start: datetime, end: datetime, window: Window
) -> Counts | None:
    """Return what was accepted in a period; ``None``: no rollup came."""
    points = store.series(workspace, engine_uid, start, end, window.bucket_s)
    if not points:
        return None
    total = Counts()
    for point in points:
        total.add(point.counts)
    return total


def _doubt(compared: Comparison, earlier: Mapping[Key, Sums]) -> str:
    if not earlier:
        return "No look came in the earlier period, so nothing can be compared with it."
    return "" if compared.baseline_healthy else compared.baseline_reason


def tone_of(compared: Comparison) -> str:
    """Return the tone of all verdicts together; what is like a time that was not healthy is not well."""
    verdicts = {one.verdict for one in compared.drifts}
    if MOVED in verdicts:
        return "warn"
    return "ok" if verdicts == {SAME} and compared.baseline_healthy else "off"


def _summary(compared: Comparison) -> str:
    moved, same = (sum(one.verdict == word for one in compared.drifts) for word in (MOVED, SAME))
    unknown = len(compared.drifts) - moved - same
    told = ((moved, "moved"), (same, "as before"), (unknown, "not known"))
    return ", ".join(f"{number} {word}" for number, word in told if number)


def _moved(one: Drift, earlier: float | None) -> Moved:
    tone = TONES.get(one.verdict, "off")
    return Moved(in_words(one.log2_ratio, one.standard_error), tone, one.verdict, one.reason, earlier)


def _named(one: Drift) -> str:
    place, source, draft_step, slot, after, _ = one.key
    return f"{place} {places.which(place, source, draft_step, slot)} after {after}: {one.reason}"


def in_words(log2_ratio: float | None, standard_error: float | None) -> str:
    """Return a ratio of sizes with its standard error: ``×0.100 ± 0.01``."""
    if log2_ratio is None or standard_error is None:
        return "not enough looks"
    ratio = 2.0**log2_ratio
    return f"×{f'{ratio:#.3g}'.removesuffix('.')} ± {ratio * math.log(2) * standard_error:.1g}"


def time_lines(points: Sequence[HiddenPoint]) -> tuple[list[TimeLine], list[TimeLine], int]:
    """Return lines of what the draft was fed, of what it made of it, and how many tensors have none.

    Sizes are geometric means over looks after verify steps; of what was seen after prefills alone, of these.
    """
    tensors: dict[tuple[str, str, int, int], dict[str, dict[datetime, Sums]]] = {}
    for point in points:
        for (place, source, draft_step, slot, after, _), sums in point.sums.items():
            if place in places.DOES:
                by_after = tensors.setdefault((place, source, draft_step, slot), {})
                by_after.setdefault(after, {}).setdefault(point.start, Sums()).add(sums)
    order = sorted(tensors, key=lambda one: (hidden.PLACES.index(one[0]), one[2:], one[1]))
    # First what is there in any engine: each place once, then draft steps and what else there is.
    fed = [one for one in order if one[0] == hidden.FED]
    inside = sorted((one for one in order if one[0] != hidden.FED), key=lambda one: one[2] > 3)
    drawn = (fed[:DRAWN], inside[:DRAWN])
    made = [[_time_line(one, tensors[one]) for one in half] for half in drawn]
    return made[0], made[1], len(order) - len(drawn[0]) - len(drawn[1])


def _time_line(
    tensor: tuple[str, str, int, int], by_after: Mapping[str, Mapping[datetime, Sums]]
) -> TimeLine:
    after = "verify" if "verify" in by_after else min(by_after)
    place, _, draft_step, slot = tensor
    return TimeLine(
        places.short_name(place, draft_step, slot),
        [(start, _size(sums)) for start, sums in sorted(by_after[after].items())],
    )


def _size(sums: Sums) -> float | None:
    return 2.0 ** (sums.sum_level / sums.levelled) if sums.levelled else None


def _times(lines: Sequence[TimeLine]) -> Iterator[tuple[datetime, tuple[float | None, ...]]]:
    known = [dict(line.points) for line in lines]
    for start in sorted({start for values in known for start in values}, reverse=True):
        yield start, tuple(values.get(start) for values in known)


def _at(one: RankHidden) -> str:
    return "fc's output" if one.place == hidden.FC_OUT else f"slot {one.slot}"


def rank_sentences(groups: Sequence[RankEvidence]) -> Iterator[RankSentence]:
    """Yield a sentence on each slot that ranks of a group told of; none where no two of them did."""
    for group in groups:
        name = f" ({group.name})" if len(groups) > 1 else ""
        for one in group.hidden:
            apart = one.relative_error > rank_divergence.APART
            yield RankSentence(
                "bad" if apart else "ok",
                f"Ranks{name}, {_at(one)}: {f.count(one.compared)} steps compared, relative error "
                f"at most {one.relative_error:.3g} (rank {one.rank}, engine step {f.count(one.step)})"
                + (", more than rounding makes" if apart else ""),
            )

"""What the newest verify steps of a window tell of single proposals, read from a few dozen chunks."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any, Final

from specscope import chunks
from specscope import convention as c
from specscope.columns import CodecError
from specscope.rollup import Counts
from sqlalchemy import Connection, and_, bindparam, func, or_, select

from specscope_server.diagnosis.step_evidence import (
    PREFIX,
    REQUEST,
    Certainty,
    Ids,
    Refusal,
    Shift,
    StepEvidence,
)
from specscope_server.store import schema
from specscope_server.store.prepared import Prepared
from specscope_server.store.step_sums import IdSums, PlaceSums, StepSums, sums_of

log = logging.getLogger(__name__)
MAX_CHUNKS: Final = 60
"""Some thousand steps: what single proposals tell shows in hundreds, and an engine is judged often."""
QUARTERS: Final = ("first", "second", "third", "newest")
_T, _R = schema.step_chunk.c, schema.request.c

_NEWEST: Final = Prepared(
    select(_T.uid, _T.seq, _T.first_step, _T.steps, _R.cached_tokens, _R.prefill_passes, _R.arrival_ns)
    .join(schema.request, and_(_R.engine_uid == _T.engine_uid, _R.uid == _T.uid))
    .where(
        _T.engine_uid == bindparam("engine"),
        _T.end_ns >= bindparam("start"),
        func.length(_T.steps) > 0,
        or_(_R.kind == c.KIND_USER, _R.kind == ""),
    )
    .order_by(_T.end_ns.desc(), _T.uid, _T.process_uid, _T.seq)
    .limit(MAX_CHUNKS)
)


def step_evidence(connection: Connection, engine_uid: str, start_ns: int) -> StepEvidence:
    """Return what the newest :data:`MAX_CHUNKS` chunks of users' requests since ``start_ns`` tell.

    A chunk that cannot be read is left out with a note in the log.
    """
    told: list[tuple[Any, StepSums]] = []
    for row in _NEWEST.rows(connection, {"engine": engine_uid, "start": start_ns}):
        try:
            told.append((row, sums_of(row.steps, row.first_step)))
        except CodecError as error:
            log.warning("request %s: steps of chunk %d cannot be read: %s", row.uid, row.seq, error)
    return put_together(told) if told else StepEvidence()


def put_together(told: Sequence[tuple[Any, StepSums]]) -> StepEvidence:
    """Return the evidence that chunks give; each comes with its row and its request's."""
    slices: dict[str, dict[str, Counts]] = defaultdict(lambda: defaultdict(Counts))
    versions: dict[int, Counts] = defaultdict(Counts)
    undrafted: Counter[str] = Counter()
    arrivals = sorted({(row.arrival_ns, row.uid) for row, _ in told})
    quarter = {uid: QUARTERS[4 * rank // len(arrivals)] for rank, (_, uid) in enumerate(arrivals)}
    for row, sums in told:
        for dimension, values in sums.slices.items():
            for value, counts in values.items():
                slices[dimension][value].add(counts)
        prefix = _prefix(row)
        if prefix:
            slices[PREFIX][prefix].add(sums.counts)
        slices[REQUEST][quarter[row.uid]].add(sums.counts)
        for version, counts in sums.versions.items():
            versions[version].add(counts)
        undrafted.update(sums.undrafted)
    every = [sums for _, sums in told]
    return StepEvidence(
        steps=sum(sums.counts.steps for sums in every),
        requests=len(arrivals),
        ids=_ids([sums.ids for sums in every]),
        shifts=_shifts(every),
        certainty=_certainty([sums.places for sums in every]),
        refusal=_refusal([one for sums in every for one in sums.refused]),
        slices={dimension: dict(values) for dimension, values in slices.items()},
        versions=dict(versions),
        undrafted=dict(undrafted),
    )


def _prefix(row: Any) -> str:
    """Return how the prompt met the prefix cache, empty where it is not known."""
    if row.prefill_passes > 1:
        return "retracted"
    return "" if row.cached_tokens is None else "cached" if row.cached_tokens else "cold"


def _ids(told: Sequence[IdSums]) -> Ids | None:
    steps = sum(one.steps for one in told)
    smallest = min((one.smallest for one in told if one.smallest is not None), default=None)
    largest = max((one.largest for one in told if one.largest is not None), default=None)
    if not steps or smallest is None or largest is None:
        return None
    repeats_of, outside_of = sum(one.repeats_of for one in told), sum(one.outside_of for one in told)
    ids: Counter[int] = Counter()
    for one in told:
        ids.update(one.ids)
    # Only where every step's ids were recorded: a share of some is no share of all.
    whole = sum(one.recorded for one in told) == steps
    mode = ids.most_common(1) if whole else []
    return Ids(
        steps=steps,
        nodes=sum(one.nodes for one in told),
        smallest=smallest,
        largest=largest,
        mode_share=sum(one.mode_share for one in told) / steps,
        even_share=sum(one.even_share for one in told) / steps,
        below_zero=sum(one.below_zero for one in told),
        above_vocab=sum(one.above_vocab for one in told),
        repeats_last=sum(one.repeats_last for one in told) / repeats_of if repeats_of else None,
        distinct=len(ids) if whole else None,
        same_mode=mode[0][1] / ids.total() if mode else None,
        mode_id=mode[0][0] if mode else None,
        outside_draft_vocab=sum(one.outside for one in told) / outside_of if outside_of else None,
    )


def _shifts(told: Iterable[StepSums]) -> tuple[Shift, ...]:
    hits: Counter[int] = Counter()
    of: Counter[int] = Counter()
    for sums in told:
        hits.update(sums.hits)
        of.update(sums.hits_of)
    return tuple(Shift(offset, hits[offset], of[offset]) for offset in chunks.SHIFTS if of[offset])


def _certainty(told: Iterable[Mapping[int, PlaceSums]]) -> tuple[Certainty, ...]:
    found: dict[int, PlaceSums] = defaultdict(PlaceSums)
    for places in told:
        for position, one in places.items():
            place = found[position]
            place.steps += one.steps
            place.top1 += one.top1
            place.entropy += one.entropy
            place.drafted += one.drafted
            place.accepted += one.accepted
    return tuple(
        Certainty(
            position, one.steps, one.top1 / one.steps, one.entropy / one.steps, one.drafted, one.accepted
        )
        for position, one in sorted(found.items())
    )


def _refusal(refused: Sequence[tuple[int, float | None, float | None]]) -> Refusal | None:
    if not refused:
        return None
    target = [one for _, one, _ in refused if one is not None]
    draft = [one for *_, one in refused if one is not None]
    return Refusal(
        steps=len(refused),
        target_rank=median(rank for rank, *_ in refused),
        target_prob=fmean(target) if target else None,
        draft_prob=fmean(draft) if draft else None,
    )

"""What the newest verify steps of a window tell of single proposals, read from a few dozen chunks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from specscope import chunks
from specscope import convention as c
from specscope.columns import CodecError
from specscope.rollup import Counts
from sqlalchemy import Connection, and_, bindparam, func, or_, select

from specscope_server.diagnosis.step_evidence import (
    AFTER,
    LENGTH,
    PREFIX,
    REQUEST,
    SINCE_PREFILL,
    Certainty,
    Ids,
    Refusal,
    Shift,
    StepEvidence,
)
from specscope_server.store import schema
from specscope_server.store import step_sums as sums
from specscope_server.store.prepared import Prepared
from specscope_server.store.step_sums import COUNTS, UNDRAFTED, Added, StepSums, added, sums_of

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
    every = [sums for _, sums in told]
    total = added(every)
    arrivals = sorted({(row.arrival_ns, row.uid) for row, _ in told})
    quarter = {uid: QUARTERS[4 * rank // len(arrivals)] for rank, (_, uid) in enumerate(arrivals)}
    return StepEvidence(
        steps=total.of(COUNTS)[0],
        requests=len(arrivals),
        ids=_ids(every, total),
        shifts=_shifts(total),
        certainty=_certainty(total),
        refusal=_refusal(every, total),
        slices=_slices(every, total, [(_prefix(row), quarter[row.uid]) for row, _ in told]),
        versions=total.versions(),
        undrafted={power: numbers[0] for power, numbers in total.powers(UNDRAFTED)},
    )


def _slices(
    every: Sequence[StepSums], total: Added, requests: Sequence[tuple[str, str]]
) -> dict[str, dict[str, Counts]]:
    """Return counts by dimension and value; ``requests`` are prefix and quarter of each chunk's."""
    found = {
        SINCE_PREFILL: {power: Counts(*told) for power, told in total.powers(sums.SINCE_PREFILL)},
        AFTER: {
            name: Counts(*total.of(sums.AFTER + place))
            for place, name in enumerate(sums.AFTERS)
            if sums.AFTER + place in total.lines
        },
        LENGTH: {power: Counts(*told) for power, told in total.powers(sums.LENGTH)},
        PREFIX: {},
        REQUEST: {},
    }
    by_chunk = np.array([one.lines[0, 1:] for one in every])
    for at, dimension in enumerate((PREFIX, REQUEST)):
        names = [request[at] for request in requests]
        for name in dict.fromkeys(names):
            if name:
                mine = by_chunk[[one == name for one in names]]
                found[dimension][name] = Counts(*mine.sum(axis=0).tolist())
    return {dimension: values for dimension, values in found.items() if values}


def _prefix(row: Any) -> str:
    """Return how the prompt met the prefix cache, empty where it is not known."""
    if row.prefill_passes > 1:
        return "retracted"
    return "" if row.cached_tokens is None else "cached" if row.cached_tokens else "cold"


def _ids(every: Sequence[StepSums], total: Added) -> Ids | None:
    steps, nodes, mode_share, even_share, below_zero, above_vocab, *_ = total.of(sums.IDS)
    repeats, repeats_of, outside, outside_of, recorded, *_ = total.of(sums.IDS_MORE)
    smallest = min((one.smallest for one in every if one.smallest is not None), default=None)
    largest = max((one.largest for one in every if one.largest is not None), default=None)
    if not steps or smallest is None or largest is None:
        return None
    distinct = same_mode = mode_id = None
    # Only where every step's ids were recorded: a share of some is no share of all.
    if recorded == steps:
        ids, counts = np.unique(np.concatenate([one.ids for one in every]), return_counts=True)
        most = int(counts.argmax())
        distinct, mode_id = len(ids), int(ids[most])
        same_mode = int(counts[most]) / int(counts.sum())
    return Ids(
        steps=steps,
        nodes=nodes,
        smallest=smallest,
        largest=largest,
        mode_share=mode_share / sums.SCALE / steps,
        even_share=even_share / sums.SCALE / steps,
        below_zero=below_zero,
        above_vocab=above_vocab,
        repeats_last=repeats / repeats_of if repeats_of else None,
        distinct=distinct,
        same_mode=same_mode,
        mode_id=mode_id,
        outside_draft_vocab=outside / outside_of if outside_of else None,
    )


def _shifts(total: Added) -> tuple[Shift, ...]:
    told = zip(chunks.SHIFTS, total.of(sums.HITS), total.of(sums.HITS_OF), strict=False)
    return tuple(Shift(offset, hits, of) for offset, hits, of in told if of)


def _certainty(total: Added) -> tuple[Certainty, ...]:
    return tuple(
        Certainty(position, steps, top1 / 10_000 / steps, entropy / 1000 / steps, drafted, accepted)
        for position, (steps, top1, entropy, drafted, accepted, *_) in total.places()
    )


def _refusal(every: Sequence[StepSums], total: Added) -> Refusal | None:
    steps, target, target_of, draft, draft_of, *_ = total.of(sums.REFUSED)
    if not steps:
        return None
    return Refusal(
        steps=steps,
        target_rank=float(np.median(np.concatenate([one.ranks for one in every]))),
        target_prob=target / sums.SCALE / target_of if target_of else None,
        draft_prob=draft / sums.SCALE / draft_of if draft_of else None,
    )

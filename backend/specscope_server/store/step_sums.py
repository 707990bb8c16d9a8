"""Sums over the verify steps of one chunk: the parts that the evidence of single proposals has. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final

from specscope import chunks
from specscope.chunks import StepRow
from specscope.rollup import COUNT_FIELDS, Counts, power_slice

from specscope_server.diagnosis.step_evidence import AFTER, LENGTH, SINCE_PREFILL
from specscope_server.store.remembered import Remembered

_UNKNOWN: Final = -1


@dataclass(slots=True)
class IdSums:
    """Sums over steps that have facts of proposed ids; ``ids`` counts them where they were recorded."""

    steps: int = 0
    nodes: int = 0
    smallest: int | None = None
    largest: int | None = None
    mode_share: float = 0.0
    even_share: float = 0.0
    below_zero: int = 0
    above_vocab: int = 0
    repeats_last: int = 0
    repeats_of: int = 0
    recorded: int = 0
    """Steps whose ids themselves were recorded."""
    outside: int = 0
    outside_of: int = 0
    ids: Counter[int] = field(default_factory=Counter[int])


@dataclass(slots=True)
class PlaceSums:
    """Sums at one position: of ``steps`` whose distribution is known, and of drafts after an accepted one."""

    steps: int = 0
    top1: float = 0.0
    entropy: float = 0.0
    drafted: int = 0
    accepted: int = 0


@dataclass(slots=True)
class StepSums:
    """What the steps of one chunk add up to.

    ``refused`` are rank, the target's and the draft's probability of first refused drafts.
    """

    counts: Counts = field(default_factory=Counts)
    slices: dict[str, dict[str, Counts]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Counts))
    )
    versions: dict[int, Counts] = field(default_factory=lambda: defaultdict(Counts))
    undrafted: Counter[str] = field(default_factory=Counter[str])
    ids: IdSums = field(default_factory=IdSums)
    hits: Counter[int] = field(default_factory=Counter[int])
    hits_of: Counter[int] = field(default_factory=Counter[int])
    places: dict[int, PlaceSums] = field(default_factory=lambda: defaultdict(PlaceSums))
    refused: list[tuple[int, float | None, float | None]] = field(
        default_factory=list[tuple[int, float | None, float | None]]
    )


def counts_of(row: StepRow) -> Counts:
    """Return one step as a rollup counts it."""
    return Counts(
        steps=1,
        drafted_depth=row.drafted_depth,
        drafted_nodes=row.drafted_nodes,
        accepted=row.accepted,
        bonus=row.bonus,
        committed=row.committed,
        zero_steps=int(row.drafted_depth > 0 and not row.accepted),
        undrafted_steps=int(not row.drafted_depth),
    )


def sums_of(blob: bytes, first_step: int) -> StepSums:
    """Return the sums over a chunk whose first step is the ``first_step``-th of its request.

    A step that ran after the request had ended counts nowhere.

    Raises:
        CodecError: the chunk cannot be read.
    """
    return _KNOWN.of(first_step.to_bytes(8, "little", signed=True) + blob)


def _opened(told: bytes) -> StepSums:
    return add_up(chunks.unpack_steps(told[8:]), int.from_bytes(told[:8], "little", signed=True))


def add_up(rows: Sequence[StepRow], first_step: int) -> StepSums:
    """Return the sums over ``rows``, as :func:`sums_of`."""
    sums, before = StepSums(), None
    for index, row in enumerate(rows, start=first_step):
        if row.overshoot:
            continue
        one = counts_of(row)
        sums.counts.add(one)
        sums.slices[SINCE_PREFILL][power_slice(index)].add(one)
        sums.slices[LENGTH][power_slice(row.context)].add(one)
        sums.versions[row.weight_version].add(one)
        after = "first" if not index else None if before is None else _after(before)
        if after is not None:
            sums.slices[AFTER][after].add(one)
        before = row
        if not row.drafted_depth:
            sums.undrafted[power_slice(row.context)] += 1
            continue
        _ids(sums.ids, row)
        for offset, hits, of in zip(chunks.SHIFTS, row.shift_hits or (), row.shift_of or (), strict=False):
            sums.hits[offset] += hits
            sums.hits_of[offset] += of
        _places(sums.places, row)
        if row.target_rank is not None:
            sums.refused.append((row.target_rank, row.target_prob, row.draft_prob))
    return sums


def _after(before: StepRow) -> str:
    if not before.drafted_depth or not before.accepted:
        return "none"
    return "all" if before.accepted >= before.drafted_depth else "some"


def _ids(sums: IdSums, row: StepRow) -> None:
    if row.outside_draft_vocab is not None:
        sums.outside += row.outside_draft_vocab
        sums.outside_of += 1
    if row.ids_min is None or row.ids_max is None:
        return
    sums.steps += 1
    sums.nodes += row.drafted_nodes
    sums.smallest = row.ids_min if sums.smallest is None else min(sums.smallest, row.ids_min)
    sums.largest = row.ids_max if sums.largest is None else max(sums.largest, row.ids_max)
    sums.mode_share += row.ids_mode_share or 0.0
    sums.even_share += row.ids_even_share or 0.0
    sums.below_zero += row.ids_below_zero or 0
    sums.above_vocab += row.ids_above_vocab or 0
    if row.ids_repeats_last is not None:
        sums.repeats_last += row.ids_repeats_last
        sums.repeats_of += 1
    if row.draft_tokens:
        sums.recorded += 1
        sums.ids.update(row.draft_tokens)


def _places(places: dict[int, PlaceSums], row: StepRow) -> None:
    top1, entropy = row.draft_top1 or (), row.draft_entropy or ()
    for position, (share, nats) in enumerate(zip(top1, entropy, strict=False)):
        if position >= row.drafted_depth or share == _UNKNOWN or nats == _UNKNOWN:
            continue
        place = places[position]
        place.steps += 1
        place.top1 += share / 10_000
        place.entropy += nats / 1000
        if row.accepted >= position:
            place.drafted += 1
            place.accepted += row.accepted > position


_counts = attrgetter(*COUNT_FIELDS)
_of_ids = attrgetter(*(one.name for one in fields(IdSums) if one.name != "ids"))
_of_place = attrgetter(*(one.name for one in fields(PlaceSums)))


def _packed(sums: StepSums) -> tuple[Any, ...]:
    """Return sums as plain data."""
    return (
        _counts(sums.counts),
        [
            (dimension, value, _counts(one))
            for dimension, all_ in sums.slices.items()
            for value, one in all_.items()
        ],
        [(version, _counts(one)) for version, one in sums.versions.items()],
        dict(sums.undrafted),
        _of_ids(sums.ids),
        dict(sums.ids.ids),
        dict(sums.hits),
        dict(sums.hits_of),
        [(position, _of_place(one)) for position, one in sums.places.items()],
        sums.refused,
    )


def _unpacked(plain: tuple[Any, ...]) -> StepSums:
    """Return the sums of :func:`_packed`."""
    counts, slices, versions, undrafted, of_ids, ids, hits, hits_of, places, refused = plain
    by_dimension: dict[str, dict[str, Counts]] = {}
    for dimension, value, one in slices:
        by_dimension.setdefault(dimension, {})[value] = Counts(*one)
    return StepSums(
        Counts(*counts),
        by_dimension,
        {version: Counts(*one) for version, one in versions},
        _counter(undrafted),
        IdSums(*of_ids, ids=_counter(ids)),
        _counter(hits),
        _counter(hits_of),
        {position: PlaceSums(*one) for position, one in places},
        refused,
    )


def _counter(counted: dict[Any, int]) -> Counter[Any]:
    made: Counter[Any] = Counter()
    dict[Any, int].update(made, counted)  # a counter's own update goes one by one
    return made


_KNOWN: Final = Remembered(_opened, _packed, _unpacked)

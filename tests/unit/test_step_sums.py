"""Sums over verify steps by arrays are those that one gets step by step."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean, median
from types import SimpleNamespace
from typing import Any

import pytest
from specscope.chunks import SHIFTS, StepRow, pack_steps
from specscope.columns import CodecError
from specscope.rollup import Counts, power_slice
from specscope_server.diagnosis.step_evidence import AFTER, LENGTH, PREFIX, REQUEST, SINCE_PREFILL
from specscope_server.store.step_evidence import put_together
from specscope_server.store.step_sums import sums_of
from storekit import facts

CHUNKS = 5


def drawn(dice: random.Random, number: int) -> StepRow:
    """A step of any kind: told in full, in part, without drafts, or after the end of its request."""
    depth = dice.choice((0, 1, 3, 3, 3))
    accepted = dice.randint(0, depth)

    def maybe(value: Any) -> Any:
        return value if dice.random() < 0.8 else None

    return facts.step(
        number,
        drafted_depth=depth,
        drafted_nodes=2 * depth,
        accepted=accepted,
        committed=accepted + 1,
        context=dice.choice((0, 1, 7, 300, 5000)),
        overshoot=int(dice.random() < 0.1),
        weight_version=dice.choice((-1, 0, 0, 7)),
        ids_min=maybe(dice.randint(-(1 << 62), 99)),
        ids_max=maybe(dice.randint(100, 1 << 62)),
        ids_mode_share=maybe(dice.random()),
        ids_even_share=maybe(dice.random()),
        ids_below_zero=maybe(dice.randint(0, 3)),
        ids_above_vocab=maybe(dice.randint(0, 3)),
        ids_repeats_last=maybe(dice.randint(0, 1)),
        shift_hits=maybe([dice.randint(0, 3) for _ in range(dice.choice((5, 5, 3)))]),
        shift_of=maybe([dice.randint(0, 3) for _ in range(5)]),
        draft_top1=maybe([dice.choice((-1, 2000, 9000)) for _ in range(dice.randint(0, 4))]),
        draft_entropy=maybe([dice.choice((-1, 10, 4000)) for _ in range(4)]),
        target_rank=maybe(dice.randint(1, 50)),
        target_prob=maybe(dice.random()),
        draft_prob=maybe(dice.random()),
        outside_draft_vocab=maybe(dice.randint(0, 1)),
        draft_tokens=maybe([dice.randint(0, 3) for _ in range(depth)]),
    )


def told(dice: random.Random) -> list[tuple[Any, list[StepRow]]]:
    found: list[tuple[Any, list[StepRow]]] = []
    for number in range(CHUNKS):
        request = SimpleNamespace(
            uid=f"r{number % 3}",
            arrival_ns=number % 3,
            prefill_passes=1 + (number % 3 == 2),
            cached_tokens=(None, 0, 64)[number % 3],
            first_step=dice.choice((0, 0, 64)),
        )
        found.append((request, [drawn(dice, step) for step in range(dice.choice((1, 8, 64)))]))
    return found


def counts(rows: Sequence[StepRow]) -> Counts:
    total = Counts()
    for row in rows:
        nothing = not row.drafted_depth
        zero = row.drafted_depth > 0 and not row.accepted
        total.add(
            Counts(
                *(1, row.drafted_depth, row.drafted_nodes, row.accepted, row.bonus, row.committed),
                *(int(zero), int(nothing)),
            )
        )
    return total


def sliced(rows: Sequence[tuple[Any, StepRow]]) -> dict[Any, Counts]:
    found: dict[Any, list[StepRow]] = defaultdict(list)
    for value, row in rows:
        if value is not None:
            found[value].append(row)
    return {value: counts(mine) for value, mine in found.items()}


def after(index: int, before: StepRow | None) -> str | None:
    if not index:
        return "first"
    if before is None:
        return None
    if not before.accepted:
        return "none"
    return "all" if before.accepted >= before.drafted_depth else "some"


@pytest.mark.parametrize("seed", range(25))
def test_sums_by_arrays_are_those_step_by_step(seed: int) -> None:
    chunks = told(random.Random(seed))
    packed = [(request, pack_steps(rows, tokens=True)) for request, rows in chunks]
    found = put_together([(request, sums_of(blob, request.first_step)) for request, blob in packed])

    every: list[tuple[Any, int, StepRow, StepRow | None]] = []
    for request, rows in chunks:
        before = None
        for index, row in enumerate(rows, start=request.first_step):
            if not row.overshoot:
                every.append((request, index, row, before))
                before = row
    steps = [row for _, _, row, _ in every]
    assert (found.steps, found.requests) == (len(steps), 3)
    prefixes = {"r0": None, "r1": "cold", "r2": "retracted"}
    quarters = {"r0": "first", "r1": "second", "r2": "third"}
    wanted = {
        SINCE_PREFILL: sliced([(power_slice(index), row) for _, index, row, _ in every]),
        LENGTH: sliced([(power_slice(row.context), row) for row in steps]),
        AFTER: sliced([(after(index, before), row) for _, index, row, before in every]),
        PREFIX: sliced([(prefixes[request.uid], row) for request, _, row, _ in every]),
        REQUEST: sliced([(quarters[request.uid], row) for request, _, row, _ in every]),
    }
    # A chunk of a request counts in its slices though none of its steps does.
    assert {d: {v: c for v, c in of.items() if c.steps} for d, of in found.slices.items()} == wanted
    assert found.versions == sliced([(row.weight_version, row) for row in steps])
    assert found.undrafted == Counter(power_slice(row.context) for row in steps if not row.drafted_depth)
    drafting = [row for row in steps if row.drafted_depth]
    check_ids(found.ids, [row for row in drafting if row.ids_min is not None and row.ids_max is not None])
    for place, offset in enumerate(SHIFTS):
        both = [(row.shift_hits, row.shift_of) for row in drafting if row.shift_hits and row.shift_of]
        hits = [(hit[place], of[place]) for hit, of in both if place < len(hit)]
        [shift] = [one for one in found.shifts if one.offset == offset]
        assert (shift.hits, shift.of) == (sum(hit for hit, _ in hits), sum(of for _, of in hits))
    check_certainty(found.certainty, drafting)
    refused = [row for row in drafting if row.target_rank is not None]
    assert found.refusal is not None
    assert found.refusal.steps == len(refused)
    assert found.refusal.target_rank == median([row.target_rank or 0 for row in refused])
    for name in ("target_prob", "draft_prob"):
        known = [getattr(row, name) for row in refused if getattr(row, name) is not None]
        assert getattr(found.refusal, name) == pytest.approx(fmean(known), abs=1e-6)


def check_ids(ids: Any, rows: list[StepRow]) -> None:
    assert (ids.steps, ids.nodes) == (len(rows), sum(row.drafted_nodes for row in rows))
    assert ids.smallest == min(row.ids_min for row in rows if row.ids_min is not None)
    assert ids.largest == max(row.ids_max for row in rows if row.ids_max is not None)
    for name in ("mode_share", "even_share"):
        share = fmean(getattr(row, f"ids_{name}") or 0.0 for row in rows)
        assert getattr(ids, name) == pytest.approx(share, abs=1e-6)
    assert ids.below_zero == sum(row.ids_below_zero or 0 for row in rows)
    assert ids.above_vocab == sum(row.ids_above_vocab or 0 for row in rows)
    repeats = [row.ids_repeats_last for row in rows if row.ids_repeats_last is not None]
    assert ids.repeats_last == pytest.approx(fmean(repeats))
    # Not of every step: a share of some is no share of all.
    assert (ids.distinct, ids.same_mode, ids.mode_id) == (None, None, None)


def check_certainty(found: Any, rows: list[StepRow]) -> None:
    for one in found:
        at = one.position
        known: list[tuple[int, int, int]] = [
            (row.draft_top1[at], row.draft_entropy[at], row.accepted)
            for row in rows
            if row.draft_top1
            and row.draft_entropy
            and at < min(len(row.draft_top1), len(row.draft_entropy), row.drafted_depth)
            and -1 not in (row.draft_top1[at], row.draft_entropy[at])
        ]
        assert one.steps == len(known)
        assert one.top1 == pytest.approx(fmean(top1 / 10_000 for top1, _, _ in known))
        assert one.entropy == pytest.approx(fmean(entropy / 1000 for _, entropy, _ in known))
        assert one.drafted == sum(accepted >= at for _, _, accepted in known)
        assert one.accepted == sum(accepted > at for _, _, accepted in known)
    assert [one.position for one in found] == [0, 1, 2]


def test_ids_of_every_step_are_counted() -> None:
    rows = [facts.step(0, ids_min=3, ids_max=9, draft_tokens=[3, 9, 3]),
            facts.step(1, ids_min=3, ids_max=5, draft_tokens=[3, 5, 4])]  # fmt: skip
    request = SimpleNamespace(uid="r", arrival_ns=0, prefill_passes=1, cached_tokens=0)
    ids = put_together([(request, sums_of(pack_steps(rows, tokens=True), 0))]).ids
    assert ids is not None
    assert (ids.distinct, ids.same_mode, ids.mode_id) == (4, 0.5, 3)


def test_numbers_that_no_engine_counts_to_are_no_chunk() -> None:
    for odd in ({"committed": 1 << 62}, {"ids_mode_share": 3e30}, {"target_rank": 1, "target_prob": -99.0}):
        told = {"ids_min": 0, "ids_max": 1, **odd}
        with pytest.raises(CodecError, match=next(reversed(odd))):
            sums_of(pack_steps([facts.step(0, **told)], tokens=False), 0)
    with pytest.raises(CodecError, match="first step"):
        sums_of(pack_steps([facts.step(0)], tokens=False), 1 << 50)

"""Hidden states of ranks: held against each other by step and slot, rounding taken off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from specscope import hidden
from specscope_server.diagnosis.model import RankHidden
from specscope_server.store import rank_hidden
from specscope_server.store.port import Store
from storekit import facts

ONE: dict[str, Any] = {"process_uid": "p1", "tp": 1}


def normal(seed: int, deviation: float, *shape: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(0, deviation, shape)


def told(*rows: NDArray[np.float64]) -> tuple[int, ...]:
    """What a rank tells of one row a slot: level and fingerprint by random signs, as the tracer does."""
    found: list[int] = []
    for row in rows:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (hidden.PROJECTIONS, row.size))
        levels, units = hidden.quantise(
            np.array([np.sqrt((row**2).mean())]), (signs @ row / np.sqrt(row.size))[None]
        )
        found += [*levels, *units]
    return tuple(found)


def test_equal_rows_and_their_rounding() -> None:
    row = normal(1, 3, 4096)
    [same] = rank_hidden.compared({5: {0: told(row), 1: told(row)}})
    assert same == RankHidden(0, 1, 0.0, 5, 1, hidden.FED, 0.0)
    # bfloat16 keeps 8 bits: below what counts as apart, whatever the rounding of the wire does.
    [near] = rank_hidden.compared({5: {0: told(row), 1: told(row * (1 + normal(2, 0.004, 4096)))}})
    assert near.relative_error < 0.05


@pytest.mark.parametrize(
    ("factor", "noise", "low", "high"), [(0.5, 0.0, 0.4, 1.0), (1.0, 0.5, 0.2, 1.0), (-1.0, 0.0, 1.2, 3.0)]
)
def test_rows_that_differ(factor: float, noise: float, low: float, high: float) -> None:
    """Eight projections tell the size of a difference to about a third."""
    row = normal(1, 3, 4096)
    other = factor * row + normal(2, 3 * noise, 4096)
    [one] = rank_hidden.compared({5: {0: told(row), 1: told(other)}})
    assert low < one.relative_error < high


def test_the_worst_step_and_rank_of_each_slot() -> None:
    rows = normal(1, 1, 2, 512)
    good, bad = told(rows[0], rows[1]), told(rows[0], -rows[1])
    steps = {3: {0: good, 1: good}, 4: {0: good, 1: good, 2: bad}, 5: {0: good}, 6: {1: good, 2: good}}
    first, second = rank_hidden.compared(steps)
    assert (first.slot, first.compared, first.relative_error) == (0, 3, 0.0)
    assert (second.slot, second.compared, second.step, second.rank) == (1, 3, 4, 2)
    assert second.relative_error == pytest.approx(2.0, abs=1.0)
    assert second.median == 0.0  # one of three steps


def test_the_median_is_that_of_the_steps_whatever_the_ranks() -> None:
    row = normal(1, 1, 512)
    good, bad = told(row), told(-row)
    steps = {step: {0: good, 1: bad if step > 2 else good, 2: good} for step in range(6)}
    [one] = rank_hidden.compared(steps, hidden.FC_OUT)
    assert (one.place, one.compared, one.rank) == (hidden.FC_OUT, 6, 1)
    assert one.median == pytest.approx(one.relative_error / 2)


def test_zeros_on_one_rank_alone_and_on_both() -> None:
    row, nothing = normal(1, 1, 512), np.zeros(512)
    [one] = rank_hidden.compared({5: {0: told(row), 1: told(nothing)}})
    assert one.relative_error > 1
    assert rank_hidden.compared({5: {0: told(nothing), 1: told(nothing)}}) == ()


def test_other_numbers_of_slots_are_not_compared() -> None:
    row = np.ones(64)
    assert rank_hidden.compared({5: {0: told(row), 1: told(row, row)}}) == ()


def _report(
    first: int, looks: Sequence[tuple[int, ...] | None], made: Sequence[tuple[int, ...] | None] = ()
) -> facts.RankReport:
    steps = range(first, first + len(looks))
    sums = facts.pack_ranks(steps, [1] * len(looks), [2] * len(looks), looks, made)
    return facts.RankReport(first, first + len(looks) - 1, 2, facts.ago_ns(5), sums)


def test_ranks_of_the_store_are_compared(store: Store) -> None:
    row = normal(1, 1, 512)
    good, bad = told(row, row), told(row, -row)
    made, other = [told(row)] * 4, [None, *[told(-row)] * 3]
    store.write([facts.batch(_report(3, [good, None, good, good], made), facts.heartbeat(2))], facts.NOW)
    report = _report(3, [good, good, None, bad], other)
    store.write([facts.batch(report, facts.heartbeat(2), **ONE)], facts.NOW)
    found = store.evidence("default", facts.ENGINE, facts.NOW, 300)
    assert found is not None
    [group] = found.ranks
    assert (group.compared, group.first_step) == (4, None)
    first, second, fc = group.hidden
    assert (fc.place, fc.compared, fc.median) == (hidden.FC_OUT, 3, pytest.approx(2.0, abs=1.0))
    assert (first.place, first.slot, first.compared, first.relative_error) == (hidden.FED, 0, 2, 0.0)
    assert (second.slot, second.compared, second.step, second.rank) == (1, 2, 6, 1)

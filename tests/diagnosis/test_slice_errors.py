"""Requests that differ, simulated: how often is a slice of a sound engine called worse?

Every request has a chance of its own (a Beta distribution with the stated correlation within requests) and
a length of its own (geometric); half of them fall into either slice. All windows are of one sound engine.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from evidence_literals import HEALTHY
from specscope import convention as c
from specscope.rollup import ROW
from specscope_server.diagnosis import slice_compare
from specscope_server.diagnosis.slice_compare import BETWEEN, WITHIN, Demand
from specscope_server.diagnosis.statistics import Share, effective, log_evidence

WINDOWS = 1000
REQUESTS = 30
STEPS = 20


def window(seeded: random.Random, mean: float, alike: float) -> tuple[Share, Share, int]:
    """Return both slices of one window, and its requests."""
    size = 1 / alike - 1
    sides = [[0, 0], [0, 0]]
    for at in range(2 * REQUESTS):
        p = seeded.betavariate(mean * size, (1 - mean) * size)
        steps = 1 + min(int(seeded.expovariate(1 / STEPS)), 10 * STEPS)
        sides[at % 2][0] += sum(seeded.random() < p for _ in range(steps))
        sides[at % 2][1] += steps
    (a, n), (b, m) = sides
    return Share(a, n), Share(b, m), 2 * REQUESTS


def alarms(alike: float, demand: Demand, seed: int) -> int:
    """Return how many windows of a sound engine have a slice that is called worse."""
    seeded = random.Random(seed)
    found = 0
    for _ in range(WINDOWS):
        one, other, users = window(seeded, 0.5, alike)
        evidence = replace(HEALTHY, window_requests={c.KIND_USER: users}, counts=_counts(one, other))
        found += any(
            slice_compare.worse(evidence, ROW, ("a", _part(good)), ("b", _part(bad)), demand) is not None
            for good, bad in ((one, other), (other, one))
        )
    return found


def _part(share: Share) -> slice_compare.Counts:
    of, hits = int(share.of), int(share.hits)
    return slice_compare.Counts(steps=of, drafted_depth=of, accepted=hits, zero_steps=of - hits)


def _counts(one: Share, other: Share) -> slice_compare.Counts:
    return slice_compare.total((_part(one), _part(other)))


@pytest.mark.parametrize("alike", [0.1, 0.3])
@pytest.mark.parametrize("demand", [WITHIN, BETWEEN], ids=["within", "between"])
def test_requests_that_differ_raise_no_alarm(alike: float, demand: Demand) -> None:
    assert alarms(alike, demand, seed=11) == 0


@pytest.mark.parametrize("alike", [0.1, 0.3])
def test_the_floor_alone_keeps_alarms_below_one_in_a_hundred_at_a_bound_that_would_allow_ten(
    alike: float,
) -> None:
    """So the error rate does not hang on the correlation being guessed right, nor on the high bound alone."""
    loose = Demand(gap=WITHIN.gap, ratio=1.0, bound=2.303)
    assert alarms(alike, loose, seed=12) <= WINDOWS / 100


def test_unweighed_and_without_a_floor_they_would_be_called_worse_all_the_time() -> None:
    """What the simulation would show if steps were taken for independent: it can tell."""
    seeded = random.Random(13)
    naive = weighed = 0
    for _ in range(WINDOWS):
        one, other, users = window(seeded, 0.5, 0.3)
        high, low = (one, other) if one.value > other.value else (other, one)
        alike = (one.of + other.of) / users
        naive += log_evidence(high, low) >= 2.303
        weighed += log_evidence(effective(high, alike), effective(low, alike), WITHIN.gap) >= 2.303
    assert naive > WINDOWS / 10
    assert weighed <= WINDOWS / 100


def test_a_slice_that_is_truly_bad_is_called_so_among_the_same_requests() -> None:
    seeded = random.Random(14)
    found = 0
    for _ in range(50):
        good, _, _ = window(seeded, 0.7, 0.1)
        bad, _, _ = window(seeded, 0.05, 0.1)
        evidence = replace(HEALTHY, window_requests={c.KIND_USER: 2 * REQUESTS}, counts=_counts(good, bad))
        found += slice_compare.worse(evidence, ROW, ("a", _part(good)), ("b", _part(bad)), WITHIN) is not None
    assert found >= 45

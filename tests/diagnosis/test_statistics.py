"""Shares: published intervals, evidence that holds at every look, steps that are alike."""

from __future__ import annotations

import math
import random

import pytest
from specscope_server.diagnosis import statistics as s
from specscope_server.diagnosis.statistics import Share


def test_wilson_is_the_published_interval() -> None:
    # Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3.
    assert s.wilson(Share(81, 263)) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert s.wilson(Share(15, 148)) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert s.wilson(Share(0, 20)) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_newcombe_is_the_published_interval() -> None:
    # Newcombe 1998, "Interval estimation for the difference", table II, method 10.
    assert s.newcombe(Share(56, 70), Share(48, 80)) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert s.newcombe(Share(9, 10), Share(3, 10)) == pytest.approx((0.1705, 0.8090), abs=5e-5)


def test_no_trial_says_nothing() -> None:
    none = Share(0, 0)
    assert math.isnan(none.value)
    assert s.wilson(none) == (0, 1)
    assert s.newcombe(none, Share(3, 4)) == (-1, 1)
    assert s.log_evidence(Share(3, 4), none) == 0
    assert s.always_valid(none, 0.01) == (0, 1)


@pytest.mark.parametrize("wrong", [(-1, 3), (4, 3)])
def test_what_is_no_share_is_refused(wrong: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="wanted 0 <= hits <= trials"):
        Share(*wrong)


def test_an_interval_that_holds_at_every_look_is_wider_and_narrows() -> None:
    few, many = s.always_valid(Share(30, 100), 0.05), s.always_valid(Share(3000, 10_000), 0.05)
    once = s.wilson(Share(30, 100))
    assert few[0] < once[0] < 0.3 < once[1] < few[1]
    assert few[0] < many[0] < 0.3 < many[1] < few[1]


def test_evidence_grows_with_trials_and_shrinks_with_the_floor() -> None:
    small = s.log_evidence(Share(70, 100), Share(10, 100))
    assert s.log_evidence(Share(700, 1000), Share(100, 1000)) > 8 * small > 0
    assert s.log_evidence(Share(70, 100), Share(10, 100), 0.2) < small
    assert s.log_evidence(Share(10, 100), Share(70, 100)) == 0
    assert s.log_evidence(Share(70, 100), Share(10, 100), 0.6) == 0


def test_looking_again_and_again_gives_no_more_false_alarms_than_stated() -> None:
    seeded = random.Random(7)
    alpha, runs, alarms = 0.1, 200, 0
    for _ in range(runs):
        a = b = 0
        for n in range(1, 121):
            a += seeded.random() < 0.5
            b += seeded.random() < 0.4
            if n % 6 == 0 and s.log_evidence(Share(a, n), Share(b, n), 0.1) >= math.log(1 / alpha):
                alarms += 1
                break
    assert alarms <= alpha * runs


def test_steps_of_a_request_count_less_the_more_there_are() -> None:
    assert s.design_effect(1) == 1
    assert s.design_effect(21) == pytest.approx(3.0)
    weighed = s.effective(Share(60, 90), 21)
    assert (weighed.hits, weighed.of) == pytest.approx((20, 30))
    assert s.effective(Share(1, 1), 21) == Share(1, 1)


def test_how_alike_the_steps_of_requests_are_is_measured() -> None:
    seeded = random.Random(3)
    rho = 0.2
    a = b = (1 / rho - 1) / 2
    requests = [
        (sum(seeded.random() < p for _ in range(20)), 20)
        for p in (seeded.betavariate(a, b) for _ in range(2000))
    ]
    assert s.measured_alike(requests) == pytest.approx(rho, abs=0.02)
    assert s.measured_alike([(10, 10), (0, 10)]) == 1
    assert s.measured_alike([(5, 10)]) is None
    assert s.measured_alike([(10, 10), (10, 10)]) is None

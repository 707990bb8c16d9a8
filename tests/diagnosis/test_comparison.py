"""Two sides held against each other: the numbers by hand, what a changed mix does, and how often it errs."""

from __future__ import annotations

import math
import random

import pytest
from specscope_server.diagnosis import comparison
from specscope_server.diagnosis.comparison import AT_LEAST, BELOW, NOT_SHOWN, Unit, compare, corrected, ratio


def test_the_quantile_is_students() -> None:
    # Tables of Student's t, two-sided 95 %.
    for freedom, wanted in ((5, 2.571), (9, 2.262), (29, 2.045), (10_000, 1.960)):
        assert comparison.t_quantile(0.95, freedom) == pytest.approx(wanted, abs=0.01)


def test_a_ratio_by_hand() -> None:
    found = ratio([Unit(6, 2), Unit(4, 2), Unit(2, 2)])
    assert found is not None
    # 12 / 6 = 2; residuals 2, 0, -2: 3/2 * 8 / 36
    assert (found.value, found.units) == (2.0, 3)
    assert found.variance == pytest.approx(1 / 3)
    low, high = found.interval()
    assert (low + high) / 2 == pytest.approx(2.0)


@pytest.mark.parametrize("units", [[], [Unit(1, 1)], [Unit(0, 0), Unit(0, 0)]])
def test_nothing_is_no_ratio(units: list[Unit]) -> None:
    assert ratio(units) is None
    assert compare(units, [Unit(3, 1)] * 50).verdict(0.5) == NOT_SHOWN


def test_few_requests_show_nothing() -> None:
    found = compare([Unit(30, 10)] * 9, [Unit(10, 10)] * 50)
    assert (found.b_over_a, found.verdict(0.9)) == (None, NOT_SHOWN)
    assert "fewer than 10" in found.why_not


def _requests(dice: random.Random, count: int, good: float, stratum: str = "") -> list[Unit]:
    """Requests whose own chance of acceptance varies, so that steps of one are alike."""
    made: list[Unit] = []
    for _ in range(count):
        chance = min(0.98, max(0.02, dice.gauss(good, 0.12)))
        steps = dice.randint(5, 40)
        made.append(Unit(steps + sum(dice.random() < chance for _ in range(steps)), steps, stratum))
    return made


def test_verdicts() -> None:
    dice = random.Random(1)
    a, worse = _requests(dice, 300, 0.7), _requests(dice, 300, 0.3)
    same = _requests(dice, 300, 0.7)
    assert compare(a, worse).verdict(0.95) == BELOW
    assert compare(a, same).verdict(0.9) == AT_LEAST
    assert compare(a, same).verdict(1.0) == NOT_SHOWN, "equal is never shown to be at least equal"
    assert corrected(a, worse).compared.verdict(0.95) == BELOW


def test_the_interval_holds_what_it_says_although_steps_of_a_request_are_alike() -> None:
    dice, missed, times = random.Random(2), 0, 400
    for _ in range(times):
        found = compare(_requests(dice, 40, 0.6), _requests(dice, 40, 0.6))
        assert found.low is not None
        assert found.high is not None
        missed += not found.low <= 1.0 <= found.high
    # 5 % is stated: of 400, 20 with a standard deviation of 4.4.
    assert missed <= 20 + 4 * math.sqrt(times * 0.05 * 0.95)


def test_more_hard_traffic_is_no_regression() -> None:
    dice = random.Random(3)
    easy_a, hard_a = _requests(dice, 300, 0.8, "easy"), _requests(dice, 100, 0.3, "hard")
    easy_b, hard_b = _requests(dice, 100, 0.8, "easy"), _requests(dice, 300, 0.3, "hard")
    a, b = easy_a + hard_a, easy_b + hard_b
    assert compare(a, b).verdict(0.95) == BELOW, "as it is, B serves worse"
    found = corrected(a, b)
    assert found.compared.verdict(0.95) == AT_LEAST, "the same traffic is served as well"
    assert (found.covered_a, found.covered_b) == (1.0, 1.0)
    assert found.mix["hard"][1] > 2 * found.mix["hard"][0]


def test_traffic_without_a_counterpart_decides_nothing() -> None:
    dice = random.Random(4)
    a = _requests(dice, 200, 0.8, "short")
    b = _requests(dice, 100, 0.8, "short") + _requests(dice, 100, 0.2, "long")
    found = corrected(a, b)
    assert found.compared.verdict(0.95) == NOT_SHOWN
    assert "differs too much" in found.compared.why_not
    assert found.covered_a == 1.0
    assert found.covered_b < 0.8

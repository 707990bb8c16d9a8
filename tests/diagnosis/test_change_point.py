"""Jumps and slopes of acceptance by the minute: found where they are, never in mere variation."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
from history_literals import history
from specscope_server.diagnosis import change_point
from specscope_server.diagnosis.engine_evidence import Moment


def test_the_bound_is_what_the_false_alarms_make_of_it() -> None:
    assert pytest.approx(2.89e-11, rel=0.01) == change_point.ALPHA
    assert math.erfc(change_point.MIN_Z / math.sqrt(2)) <= change_point.ALPHA


def tail_of_t(t: float, freedom: int) -> float:
    """Both tails of Student's t: 2 x the integral of its density over y = 1/x."""
    scale = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)
    points = [(n + 0.5) / 20_000 / t for n in range(20_000)]
    return (
        2
        * sum(scale * (1 + 1 / y / y / freedom) ** (-(freedom + 1) / 2) / y / y for y in points)
        / 20_000
        / t
    )


@pytest.mark.parametrize(("t", "freedom"), [(2.228, 10), (9.687, 10), (8.0, 30), (30.0, 8), (9.0, 100)])
def test_a_students_t_becomes_as_unlikely_a_normal_deviate(t: float, freedom: int) -> None:
    assert 2 * NormalDist().cdf(-change_point.normal(t, freedom)) == pytest.approx(
        tail_of_t(t, freedom), rel=0.5
    )


@pytest.mark.parametrize("seed", range(40))
def test_traffic_that_only_varies_has_no_change(seed: int) -> None:
    """Requests differ a lot among each other, and last into the next minute (every other is as the last)."""
    moments = history([0.7] * 45, seed, spread=0.25, requests=4)
    doubled = tuple(Moment(m.start + 60 * (n % 2), m.counts) for m in moments for n in (0, 1))
    for told in (moments, doubled[:90]):
        assert change_point.jump(told) is None
        assert change_point.slope(told) is None


@pytest.mark.parametrize("seed", range(10))
def test_a_fall_is_found_at_its_minute(seed: int) -> None:
    moments = history([0.7] * 20 + [0.4] * 10, seed)
    found = change_point.jump(moments)
    assert found is not None
    assert found.at == moments[20].start
    assert found.minutes == (20, 10)
    assert 0.4 < found.lost < 0.8
    assert found.before == pytest.approx(1.8, abs=0.25)


def test_a_slope_is_no_jump_and_a_jump_no_slope() -> None:
    sinking = history([0.75 - 0.006 * n for n in range(60)], 3)
    found = change_point.slope(sinking)
    assert found is not None and 0.4 < found.lost < 0.9
    assert change_point.slope(history([0.7] * 30 + [0.4] * 30, 3)) is None


def test_few_minutes_or_few_steps_prove_nothing() -> None:
    assert change_point.jump(history([0.7] * 3 + [0.0] * 2)) is None
    assert change_point.jump(history([0.7] * 30 + [0.0] * 9, requests=1, steps=20)) is None
    assert change_point.jump(()) is None and change_point.slope(()) is None


def test_equal_minutes_have_no_change() -> None:
    (one,) = history([0.7])
    same = [Moment(one.start + 60 * n, one.counts) for n in range(30)]
    assert change_point.jump(same) is None
    assert change_point.slope(same) is None

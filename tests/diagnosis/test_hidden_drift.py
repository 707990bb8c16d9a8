"""Hidden states against an earlier period, from literals: same, moved, and not known."""

from __future__ import annotations

import math
from typing import Any

import pytest
from specscope.hidden_rollup import Sums
from specscope.rollup import Counts
from specscope_server.diagnosis import hidden_drift, hidden_evidence
from specscope_server.diagnosis.hidden_drift import MOVED, SAME, UNKNOWN, Comparison, Drift

KEY = ("draft.extend", "target_fed", 0, 0, "verify", "eager")
HEALTHY = Counts(steps=100, drafted_depth=300, accepted=180, bonus=100)


def looks(count: int = 100, rms: float = 4.0, deviation: float = 0.3, **changed: Any) -> Sums:
    """Looks of two rows each, whose sizes spread by ``deviation`` octaves around ``rms``."""
    level = math.log2(rms)
    values: dict[str, Any] = {
        "looks": count,
        "rows": 2 * count,
        "levelled": count,
        "sum_square": 2 * count * rms**2,
        "max_abs": 3 * rms,
        "sum_level": count * level,
        "sum_level2": count * (level**2 + deviation**2),
    }
    return Sums(**(values | changed))


def compared(now: Sums | None, before: Sums | None, counts: Counts | None = HEALTHY) -> Comparison:
    current, earlier = (hidden_evidence.of({} if sums is None else {KEY: sums}) for sums in (now, before))
    return hidden_drift.compare(current, earlier, counts)


def drift(now: Sums | None, before: Sums | None) -> Drift:
    [one] = compared(now, before).drifts
    return one


def test_identical_periods_do_not_move() -> None:
    one = drift(looks(), looks())
    assert (one.verdict, one.log2_ratio) == (SAME, 0.0)
    assert one.standard_error == pytest.approx(0.3 * math.sqrt(2 / 99))


@pytest.mark.parametrize(("factor", "octaves"), [(0.1, -3.3219), (8.0, 3.0), (0.5, -1.0)])
def test_another_size_moves_by_its_octaves(factor: float, octaves: float) -> None:
    one = drift(looks(rms=4.0 * factor), looks())
    assert (one.verdict, one.reason.split(";")[1]) == (MOVED, " moved: size")
    assert one.log2_ratio == pytest.approx(octaves, abs=1e-4)


def test_a_little_larger_is_the_same() -> None:
    assert drift(looks(rms=4.8), looks()).verdict == SAME


@pytest.mark.parametrize(
    ("now", "before"),
    [
        (looks(7), looks()),
        (looks(), looks(7)),
        (None, looks()),
        (looks(), None),
        (looks(levelled=7, sum_level=14.0, sum_level2=28.0), looks()),
    ],
)
def test_too_few_looks_are_not_known(now: Sums | None, before: Sums | None) -> None:
    one = drift(now, before)
    assert (one.verdict, one.log2_ratio, one.standard_error) == (UNKNOWN, None, None)


def test_looks_that_spread_too_much_decide_nothing() -> None:
    one = drift(looks(10, deviation=3.0), looks(10, rms=6.0, deviation=3.0))
    assert one.verdict == UNKNOWN
    assert one.log2_ratio == pytest.approx(math.log2(4 / 6))


def test_a_spread_alone_does_not_hide_a_large_move() -> None:
    assert drift(looks(10, deviation=1.0), looks(10, rms=400.0, deviation=1.0)).verdict == MOVED


def test_rows_of_zeros_move_though_they_have_no_size() -> None:
    zero = looks(levelled=0, sum_square=0.0, max_abs=0.0, sum_level=0.0, sum_level2=0.0, zero_rows=200)
    one = drift(zero, looks())
    assert (one.verdict, one.log2_ratio) == (MOVED, None)
    assert [(share.name, share.now, share.baseline, share.verdict) for share in one.shares] == [
        ("zero_share", 1.0, 0.0, MOVED),
        ("equal_share", 0.0, 0.0, SAME),
    ]


def test_stale_rows_move() -> None:
    one = drift(looks(equal_rows=90), looks(equal_rows=2))
    assert (one.verdict, one.reason) == (MOVED, "+0.00 ± 0.04 octaves; moved: equal rows")


def test_looks_of_one_row_have_none_before_it() -> None:
    single = looks(rows=100)
    assert [share.name for share in drift(single, single).shares] == ["zero_share"]


def test_a_few_zero_rows_in_few_looks_are_not_known() -> None:
    assert drift(looks(10, zero_rows=2), looks(10)).verdict == UNKNOWN


@pytest.mark.parametrize(
    ("counts", "healthy", "length", "reason"),
    [
        (HEALTHY, True, 2.8, ""),
        (None, False, None, "no verify step ran in the baseline"),
        (Counts(), False, None, "no verify step ran in the baseline"),
        (Counts(steps=50, drafted_depth=150, accepted=1, bonus=50), False, 1.02, "was 1.02, below 1.2"),
        (Counts(steps=50, drafted_depth=150, accepted=10, bonus=50), True, 1.2, ""),
    ],
)
def test_the_baseline_says_whether_it_was_healthy_itself(
    counts: Counts | None, healthy: bool, length: float | None, reason: str
) -> None:
    found = compared(looks(), looks(), counts)
    assert (found.baseline_healthy, found.baseline_length) == (healthy, length)
    assert found.baseline_reason.count(reason) >= 1 and bool(found.baseline_reason) is not healthy


def test_each_place_of_either_period_is_told() -> None:
    other = (*KEY[:3], 1, *KEY[4:])
    found = hidden_drift.compare(
        hidden_evidence.of({KEY: looks()}), hidden_evidence.of({other: looks()}), HEALTHY
    )
    assert [(one.key, one.looks, one.baseline_looks) for one in found.drifts] == [
        (KEY, 100, 0),
        (other, 0, 100),
    ]


def test_shares_that_no_rows_have_are_compared_all_the_same() -> None:
    """A store may hold sums that somebody made up; they must not take the page with them."""
    made_up = looks(zero_rows=2000, equal_rows=2000)
    assert drift(made_up, looks()).verdict == MOVED
    assert drift(made_up, made_up).verdict == SAME


def test_values_that_are_not_finite_are_never_the_same_as_before() -> None:
    """A row with one NaN keeps its size, which the finite values alone make."""
    broken = looks(nonfinite=3)
    for now, before in ((broken, looks()), (looks(), broken)):
        assert (drift(now, before).verdict, drift(now, before).reason) == (
            MOVED,
            "+0.00 ± 0.04 octaves; moved: values not finite",
        )
    assert drift(broken, broken).verdict == SAME

"""Monotonic readings and wall time."""

import time

from hypothesis import given
from hypothesis import strategies as st
from specscope.clock import SKEW_FLAG_NS, Anchor, is_skewed

NS = st.integers(0, 1 << 62)


@given(NS, NS, st.integers(-(1 << 60), 1 << 60))
def test_a_monotonic_distance_is_a_wall_distance(monotonic: int, wall: int, distance: int) -> None:
    anchor = Anchor(monotonic, wall)
    assert anchor.wall(monotonic) == wall
    assert anchor.wall(monotonic + distance) - anchor.wall(monotonic) == distance


def test_now_lies_between_readings_around_it() -> None:
    before = time.monotonic_ns(), time.time_ns()
    anchor = Anchor.now()
    after = time.monotonic_ns(), time.time_ns()
    assert before[0] <= anchor.monotonic_ns <= after[0]
    assert before[1] <= anchor.wall_ns <= after[1]


@given(NS, st.integers(0, 2 * SKEW_FLAG_NS))
def test_skew_is_flagged_beyond_five_minutes_both_ways(received: int, distance: int) -> None:
    assert is_skewed(received + distance, received) == (distance > 300_000_000_000)
    assert is_skewed(received - distance, received) == (distance > 300_000_000_000)

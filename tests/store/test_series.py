"""Acceptance over time: sums by bucket, gaps that stay gaps."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from specscope.rollup import ALL, STEP, Counts
from specscope_server.store.port import Store
from specscope_server.store.told import RollupIncrement
from specscope_server.store.values import engine_uid
from storekit import facts


def _at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _told(seq: int, bucket: int, steps: int, deep: int = 0) -> RollupIncrement:
    rows = {(ALL, "", STEP): Counts(steps=steps, drafted_depth=3 * steps)}
    if deep:
        rows[ALL, "", 2] = Counts(steps=deep, accepted=1)
    rows["mode", "eager", STEP] = Counts(steps=1000)
    return RollupIncrement(seq, bucket, rows)


def test_buckets_add_up_to_wider_ones_and_gaps_stay_gaps(store: Store) -> None:
    told = [_told(1, 1000, 1), _told(2, 1010, 2, deep=2), _told(3, 1050, 4), _told(4, 1120, 8)]
    store.write([facts.batch(*told)], facts.NOW)
    narrow = store.series("default", None, _at(1000), _at(1200), 10)
    assert [(p.start, p.counts.steps) for p in narrow] == [
        (_at(1000), 1),
        (_at(1010), 2),
        (_at(1050), 4),
        (_at(1120), 8),
    ]
    assert narrow[1].positions == ((0, 0), (0, 0), (2, 1))
    wide = store.series("default", None, _at(1000), _at(1200), 60)
    assert [(p.start, p.counts.steps) for p in wide] == [(_at(960), 3), (_at(1020), 4), (_at(1080), 8)]


def test_since_is_rounded_down_to_a_bucket_and_until_is_left_out(store: Store) -> None:
    store.write([facts.batch(_told(1, 1000, 1), _told(2, 1010, 2), _told(3, 1020, 4))], facts.NOW)
    assert [p.counts.steps for p in store.series("default", None, _at(1013), _at(1020), 10)] == [2]
    assert [p.counts.steps for p in store.series("default", None, _at(1013), _at(1021), 10)] == [2, 4]


def test_engines_add_up_or_stand_alone(store: Store) -> None:
    store.write([facts.batch(_told(1, 1000, 1))], facts.NOW)
    store.write([facts.batch(_told(1, 1000, 2), instance="second")], facts.NOW)
    second = engine_uid("default", "test", "second")
    for chosen, steps in ((None, 3), (facts.ENGINE, 1), (second, 2)):
        (point,) = store.series("default", chosen, _at(1000), _at(1010), 10)
        assert point.counts.steps == steps


@pytest.mark.parametrize("width", [0, -10, 15])
def test_other_widths_are_refused(store: Store, width: int) -> None:
    with pytest.raises(ValueError, match=f"bucket width is {width} s"):
        store.series("default", None, _at(0), _at(10), width)

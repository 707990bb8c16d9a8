"""Acceptance over time: sums by bucket, gaps that stay gaps."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest
from specscope.rollup import ALL, CONTEXT, STEP, Counts, Key
from specscope_server.store.model import SeriesPoint
from specscope_server.store.port import Store
from specscope_server.store.sliced import MOST
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


def _random(seed: int) -> list[RollupIncrement]:
    dealt = random.Random(seed)
    return [
        RollupIncrement(
            seq,
            10 * dealt.randrange(100, 220),
            {
                (ALL, "", STEP): Counts(steps=dealt.randrange(9), accepted=dealt.randrange(5)),
                (ALL, "", dealt.randrange(4)): Counts(steps=1, accepted=dealt.randrange(2)),
                (CONTEXT, f"{dealt.choice([1, 2, 4])}-x", 1): Counts(steps=dealt.randrange(3)),
            },
        )
        for seq in range(200)
    ]


def _added(points: list[SeriesPoint], width: int) -> dict[int, tuple[Counts, dict[int, tuple[int, int]]]]:
    """Sums of narrow points in wider buckets."""
    found: dict[int, tuple[Counts, dict[int, tuple[int, int]]]] = {}
    for point in points:
        counts, places = found.setdefault(int(point.start.timestamp()) // width * width, (Counts(), {}))
        counts.add(point.counts)
        for place, (drafted, accepted) in enumerate(point.positions):
            before = places.get(place, (0, 0))
            places[place] = before[0] + drafted, before[1] + accepted
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_sums_by_the_minute_and_by_10_s_agree_on_every_window(store: Store, seed: int) -> None:
    store.write([facts.batch(*_random(seed))], facts.NOW)
    for since, until in ((960, 2220), (1000, 2203), (1013, 1999), (1020, 1080), (1075, 1085), (1200, 1200)):
        for width in (60, 120, 300, 3600):
            first = since // width * width
            narrow = store.series("default", None, _at(first), _at(until), 10)
            wide = store.series("default", None, _at(since), _at(until), width)
            assert _added(wide, width) == _added(narrow, width), (since, until, width)
        counts = store.counts("default", facts.ENGINE, _at(since), _at(until))
        steps = [p.counts.steps for p in store.series("default", None, _at(since), _at(until), 10)]
        assert (counts.steps if counts else 0) == sum(steps)


def test_slices_have_series_of_their_own_in_order(store: Store) -> None:
    store.write(
        [
            facts.batch(
                RollupIncrement(1, 1000, {("batch", s, STEP): Counts(steps=n) for s, n in BATCHES.items()}),
                RollupIncrement(2, 1010, {("batch", "16-31", STEP): Counts(steps=7)}),
                RollupIncrement(3, 1010, {(ALL, "", STEP): Counts(steps=99)}),
            )
        ],
        facts.NOW,
    )
    window = (_at(1000), _at(1100))
    found = store.sliced("default", None, *window, 10, "batch")
    assert list(found.series) == ["1", "2-3", "16-31", "odd"]
    assert [(p.start, p.counts.steps) for p in found.series["16-31"]] == [(_at(1000), 3), (_at(1010), 7)]
    assert found.left_out == 0
    for width in (10, 60):
        one = store.sliced("default", None, *window, width, "batch", "2-3")
        assert [p.counts.steps for p in one.series["2-3"]] == [2]
    assert store.sliced("default", None, *window, 10, "row").series == {}
    assert store.sliced("default", None, *window, 10, "batch", "x\0'; --").series == {}
    assert store.sliced("elsewhere", None, *window, 10, "batch").series == {}


BATCHES = {"16-31": 3, "1": 1, "odd": 4, "2-3": 2}


def test_of_many_slices_those_with_most_steps_are_told(store: Store) -> None:
    rows: dict[Key, Counts] = {("mode", f"m{n:03}", STEP): Counts(steps=n + 1) for n in range(MOST + 6)}
    store.write([facts.batch(RollupIncrement(1, 1000, rows))], facts.NOW)
    found = store.sliced("default", None, _at(1000), _at(1060), 60, "mode")
    assert (len(found.series), found.left_out) == (MOST, 6)
    assert next(iter(found.series)) == "m006"


def test_one_position_comes_without_the_others(store: Store) -> None:
    rows: dict[Key, Counts] = {
        (CONTEXT, "8-15", place): Counts(steps=10 - place, accepted=5 - place) for place in (STEP, 0, 1, 2)
    }
    store.write([facts.batch(RollupIncrement(1, 1020, rows))], facts.NOW)
    whole = store.sliced("default", None, _at(1020), _at(1080), 60, CONTEXT)
    assert whole.series["8-15"][0].positions == ((10, 5), (9, 4), (8, 3))
    one = store.sliced("default", None, _at(1020), _at(1080), 60, CONTEXT, None, 1)
    assert one.series["8-15"][0].positions == ((0, 0), (9, 4))
    assert one.series["8-15"][0].counts.steps == 11

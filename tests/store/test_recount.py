"""Rollups against a recount from chunks: the tracer's traffic, shuffled and doubled, and planted errors."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from specscope import convention as c
from specscope import records as r
from specscope.exporter.pipeline import Pipeline
from specscope.rollup import ALL, CONTEXT
from specscope_server.ingest import traces
from specscope_server.store import open_store, schema
from specscope_server.store.databases import database
from specscope_server.store.keep import Keep
from specscope_server.store.recount import NOT_KEPT, SUMS_NOT_KEPT, WINDOW_S, Recount, recount
from specscope_server.store.recount_coverage import MISSING, ODD, UNKNOWN, Gaps
from specscope_server.store.told import Batch, Told
from specscope_server.store.values import engine_uid, from_ns
from sqlalchemy import Delete, Update, delete, select, update
from storekit import facts
from wirekit import traffic

ENGINE = engine_uid("default", "default", traffic.INSTANCE)
EVERY = 20
"""Seconds from one short request to the next: each is in a bucket of its own."""
REQUESTS = 32
"""Enough for two windows of the recount."""
START = traffic.WALL // facts.SECOND // 10 * 10
BUCKETS = [START + EVERY * number for number in range(REQUESTS)]
SECOND = 1000 * traffic.MS


def _records() -> Iterator[r.Record]:
    """One long request, short ones beside it, a health check, steps beyond an end; 4 steps a second."""
    t = traffic.MONOTONIC
    yield traffic.engine(t)
    yield traffic.started("long", t)
    yield traffic.started("health", t, kind=c.KIND_HEALTH_CHECK)
    step = 0
    for second in range(0, EVERY * REQUESTS, EVERY):
        name, at = f"short-{second}", t + second * SECOND
        yield traffic.started(name, at, arrival=traffic.WALL + second * SECOND)
        for part in range(4):
            step += 1
            batch = ("long", name, "health") if part < 2 else ("long", name)
            yield traffic.verify(step, at + part * 400 * traffic.MS, batch, accepted=(step + second) % 4)
        yield traffic.finished(name, at + 1700 * traffic.MS, 9)
        step += 1
        yield traffic.verify(step, at + 1800 * traffic.MS, (name,), overshoot=True)


def _spans(detail: str = c.DETAIL_STEPS) -> list[ReadableSpan]:
    found: list[ReadableSpan] = []
    pipeline = Pipeline(traffic.hello(detail), found.append)
    ticked = traffic.MONOTONIC
    for record in _records():
        while record.t_ns > ticked + SECOND:
            ticked += SECOND
            pipeline.tick(ticked)
        pipeline.take(record, record.t_ns)
    pipeline.tick(ticked + SECOND, last=True)
    return found


SPANS = _spans()


def _exports(spans: Sequence[ReadableSpan], size: int = 100) -> list[Sequence[Told]]:
    exports = [traces.read(encode_spans(spans[at : at + size])) for at in range(0, len(spans), size)]
    assert not any(tally.rejected for _, tally in exports)
    return [batches for batches, _ in exports]


@cache
def _told() -> Sequence[Sequence[Told]]:
    return _exports(SPANS)


def _filled(url: str, exports: Sequence[Sequence[Told]], *changes: Update | Delete) -> Recount:
    store = open_store(url)
    for batches in exports:
        store.write(batches, facts.NOW)
    store.close()
    return _recounted(url, *changes)


def _recounted(url: str, *changes: Update | Delete) -> Recount:
    opened = database(url)
    for change in changes:
        opened.write(lambda connection, change=change: _one_row(connection.execute(change).rowcount))
    with opened.read() as connection:
        found = recount(connection)
    opened.close()
    return found


def _one_row(count: int) -> None:
    assert count == 1


def _first_chunk(*names: str) -> Delete:
    chunk = schema.step_chunk
    uids = [traffic.uid(name) for name in names]
    return delete(chunk).where(chunk.c.uid.in_(uids), chunk.c.seq == 0)


def test_what_the_tracer_tells_adds_up_shuffled_and_doubled(store_url: str) -> None:
    dealt = [*SPANS, *SPANS[::3]]
    random.Random(5).shuffle(dealt)
    exports = _exports(dealt)
    found = _filled(store_url, [*exports, exports[0]])
    assert found.differences == []
    assert not found.not_judged
    assert found.buckets == len(BUCKETS)
    assert found.minutes == len({bucket // 60 for bucket in BUCKETS})
    # Four steps of the long and of each short request; neither health checks nor overshoot.
    assert found.steps == 8 * REQUESTS
    assert BUCKETS[0] // WINDOW_S < BUCKETS[-1] // WINDOW_S


@pytest.mark.parametrize("dimension", [ALL, CONTEXT])
def test_a_planted_error_is_found_where_it_is(store_url: str, dimension: str) -> None:
    rollup = schema.rollup_10s.c
    bucket = BUCKETS[5]
    store = open_store(store_url)
    for batches in _told():
        store.write(batches, facts.NOW)
    store.close()
    opened = database(store_url)
    with opened.read() as connection:
        chosen = connection.execute(
            select(rollup.slice)
            .where(rollup.dimension == dimension, rollup.bucket == bucket, rollup.position == -1)
            .order_by(rollup.slice)
        ).scalars().first()  # fmt: skip
    opened.close()
    planted = (
        update(schema.rollup_10s)
        .where(
            rollup.dimension == dimension,
            rollup.slice == chosen,
            rollup.position == -1,
            rollup.bucket == bucket,
        )
        .values(accepted=rollup.accepted + 1)
    )
    found = _recounted(store_url, planted)
    minute, ten = found.differences
    assert (ten.table, ten.engine_uid, ten.bucket, ten.key) == (
        "rollup_10s",
        ENGINE,
        bucket,
        (dimension, chosen, -1),
    )
    assert ten.stored.accepted == ten.wanted.accepted + 1
    assert f"accepted is {ten.stored.accepted}, not {ten.wanted.accepted}" in str(ten)
    # The minute's sum was right, and is now not that of its parts any more.
    assert (minute.table, minute.bucket, minute.key) == (
        "rollup_60s",
        bucket // 60 * 60,
        (dimension, chosen, -1),
    )


def test_an_increment_that_was_added_twice_is_found(store_url: str) -> None:
    rollup = schema.rollup_60s.c
    doubled = (
        update(schema.rollup_60s)
        .where(
            rollup.dimension == ALL,
            rollup.position == 0,
            rollup.bucket == START // 60 * 60,
        )
        .values(steps=2 * rollup.steps)
    )
    (found,) = _filled(store_url, _told(), doubled).differences
    assert (found.table, found.key) == ("rollup_60s", (ALL, "", 0))
    assert found.stored.steps == 2 * found.wanted.steps


def test_a_lost_rollup_differs_and_a_lost_chunk_is_not_judged(store_url: str) -> None:
    rollups = [span for span in SPANS if span.name == c.SPAN_ROLLUP]
    without = [span for span in SPANS if span is not rollups[3]]
    store = open_store(store_url)
    for batches in _exports(without):
        store.write(batches, facts.NOW)
    store.close()
    lost = _recounted(store_url)
    assert lost.differing > 0
    assert len({(d.table, d.bucket) for d in lost.differences}) == 1
    assert not lost.not_judged
    short = _recounted(store_url, _first_chunk("short-60"))
    assert short.not_judged == {MISSING: 1}, "the bucket in which that request ran, and no other"
    long = _recounted(store_url, _first_chunk("long"))
    assert long.not_judged == {MISSING: len(BUCKETS)}
    assert (long.buckets, [d for d in long.differences if d.table == "rollup_10s"]) == (0, [])


def test_what_cannot_be_held_against_anything_is_said(store_url: str) -> None:
    chunk, request = schema.step_chunk, schema.request
    of = traffic.uid("short-60")
    exports = _told()
    untold = update(request).where(request.c.uid == of).values(verify_steps=0)
    assert set(_filled(store_url, exports, untold).not_judged) == {UNKNOWN}
    torn = update(chunk).where(chunk.c.uid == traffic.uid("short-80"), chunk.c.seq == 0).values(steps=b"torn")
    assert set(_recounted(store_url, torn).not_judged) == {UNKNOWN, MISSING}
    late = update(chunk).where(chunk.c.uid == traffic.uid("short-100"), chunk.c.seq == 0).values(
        end_ns=chunk.c.start_ns
    )  # fmt: skip
    found = _recounted(store_url, late)
    assert set(found.not_judged) == {UNKNOWN, MISSING, ODD}
    assert found.differences == []


def test_chunks_that_are_not_kept_any_more_are_no_difference(store_url: str) -> None:
    chunk, request = schema.step_chunk, schema.request
    store = open_store(store_url)
    for batches in _told():
        store.write(batches, facts.NOW)
    store.close()
    forgotten = traffic.WALL + 300 * facts.SECOND
    opened = database(store_url)
    opened.write(
        lambda connection: _some(connection.execute(delete(chunk).where(chunk.c.end_ns < forgotten)).rowcount)
    )
    opened.write(
        lambda connection: _some(
            connection.execute(delete(request).where(request.c.end_ns < forgotten)).rowcount
        )
    )
    with opened.read() as connection:
        found = recount(connection)
    opened.close()
    assert found.differences == []
    assert set(found.not_judged) <= {NOT_KEPT, MISSING}
    assert found.not_judged[NOT_KEPT] == 300 // EVERY + 1, "and the bucket at the limit"


@pytest.mark.parametrize("days", [(60, 30, 400), (60, 60, 30), (30, 30, 30), (1, 60, 60), (0, 1, 0)])
def test_ages_in_any_order_make_no_differences(store_url: str, days: tuple[int, int, int]) -> None:
    """What one table still keeps and another one does not is no error of either."""
    steps, requests, rollups = days
    store = open_store(store_url, keep=Keep(steps, requests, rollups, 400, 0, 0))
    first = min(day for day in days if day)
    halfway = START + EVERY * REQUESTS // 2 + 2
    with closing(store):
        store.write([batch for batches in _told() for batch in batches], from_ns(traffic.WALL))
        for _ in store.prune(from_ns((halfway + first * 86_400) * facts.SECOND)):
            pass
    opened = database(store_url)
    with opened.read() as connection:
        found = recount(connection)
    opened.close()
    assert [str(one) for one in found.differences] == []
    assert found.not_judged


def test_sums_that_lack_although_they_are_young_are_found(store_url: str) -> None:
    _filled(store_url, _told())
    opened = database(store_url)
    early = schema.rollup_10s.c.bucket < BUCKETS[3]
    opened.write(
        lambda connection: _some(connection.execute(delete(schema.rollup_10s).where(early)).rowcount)
    )
    with opened.read() as connection:
        found = recount(connection, now_s=BUCKETS[-1] + 60)
        later = recount(connection, now_s=BUCKETS[-1] + 90_000)
    opened.close()
    assert {one.bucket for one in found.differences if one.table == "rollup_10s"} == set(BUCKETS[:3])
    assert later.not_judged == {SUMS_NOT_KEPT: 3}


def _some(count: int) -> None:
    assert count > 0


@pytest.mark.parametrize("reason", ["buffer_full", "queue_full"])
def test_an_engine_whose_tracer_dropped_spans_is_not_judged(store_url: str, reason: str) -> None:
    beat = facts.heartbeat(dropped={reason: 3})
    told = (batch for batches in _told() for batch in batches)
    process = next(batch.process for batch in told if isinstance(batch, Batch))
    found = _filled(store_url, [*_told(), [facts.batch(beat, process=process)]])
    if reason == "queue_full":  # records lost before they were told are in neither
        assert not found.not_judged
        return
    (why,) = found.not_judged
    assert "buffer_full" in why
    assert found.buckets == 0
    assert found.minutes > 0, "sums by the minute need no chunks"


def test_an_engine_without_steps_is_not_judged(store_url: str) -> None:
    found = _filled(store_url, _exports(_spans(c.DETAIL_SUMMARY)))
    (why,) = found.not_judged
    assert "detail level summary" in why
    assert (found.buckets, found.differing) == (0, 0)


def test_only_the_time_asked_for_is_judged(store_url: str) -> None:
    store = open_store(store_url)
    for batches in _told():
        store.write(batches, facts.NOW)
    store.close()
    opened = database(store_url)
    with opened.read() as connection:
        found = recount(connection, engine_uid=ENGINE, since_s=START + 40, until_s=START + 200)
        assert recount(connection, engine_uid="nobody") == Recount()
    opened.close()
    assert (found.buckets, found.differing) == (160 // EVERY, 0)
    assert found.minutes == 2, "those that lie wholly in it"


def test_gaps_of_many_requests_stay_few_ranges() -> None:
    gaps = Gaps()
    for number in range(20_000):
        gaps.add(MISSING, number * 5 * facts.SECOND, (number * 5 + 2) * facts.SECOND)
    gaps.add(UNKNOWN, 200_000 * facts.SECOND, 200_000 * facts.SECOND)
    assert len(gaps.close().found[MISSING]) == 1
    assert gaps.reason(99_990) == MISSING
    assert gaps.reason(200_000) == UNKNOWN
    assert gaps.reason(150_000) == gaps.reason(200_010) == ""

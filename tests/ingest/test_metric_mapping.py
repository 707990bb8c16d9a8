"""OTLP metric points become heartbeats; bad points are refused one at a time."""

from __future__ import annotations

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
)
from serverkit import otlp
from specscope import convention as c
from specscope_server.ingest import metrics
from specscope_server.store.told import BoundaryTotal


def test_one_collection_is_one_heartbeat() -> None:
    [batch], tally = metrics.batches_of(otlp.metrics(*otlp.heartbeat_metrics(fc=7)))
    [beat] = batch.heartbeats
    assert (tally.accepted, tally.rejected, tally.foreign) == (11, 0, 0)
    assert abs(beat.event_ns - otlp.now_ns()) < 1000  # a float64 of seconds holds it to 0.24 µs
    assert set(beat.boundaries) == {
        BoundaryTotal(c.DRAFT_FC, c.TARGET_FED, "", 9, None),
        BoundaryTotal(c.DRAFT_FC, c.TARGET_FED, c.EAGER, None, 7),
    }
    assert beat.armed == {c.DRAFT_FC: (True, "")}
    assert beat.requests == {"user": 3}
    assert (beat.dropped, beat.hook_errors) == ({"queue full": 2}, {"fc": 1})
    assert (beat.queued, beat.export_failures, beat.engine_thread_ns, beat.speculation) == (5, 4, 77, True)


@pytest.mark.parametrize(
    ("value", "told", "kept"),
    [
        (0, c.ARMING_MISSING, c.ARMING_MISSING),
        (0, c.ARMING_OFF, c.ARMING_OFF),
        (1, c.ARMING_ARMED, c.ARMING_ARMED),
        (1, None, c.ARMING_ARMED),  # a tracer that sends no word yet
        (0, None, ""),
        (0, c.ARMING_ARMED, ""),  # the value decides
        (0, "haunted", ""),  # a newer tracer's
    ],
)
def test_why_a_boundary_is_not_armed(value: int, told: str | None, kept: str) -> None:
    labels = {c.LABEL_BOUNDARY: c.DRAFT_FC} | ({} if told is None else {c.LABEL_ARMING: told})
    [batch], tally = metrics.batches_of(otlp.metrics(otlp.gauge(c.METRIC_ARMED, otlp.point(value, labels))))
    [beat] = batch.heartbeats
    assert (beat.armed, beat.arming) == ({c.DRAFT_FC: (value == 1, "")}, {c.DRAFT_FC: kept})
    assert tally.rejected == 0


def test_passes_are_kept_by_kind_and_slice_of_the_batch() -> None:
    def told(name: str, *counts: int) -> Metric:
        labels = [
            {c.LABEL_PASS: c.PASS_STEP, c.LABEL_BATCH: "2-3"},
            {c.LABEL_PASS: c.PASS_DECODE, c.LABEL_BATCH: "1"},
        ]
        return otlp.total(name, *(otlp.point(n, one) for n, one in zip(counts, labels, strict=True)))

    [batch], tally = metrics.batches_of(
        otlp.metrics(told(c.METRIC_PASSES, 70, 12), told(c.METRIC_PASS_TIME, 910_000_000, 84_000_000))
    )
    [beat] = batch.heartbeats
    assert beat.passes == {"step|2-3": 70, "decode|1": 12}
    assert beat.pass_ns == {"step|2-3": 910_000_000, "decode|1": 84_000_000}
    assert (tally.accepted, tally.rejected) == (4, 0)


@pytest.mark.parametrize("name", [c.METRIC_PASSES, c.METRIC_PASS_TIME])
@pytest.mark.parametrize(
    ("kind", "batch", "value", "why"),
    [
        ("nap", "1", 3, c.LABEL_PASS),
        (None, "1", 3, c.LABEL_PASS),
        (c.PASS_STEP, "3-5", 3, "is no power-of-two slice"),
        (c.PASS_STEP, None, 3, "is no power-of-two slice"),
        (c.PASS_STEP, "1", -3, "is not a count"),
        (c.PASS_STEP, "1", 2.5, "is not a count"),
    ],
)
def test_a_pass_of_no_known_kind_or_batch_is_refused_alone(
    name: str, kind: str | None, batch: str | None, value: float, why: str
) -> None:
    told = {c.LABEL_PASS: kind, c.LABEL_BATCH: batch}
    bad = otlp.point(value, {label: text for label, text in told.items() if text is not None})
    good = otlp.point(5, {c.LABEL_PASS: c.PASS_VERIFY, c.LABEL_BATCH: "1"})
    [batch_told], tally = metrics.batches_of(otlp.metrics(otlp.total(name, bad, good)))
    [beat] = batch_told.heartbeats
    assert (beat.passes or beat.pass_ns) == {"verify|1": 5}
    assert (tally.accepted, tally.rejected) == (1, 1)
    assert any(why in reason for reason in tally.reasons)


def test_an_end_in_order_is_a_time() -> None:
    ended = otlp.now_ns() / 1e9
    [batch], _ = metrics.batches_of(otlp.metrics(otlp.gauge(c.METRIC_ENDED, otlp.point(ended))))
    [beat] = batch.heartbeats
    assert beat.ended_ns is not None and abs(beat.ended_ns - otlp.now_ns()) < 1000
    for odd in (0.0, float("nan"), 1e300):
        batches, tally = metrics.batches_of(otlp.metrics(otlp.gauge(c.METRIC_ENDED, otlp.point(odd))))
        assert (batches, tally.rejected) == ([], 1)


def test_what_was_not_told_stays_unknown() -> None:
    [batch], _ = metrics.batches_of(otlp.metrics(otlp.gauge(c.METRIC_QUEUED, otlp.point(0))))
    [beat] = batch.heartbeats
    assert beat.event_ns == otlp.now_ns()  # without the gauge, the point's own time
    assert (beat.queued, beat.export_failures, beat.speculation) == (0, None, None)
    assert (beat.boundaries, beat.armed) == ((), {})


def test_several_collections_in_one_export_stay_apart() -> None:
    later = otlp.now_ns() + 5_000_000_000
    [batch], _ = metrics.batches_of(
        otlp.metrics(*otlp.heartbeat_metrics(later, expected=20), *otlp.heartbeat_metrics(expected=9))
    )
    expected = [[b.expected for b in beat.boundaries if b.expected is not None] for beat in batch.heartbeats]
    assert expected == [[9], [20]]
    assert [round(beat.event_ns / 1e9 - otlp.now_ns() / 1e9) for beat in batch.heartbeats] == [0, 5]


def test_other_tools_metrics_are_taken_and_not_kept() -> None:
    batches, tally = metrics.batches_of(
        otlp.metrics(otlp.gauge("queue", otlp.point(1), otlp.point(2)), scope="x")
    )
    assert (batches, tally.foreign, tally.rejected) == ([], 2, 0)


FED = {c.LABEL_BOUNDARY: c.DRAFT_FC, c.LABEL_SOURCE: c.TARGET_FED}
DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
BAD: dict[str, tuple[Metric, str]] = {
    "delta": (otlp.total(c.METRIC_EXPECTED, otlp.point(1, FED), temporality=DELTA), "cumulative"),
    "negative": (otlp.total(c.METRIC_EXPECTED, otlp.point(-1, FED)), "not a count"),
    "too large": (otlp.total(c.METRIC_EXPECTED, otlp.point(1 << 60, FED)), "not a count"),
    "fraction": (otlp.total(c.METRIC_EXPECTED, otlp.point(1.5, FED)), "not a count"),
    "infinite": (otlp.total(c.METRIC_EXPECTED, otlp.point(float("inf"), FED)), "not a count"),
    "no boundary": (otlp.total(c.METRIC_EXPECTED, otlp.point(1)), "spec_decode.boundary is missing"),
    "boundary with NUL": (
        otlp.total(c.METRIC_EXPECTED, otlp.point(1, {c.LABEL_BOUNDARY: "a\0"})),
        "cannot be printed",
    ),
    "unknown source": (
        otlp.total(c.METRIC_EXPECTED, otlp.point(1, FED | {c.LABEL_SOURCE: "rumour"})),
        "none of",
    ),
    "no mode": (otlp.total(c.METRIC_OBSERVED, otlp.point(1, FED)), "spec_decode.mode is missing"),
    "armed twice over": (otlp.gauge(c.METRIC_ARMED, otlp.point(2, FED)), "neither 0 nor 1"),
    "absurd heartbeat": (otlp.gauge(c.METRIC_HEARTBEAT, otlp.point(1e300)), "seconds since 1970"),
    "heartbeat NaN": (otlp.gauge(c.METRIC_HEARTBEAT, otlp.point(float("nan"))), "seconds since 1970"),
    "no time": (otlp.gauge(c.METRIC_QUEUED, otlp.point(1, time_ns=0)), "point's time"),
    "time past 2^63": (otlp.gauge(c.METRIC_QUEUED, otlp.point(1, time_ns=(1 << 64) - 1)), "point's time"),
    "no value": (otlp.gauge(c.METRIC_QUEUED, type(otlp.point(1))(time_unix_nano=otlp.now_ns())), "no value"),
    "a histogram": (
        Metric(name=c.METRIC_QUEUED, histogram=Histogram(data_points=[HistogramDataPoint(count=1)])),
        "neither a sum nor a gauge",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_point_alone_is_rejected_with_its_reason(name: str) -> None:
    bad, reason = BAD[name]
    good = otlp.total(c.METRIC_REQUESTS, otlp.point(3, {c.LABEL_KIND: c.KIND_USER}))
    [batch], tally = metrics.batches_of(otlp.metrics(bad, good))
    assert (tally.accepted, tally.rejected) == (1, 1)
    assert reason in tally.explain()
    assert [beat.requests for beat in batch.heartbeats] == [{"user": 3}]


def test_series_of_one_heartbeat_are_bounded() -> None:
    points = [otlp.point(1, {c.LABEL_BOUNDARY: f"b{i}"}) for i in range(metrics.MAX_SERIES + 7)]
    [batch], tally = metrics.batches_of(otlp.metrics(otlp.total(c.METRIC_EXPECTED, *points)))
    assert tally.rejected == 7
    assert len(batch.heartbeats[0].boundaries) == metrics.MAX_SERIES


def test_point_without_recorded_value_says_nothing() -> None:
    point = otlp.point(7)
    point.flags = 1
    batches, tally = metrics.batches_of(otlp.metrics(otlp.gauge(c.METRIC_QUEUED, point)))
    assert (batches, tally.accepted, tally.rejected) == ([], 1, 0)

"""What an adapter hands over, sent by the exporter on several SDK versions, decodes to the same values."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from specscope import chunks, hidden
from specscope import convention as c
from specscope import records as r
from wirekit import traffic
from wirekit.environments import ROOT, python_with_sdk
from wirekit.receiver import Received, Receiver

NEWEST = "newest"


@dataclass
class Trip:
    """What one SDK version delivered, and what the sending process said of itself."""

    received: Received
    hello: dict[str, Any]


@pytest.fixture(scope="module", params=["1.27.0", "1.44.0", NEWEST])
def trip(request: pytest.FixtureRequest) -> Iterator[Trip]:
    python = sys.executable if request.param == NEWEST else python_with_sdk(request.param)
    paths = [str(ROOT / "tracer"), str(ROOT / "tests")]
    with Receiver() as receiver:
        done = subprocess.run(
            [python, "-m", "wirekit.engine", receiver.endpoint, "story"],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")
        hello = json.loads(done.stdout)
        if request.param != NEWEST:
            assert hello["sdk"] == request.param
        yield Trip(receiver.received, hello)


STEPS = [record for record in traffic.story() if isinstance(record, r.VerifyStep)]
EXTENDS = [record for record in traffic.story() if isinstance(record, r.DraftExtend)]
SAME = (
    "drafted_depth", "drafted_nodes", "accepted", "bonus", "committed", "context",
    "draft_tokens", "parents", "accepted_path", "output_ids",
)  # fmt: skip


@pytest.mark.parametrize("name", ["long", "health", "open"])
def test_verify_steps_arrive_as_recorded(trip: Trip, name: str) -> None:
    uid = traffic.uid(name)
    sent = [record for record in STEPS if uid in record.uids]
    rows = trip.received.steps(uid)
    assert len(rows) == len(sent)
    begin = rows[0].t - sent[0].t_ns
    for row, record in zip(rows, sent, strict=True):
        at = record.uids.index(uid)
        assert (row.step, row.mode, row.batch_size, row.row) == (
            record.step,
            record.mode,
            record.batch_size,
            at,
        )
        assert (row.overshoot, row.weight_version) == (int(record.overshoot[at]), record.weight_version)
        for field in SAME:
            value: Any = getattr(record, field)[at]
            assert getattr(row, field) == (list(value) if field in chunks.TOKEN_COLUMNS else value), field
        # Every heartbeat takes a new anchor, so that distances may move by what the clocks drift.
        assert abs(row.t - record.t_ns - begin) < 10_000_000


@pytest.mark.parametrize("name", ["long", "health", "open"])
def test_draft_extends_arrive_as_recorded(trip: Trip, name: str) -> None:
    uid = traffic.uid(name)
    sent = [record for record in EXTENDS if uid in record.uids]
    blobs = [
        span.attributes[c.CHUNK_EXTENDS]
        for span in trip.received.spans(c.SPAN_STEPS)
        if span.attributes[c.REQUEST_UID] == uid and c.CHUNK_EXTENDS in span.attributes
    ]
    rows = [row for blob in blobs for row in chunks.unpack_extends(blob)]
    assert len(rows) == len(sent)
    for row, record in zip(rows, sent, strict=True):
        for field in ("step", "after", "mode", "fed_width", "dtype", "aux_states", "fc_in", "fc_ran"):
            assert getattr(row, field) == getattr(record, field)
        told = (row.rows, row.mean, row.std, row.max_abs, row.nonfinite, row.zero_rows)
        first = record.uids.index(uid) == 0
        assert told == ((3, 0.25, 1.5, 8.0, 0, 1) if first else (None,) * 6)
        assert row.rms == (pytest.approx(math.hypot(0.25, 1.5), rel=2**-11) if first else None)


def test_hidden_states_arrive_as_recorded(trip: Trip) -> None:
    by_uid = {
        name: [
            row
            for span in trip.received.spans(c.SPAN_STEPS)
            if span.attributes[c.REQUEST_UID] == traffic.uid(name) and c.CHUNK_HIDDEN in span.attributes
            for row in hidden.unpack(span.attributes[c.CHUNK_HIDDEN])
        ]
        for name in ("long", "health", "open")
    }
    assert by_uid["health"] == by_uid["open"] == []  # they had no rows
    rows = sorted(by_uid["long"], key=lambda row: (row.step, row.place, row.draft_step, row.slot))
    fed = [row for row in rows if row.place == hidden.FED]
    assert [row.step for row in fed if row.slot == 0] == list(range(71))
    assert {(row.rows, row.mean, row.std, row.max_abs) for row in fed} == {(3, 0.25, 1.5, 8.0)}
    assert {row.position - 6 - 3 * row.step for row in fed} == {0}
    for row in fed:
        if row.step in (0, 1, 64):
            rms, projections = hidden.restore(row.levels or (), row.fingerprints or ())
            assert rms[0] == pytest.approx(math.hypot(0.75, math.sqrt(6)), rel=0.002)
            assert projections[0] / rms[0] * 16 == pytest.approx(traffic.UNITS)
            assert math.isnan(rms[2])  # of a row that is all zero there is none
        else:
            assert row.levels is None and row.fingerprints is None
    first = [row for row in rows if row.step == 1]
    assert [(row.place, row.source, row.draft_step, row.slot, row.same_as) for row in first] == [
        ("draft.carry", "target_fed", 0, 0, None),
        ("draft.carry", "self_fed", 1, 0, None),
        ("draft.carry", "self_fed", 2, 0, None),
        *(("draft.extend", "target_fed", 0, slot, None) for slot in range(3)),
        *(("draft.fc.in", "target_fed", 0, slot, "draft.extend") for slot in range(3)),
        ("draft.fc.out", "target_fed", 0, 0, None),
        ("draft.start", "target_fed", 0, 0, None),
    ]
    # Fed were positions 9 to 11; what was verified there had been drafted behind position 8.
    assert [row.position for row in first if row.place == hidden.CARRY] == [11, 8 + 1, 8 + 2]


def test_the_prompt_arrives_once_and_whole(trip: Trip) -> None:
    for name in ("long", "health", "open"):
        (prompt,) = [
            span.attributes[c.CHUNK_PROMPT]
            for span in trip.received.spans(c.SPAN_STEPS)
            if span.attributes[c.REQUEST_UID] == traffic.uid(name) and c.CHUNK_PROMPT in span.attributes
        ]
        assert chunks.unpack_prompt(prompt) == [10, 11, 12, 10, 11, 12]


@pytest.mark.parametrize(("name", "kind"), [("long", "user"), ("health", "health_check"), ("open", "user")])
def test_requests_arrive_as_recorded(trip: Trip, name: str, kind: str) -> None:
    span = trip.received.request(traffic.uid(name))
    assert span is not None
    sent = [record for record in STEPS if traffic.uid(name) in record.uids and not any(record.overshoot)]
    at = [record.uids.index(traffic.uid(name)) for record in sent]
    attributes = span.attributes
    assert attributes[c.REQUEST_KIND] == kind
    assert attributes[c.GEN_AI_REQUEST_ID] == name
    assert attributes[c.REQUEST_VERIFY_STEPS] == len(sent)
    for key, field in (
        (c.REQUEST_DRAFTED_DEPTH, "drafted_depth"),
        (c.REQUEST_DRAFTED_NODES, "drafted_nodes"),
        (c.REQUEST_ACCEPTED, "accepted"),
        (c.REQUEST_BONUS, "bonus"),
        (c.REQUEST_COMMITTED, "committed"),
    ):
        assert attributes[key] == sum(getattr(record, field)[i] for record, i in zip(sent, at, strict=True))
    expected, observed = chunks.unpack_boundaries(attributes[c.REQUEST_BOUNDARIES])
    for key, count in traffic.CONTRACT.verify.items():
        assert expected[key] == count * len(sent) + traffic.CONTRACT.prefill.get(key, 0)
        assert observed[(*key, c.EAGER)] == expected[key]


def test_the_resource_says_who_speaks(trip: Trip) -> None:
    (engine,) = trip.received.spans(c.SPAN_ENGINE)
    assert engine.attributes[c.METRIC_SPECULATION] is True
    assert json.loads(engine.attributes[c.ENGINE_CONFIG]) == traffic.CONFIG
    resource = engine.resource
    assert resource[c.WIRE] == c.WIRE_VERSION
    assert resource[c.PROCESS] == trip.hello["process"]
    assert resource[c.INSTANCE] == traffic.INSTANCE
    assert resource[c.MODEL] == resource[c.SERVICE_NAME] == "tiny-target"
    assert (resource[c.ROLE], resource[c.RANK_TP], resource[c.SERVING_ROLE]) == ("scheduler", 0, "both")
    assert resource[c.DETAIL] == "full"


def test_metrics_arrive_cumulative_since_the_process_started(trip: Trip) -> None:
    request = trip.received.metrics[-1]
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    by_name = {metric.name: metric for metric in scope.metrics}
    observed = by_name[c.METRIC_OBSERVED].sum
    assert observed.is_monotonic
    assert observed.aggregation_temporality == 2  # AGGREGATION_TEMPORALITY_CUMULATIVE
    starts = {point.start_time_unix_nano for point in observed.data_points}
    (start,) = {a.value.int_value for a in resource.resource.attributes if a.key == c.PROCESS_START}
    assert starts == {start}
    sums = trip.received.points(c.METRIC_EXPECTED)
    for (boundary, source), count in traffic.CONTRACT.verify.items():
        prefill = traffic.CONTRACT.prefill.get((boundary, source), 0)
        assert sums[boundary, source] == 71 * count + prefill

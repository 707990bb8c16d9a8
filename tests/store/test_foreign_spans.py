"""Other tools' spans and log records: found with the request of their trace, and bounded."""

from __future__ import annotations

import pytest
from specscope_server.store import logs, spans
from specscope_server.store.port import Store
from specscope_server.store.told import LogBatch, SpanBatch
from storekit import facts
from storekit.dump import dump


def test_they_come_with_the_request_of_their_trace(store: Store) -> None:
    root = facts.span(0, name="POST /generate", attributes={"http.status": 200, "ok": True, "s": 0.5})
    child = facts.span(1, failed=True)
    other = facts.span(2, trace="another")
    store.write([SpanBatch("default", (child, other, root)), facts.batch(facts.request())], facts.NOW)
    store.write([SpanBatch("second", (facts.span(3),))], facts.NOW)
    detail = store.request("default", "u0")
    assert detail is not None
    assert detail.spans == (root, child)


def test_whose_child_a_request_is_is_kept(store: Store) -> None:
    told = facts.request(state="running", parent_span_id="00f067aa0ba902b7")
    store.write([facts.batch(told), facts.batch(facts.request())], facts.NOW)
    detail = store.request("default", "u0")
    assert detail is not None
    assert detail.request.parent_span_id == "00f067aa0ba902b7"


def test_of_a_long_trace_the_first_spans_are_kept(store: Store, store_url: str) -> None:
    numbers = range(spans.OF_TRACE + 20)
    store.write([SpanBatch("default", tuple(map(facts.span, numbers[::-2])))], facts.NOW)
    store.write([SpanBatch("default", tuple(map(facts.span, numbers[-2::-2])))], facts.NOW)
    kept = [int(row[2], 16) for row in dump(store_url)["span"]]
    assert kept == list(numbers[: spans.OF_TRACE])


def test_of_a_workspace_the_last_received_are_kept(
    store: Store, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "OF_WORKSPACE", 10)
    for age in range(30, 0, -1):
        batch = SpanBatch("default", (facts.span(age, trace=f"trace-{age:02}"),))
        store.write([batch, SpanBatch("second", (facts.span(0),))], facts.ago(age))
    kept = [(row[0], row[1]) for row in dump(store_url)["span"]]
    assert kept == [*(("default", f"trace-{age:02}") for age in range(1, 11)), ("second", "trace-u0")]


def test_an_export_of_more_than_is_kept_leaves_as_many_as_may_be(
    store: Store, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "OF_WORKSPACE", 10)
    several = tuple(facts.span(0, trace=f"trace-{number:02}") for number in range(25))
    store.write([SpanBatch("default", several)], facts.NOW)
    assert [row[1] for row in dump(store_url)["span"]] == [f"trace-{number:02}" for number in range(15, 25)]


def test_records_are_bounded_like_spans(
    store: Store, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "OF_TRACE", 5)
    monkeypatch.setattr(logs, "OF_WORKSPACE", 8)
    for start in (1, 0):  # the later half of the trace first
        told = tuple(facts.log_record(number) for number in range(start, 20, 2))
        store.write([LogBatch("default", told), LogBatch("second", told[:1])], facts.ago(60 - start))
    assert [row[2] for row in dump(store_url)["log_record"] if row[0] == "default"] == [
        f"{number:032x}" for number in range(5)
    ]
    for age in range(30, 0, -1):
        told = (facts.log_record(age, trace=f"trace-{age:02}"),)
        store.write([LogBatch("default", told)], facts.ago(age))
    kept = [row[1] for row in dump(store_url)["log_record"] if row[0] == "default"]
    assert kept == [f"trace-{age:02}" for age in range(1, 9)]


def test_a_record_is_kept_once(store: Store) -> None:
    told = [LogBatch("default", (facts.log_record(1), facts.log_record(0)))]
    for at in (3, 2, 1):
        store.write([*told, facts.batch(facts.request())], facts.ago(at))
    detail = store.request("default", "u0")
    assert detail is not None
    assert detail.logs == (facts.log_record(0), facts.log_record(1))

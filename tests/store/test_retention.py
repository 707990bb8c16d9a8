"""What is too old goes, in small steps; nothing newer does, and engines that are alive stay whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from specscope_server.diagnosis.model import Finding
from specscope_server.store import retention
from specscope_server.store.keep import Keep
from specscope_server.store.model import AlertRow
from specscope_server.store.opening import open_store
from specscope_server.store.port import NewDelivery, Store
from specscope_server.store.told import SpanBatch
from storekit import facts
from storekit.dump import dump

KEEP = Keep(
    steps_days=7, requests_days=30, rollups_days=30, minutes_days=400, alerts_days=90, engines_days=500
)
DAY = timedelta(days=1)
FINDING = Finding("draft_silent", "F05", "critical", "certain", "Draft silent", "It says nothing.", ())
Opened = Callable[[Keep], Store]


@pytest.fixture
def opened(store_url: str) -> Iterator[Opened]:
    """Opens the database with the ages of a test."""
    stores: list[Store] = []

    def open_(keep: Keep) -> Store:
        stores.append(open_store(store_url, keep=keep))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


def days_ago(days: float) -> datetime:
    return facts.NOW - days * DAY


def fill(store: Store, days: float, name: str, instance: str = "launch") -> None:
    """Write one of everything as an engine tells it ``days`` before now."""
    shift = round(days * 86_400)
    shift -= shift % 60
    ns = shift * facts.SECOND
    seq = 1 + int(days * 10)
    crossed = 100_000 - seq  # totals only grow

    def at(seconds: float) -> int:
        return facts.ago_ns(seconds) - ns

    request = facts.request(name, arrival_ns=at(20), end_ns=at(18))
    chunk = facts.chunk(name, steps=[facts.step(1)], start_ns=at(20), end_ns=at(18))
    told = facts.batch(
        replace(facts.REPORT, event_ns=at(30)),
        request,
        chunk,
        facts.prompt(name),
        facts.increment(seq, bucket_ago=20 + shift),
        facts.hidden_increment(seq + 1, bucket_ago=20 + shift),
        replace(
            facts.heartbeat(boundaries=facts.crossings("draft.fc", "target_fed", crossed, eager=crossed)),
            event_ns=at(1),
        ),
        instance=instance,
        start_ns=at(3600),
    )
    span = facts.span(1, trace=f"trace-{name}")
    store.write([told, SpanBatch("default", (span,))], facts.NOW - timedelta(seconds=shift))


def run(store: Store, now: datetime = facts.NOW) -> Counter[str]:
    """Keep house to the end and return what went, by table."""
    gone: Counter[str] = Counter()
    for step in store.prune(now):
        gone[step.table] += step.rows
    return gone


def counts(url: str) -> dict[str, int]:
    return {name: len(rows) for name, rows in dump(url).items() if rows}


def names_of(rows: list[tuple[Any, ...]]) -> set[Any]:
    return {row[1] for row in rows}


def test_each_thing_goes_at_its_own_age(opened: Opened, store_url: str) -> None:
    store = opened(KEEP)
    for days, name in (
        (0, "now"),
        (6, "week"),
        (8, "chunkless"),
        (29, "month"),
        (31, "gone"),
        (399, "minutes"),
    ):
        # As servers of earlier days took it: nothing was too old then.
        fill(store, days, name)
    run(store)
    left = dump(store_url)
    assert names_of(left["step_chunk"]) == {"now", "week"}
    assert names_of(left["request_text"]) == {"now", "week"}
    assert names_of(left["request"]) == {"now", "week", "chunkless", "month"}
    assert names_of(left["span"]) == {f"trace-{n}" for n in ("now", "week", "chunkless", "month")}
    assert len({row[2] for row in left["rollup_10s"]}) == 4
    assert len({row[1] for row in left["hidden_stat"]}) == 4
    assert len({row[2] for row in left["rollup_60s"]}) == 6
    # The last bucket before the limit stays: what was crossed since is told from it.
    assert len({row[5] for row in left["boundary_count"]}) == 5
    assert len({row[1] for row in left["engine_event"]}) == 5
    assert {row[3] for row in left["rollup_applied"]} >= {row[2] for row in left["rollup_10s"]}, (
        "an increment that is still in the sums must not be forgotten"
    )
    assert run(store) == {}, "a second round finds nothing"


def test_a_limit_of_nothing_keeps_everything(opened: Opened, store_url: str) -> None:
    store = opened(Keep(0, 0, 0, 0, 0, 0))
    for days in (0, 4000):
        fill(store, days, f"d{days}")
    before = dump(store_url)
    assert run(store) == {}
    assert dump(store_url) == before


def test_steps_are_small(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "STEP_CHUNKS", 3)
    store = opened(KEEP)
    # Of many days, so that PostgreSQL has them in the default partition as well.
    for number in range(8):
        fill(store, 20 + number, f"d{number}")
    steps = [step.rows for step in store.prune(facts.NOW) if step.table.startswith("step_chunk")]
    assert sum(steps) == 8
    assert max(steps) <= 3


def test_would_prune_says_what_prune_does(opened: Opened, store_url: str) -> None:
    store = opened(KEEP)
    for days in (0, 8, 40, 450):
        fill(store, days, f"d{days}")
    before = dump(store_url)
    said = store.would_prune(facts.NOW)
    assert dump(store_url) == before
    done = run(store)
    # Prompts go with their requests unless their own age is up first: those are counted where they go.
    assert dict(said) == dict(done)


def test_a_request_that_is_still_told_of_is_not_old(opened: Opened, store_url: str) -> None:
    store = opened(KEEP)
    long = facts.request("long", arrival_ns=facts.ago_ns(40 * 86_400), state="running", end_ns=None)
    store.write([facts.batch(long)], facts.NOW)
    run(store)
    assert names_of(dump(store_url)["request"]) == {"long"}


def test_a_silent_engine_goes_with_everything(opened: Opened, store_url: str) -> None:
    store = opened(KEEP)
    empty = counts(store_url)
    for number in range(3):
        fill(store, 501 + number / 10, f"d{number}")
    finding_engine = facts.ENGINE
    store.replace_findings(finding_engine, [FINDING], days_ago(501))
    alert = AlertRow("r", "R", finding_engine, "", "firing", "why", days_ago(501), days_ago(501))
    store.set_alerts([alert], [NewDelivery("r", finding_engine, "firing", "t", {})])
    run(store)
    # What no engine's row is: the workspace's models.
    assert counts(store_url) == empty | {"model": 1}


def test_an_engine_that_is_heard_stays(opened: Opened, store_url: str) -> None:
    store = opened(KEEP)
    fill(store, 502, "old", "silent")
    fill(store, 502, "old", "alive")
    store.write([facts.batch(facts.heartbeat(), instance="alive")], facts.NOW)
    run(store)
    left = dump(store_url)
    assert [row[3] for row in left["engine"]] == ["alive"]
    assert {row[1] for row in left["process"]} == {"p0"}
    assert left["boundary_total"]
    assert left["engine_event"], "its configuration is the newest there is"


def test_conclusions_go_once_they_are_over(opened: Opened, store_url: str) -> None:
    store = opened(KEEP)
    fill(store, 0, "now")
    for days in (100, 95, 10):
        store.replace_findings(facts.ENGINE, [FINDING], days_ago(days))
        store.replace_findings(facts.ENGINE, [], days_ago(days - 1))
    store.replace_findings(facts.ENGINE, [FINDING], days_ago(5))
    for number, days in enumerate((100, 95, 10)):
        state = ("firing", "ok", "firing")[number]
        alert = AlertRow("r", "R", facts.ENGINE, "", state, "", days_ago(days), days_ago(days))
        store.set_alerts([alert], [])
    run(store)
    left = dump(store_url)
    assert len(left["finding"]) == 2
    assert len(left["alert_event"]) == 1
    assert len(left["alert_state"]) == 1


def test_pending_notifications_stay(opened: Opened, store_url: str) -> None:
    store = opened(KEEP)
    fill(store, 0, "now")
    new = [NewDelivery("r", facts.ENGINE, "firing", f"t{n}", {}) for n in range(2)]
    store.set_alerts([], new)
    first = store.deliveries("default", 2)[-1]
    store.settle_delivery(first.id, error="", next_attempt=None)
    run(store, first.created + 91 * DAY)
    assert [row.target for row in store.deliveries("default", 9)] == ["t1"]


def test_what_was_crossed_since_survives_its_buckets(opened: Opened) -> None:
    """A process that told nothing for longer than its buckets are kept has crossed nothing in the window."""
    store = opened(KEEP)
    for days in (60, 50):
        fill(store, days, f"d{days}")
    before = store.evidence("default", facts.ENGINE, facts.NOW, 60)
    assert before is not None
    assert run(store)["boundary_count"] > 0
    after = store.evidence("default", facts.ENGINE, facts.NOW, 60)
    assert after is not None
    assert after.window == before.window
    assert [(s.expected, s.observed_total) for s in after.window] == [(0, 0)]


def test_writing_while_an_engine_is_forgotten(opened: Opened, store_url: str) -> None:
    """It is heard again in the middle of it: what came then stays."""
    store = opened(KEEP)
    for number in range(3):
        fill(store, 501, f"d{number}")
    steps = store.prune(facts.NOW)
    next(steps)
    fill(store, 0, "back")
    for _ in steps:
        pass
    assert {"back"} <= names_of(dump(store_url)["step_chunk"])
    run(store)
    left = dump(store_url)
    assert names_of(left["step_chunk"]) == names_of(left["request"]) == {"back"}
    assert {row[0] for row in left["engine"]} == {facts.ENGINE}
    with closing(open_store(store_url)) as other:
        assert other.request("default", "back") is not None

"""What is older than what is kept is left out and counted; what came with it is taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from specscope_server.store import open_store
from specscope_server.store.keep import Keep
from specscope_server.store.port import Store
from storekit import facts
from storekit.dump import dump

DAY_S = 86_400
KEPT = Keep(steps_days=1, requests_days=2, rollups_days=3, minutes_days=0, alerts_days=0, engines_days=0)


@pytest.fixture
def keeping(store: Store, store_url: str) -> Iterator[Store]:
    opened = open_store(store_url, keep=KEPT)
    yield opened
    opened.close()


def _old_chunk(uid: str, seconds: float) -> Any:
    ended = facts.ago_ns(seconds)
    return facts.chunk(uid, 0, [facts.step(1)], start_ns=ended - 1, end_ns=ended)


def test_what_is_younger_is_taken_whole(keeping: Store, store_url: str) -> None:
    told = facts.batch(
        facts.request("u0", end_ns=facts.ago_ns(1.9 * DAY_S)),
        _old_chunk("u0", 0.9 * DAY_S),
        facts.increment(1, 250_000),
        facts.heartbeat(2.9 * DAY_S, requests={"user": 1}),
    )
    assert keeping.write([told], facts.NOW) == 0
    filled = {name for name, rows in dump(store_url).items() if rows}
    assert {"request", "step_chunk", "rollup_10s", "rollup_60s", "process_counter"} <= filled


@pytest.mark.parametrize(
    ("fact", "table"),
    [
        (facts.request(end_ns=facts.ago_ns(2.1 * DAY_S)), "request"),
        (_old_chunk("u0", 1.1 * DAY_S), "step_chunk"),
        (facts.increment(1, 270_000), "rollup_applied"),
        (replace(facts.rank_steps(3), event_ns=facts.ago_ns(1.1 * DAY_S)), "rank_steps"),
    ],
    ids=["request", "chunk", "rollup", "ranks"],
)
def test_what_is_older_is_left_out_alone(keeping: Store, store_url: str, fact: Any, table: str) -> None:
    alone, beside = facts.batch(fact, process_uid="old"), facts.batch(fact, facts.request("u9"))
    assert keeping.write([alone, beside], facts.NOW) == 2
    rows = dump(store_url)
    assert [row[1] for row in rows["request"]] == ["u9"]
    assert table == "request" or rows[table] == []
    # A process is not known by what was refused.
    assert [row[1] for row in rows["process"]] == ["p0"]


def test_an_old_chunk_takes_its_running_report_with_it_and_no_other(keeping: Store, store_url: str) -> None:
    running = facts.request("u0", state="running", end_ns=None)
    told = facts.batch(
        running, _old_chunk("u0", 1.1 * DAY_S), facts.request("u1", state="running", end_ns=None),
        _old_chunk("u1", 0.1 * DAY_S), facts.prompt("u0"), facts.prompt("u1"),
    )  # fmt: skip
    assert keeping.write([told], facts.NOW) == 1
    rows = dump(store_url)
    assert [row[1] for row in rows["request"]] == ["u1"]
    assert [row[1] for row in rows["request_text"]] == ["u1"]


def test_an_old_heartbeat_counts_its_points(keeping: Store, store_url: str) -> None:
    beat = facts.heartbeat(3.1 * DAY_S, requests={"user": 1, "warm_up": 2}, queued=3)
    # Two kinds of request, one boundary armed, queued, speculation, and the heartbeat itself.
    assert keeping.write([facts.batch(beat)], facts.NOW) == 6
    assert dump(store_url)["process"] == []


def test_the_limit_goes_by_when_the_export_is_received(keeping: Store) -> None:
    told = facts.batch(_old_chunk("u0", 0.9 * DAY_S), facts.request())
    assert keeping.write([told], facts.NOW) == 0
    assert keeping.write([told], facts.NOW + timedelta(days=1)) == 1

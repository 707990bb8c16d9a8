"""The status page: what arrived, what did not, and that nothing told is not shown as 0."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from serverkit import otlp
from serverkit.live import Live, serving
from specscope import convention as c
from specscope_server.ingest import scrape
from specscope_server.ingest.stats import IngestStats
from specscope_server.store import open_store
from specscope_server.store.port import Store
from specscope_server.web import status
from storekit import facts


@pytest.fixture
def live(sqlite_url: str) -> Iterator[Live]:
    with serving(sqlite_url) as found:
        yield found


def cells(page: str, first: str) -> list[str]:
    """The cells of the table row that begins with ``first``, without their markup."""
    rows = (
        re.findall(r"<td.*?>(.*?)</td>", row, re.DOTALL)
        for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL)
    )
    plain = ([re.sub(r"<.*?>", "", cell).strip() for cell in row] for row in rows)
    return next(row for row in plain if row and row[0] == first)


def test_a_server_that_heard_nothing_says_so_without_a_zero(live: Live) -> None:
    page = live.client.get("/status").text
    assert "No export has arrived since the server started" in page
    assert cells(page, "traces") == ["traces", "–", "–", "–", "–", "–", "spans"]
    assert "Nothing was rejected or refused: nothing arrived." in page
    assert cells(page, "Sums of a minute")[1].startswith("–")
    assert 'aria-current="page">Status' in page


def test_what_arrived_and_what_did_not(live: Live) -> None:
    bad = otlp.request_span(1, **{c.REQUEST_UID: "<b>bold</b>"})
    spans = [otlp.request_span(0), otlp.steps_span(0), otlp.rollup_span(0)]
    assert live.export(otlp.traces(*spans)).status_code == 200
    page = live.client.get("/status").text
    assert "Exports arrive and are stored" in page
    assert cells(page, "traces")[3:6] == ["3", "0", "0"]
    assert cells(page, "logs")[1] == "–", "another signal's silence is not a 0"
    assert "Nothing was rejected or refused." in page
    assert live.export(otlp.traces(otlp.request_span(0), bad)).status_code == 200
    page = live.client.get("/status").text
    assert "Exports are stored, but not all of them" in page
    assert cells(page, "items rejected, traces")[1:3] == ["form", "1"]
    assert live.client.post("/v1/metrics", content=b"?").status_code == 415
    page = live.client.get("/status", headers={"HX-Request": "true"}).text
    assert "Exports are being refused" in page
    assert cells(page, "exports refused, http")[1:3] == ["415", "1"]
    assert "<html" not in page, "a refresh brings the live part alone"
    told = live.get("/api/v1/status")["ingest"]
    assert [reason["times"] for reason in told["reasons"]] == [1, 1]
    assert "415" in told["last_reason"]


def test_silence_is_told_by_how_long_it_lasts(sqlite_url: str) -> None:
    stats, store = IngestStats(), open_store(sqlite_url)
    try:
        stats.commit(store, [facts.batch(facts.heartbeat())], facts.NOW)
        ingest = scrape.read(stats)
        assert ingest.last_export is not None
        soon = status.build(store, ingest, "default", ingest.last_export + timedelta(seconds=5))
        late = status.build(store, ingest, "default", ingest.last_export + timedelta(hours=3))
    finally:
        store.close()
    assert (soon.tone, late.tone) == ("ok", "warn")
    assert late.headline == "Nothing has arrived for 3.0 h"


def test_hostile_reasons_and_methods_stay_text(live: Live) -> None:
    script = "<script>alert(1)</script>"
    assert (
        live.client.post("/v1/traces", content=b"x", headers={"Content-Encoding": script}).status_code == 415
    )
    assert live.client.get("/v1/traces").status_code == 405
    page = live.client.get("/status").text
    assert script not in page


def test_what_is_stored_has_its_ends_and_its_workspace(store: Store) -> None:
    chunk = facts.chunk("u0", 0, [facts.step(1)])
    told = [facts.increment(1, bucket_ago=600), facts.increment(2), facts.request(), chunk]
    store.write([facts.batch(*told)], facts.NOW)
    store.write([facts.batch(facts.increment(3, bucket_ago=7200), instance="second")], facts.NOW)
    found = store.holdings("default")
    assert (found.engines, store.used_bytes() > 10_000) == (2, True)
    assert found.requests is not None
    assert found.requests.oldest == found.requests.newest == facts.ago(20)
    assert found.steps is not None
    assert found.steps.newest == facts.ago(18)
    assert found.sums is not None
    assert (found.sums.oldest, found.sums.newest) == (facts.ago(7203), facts.ago(23))
    assert found.minutes is not None
    assert found.minutes.oldest == facts.ago(7203)
    other = store.holdings("second")
    assert (other.engines, other.requests, other.steps, other.sums, other.minutes) == (
        0,
        None,
        None,
        None,
        None,
    )

"""Everything an engine sends is hostile input: it is stored alike in both databases, or refused whole."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specscope.rollup import ALL, STEP, Counts
from specscope_server.store.model import RequestFilter
from specscope_server.store.port import Refused, Store
from specscope_server.store.told import Batch, EngineReport, RequestTotals, RollupIncrement
from storekit import facts
from storekit.dump import Dump, dump, empty

HUGE = "\0'; DROP TABLE request; --\ud800\U0010ffff" + "ä" * 100_000


def test_huge_and_broken_text_is_cut_and_cleaned(store: Store) -> None:
    report = EngineReport(1, HUGE, HUGE, True, {HUGE: [HUGE, math.nan, math.inf, {"deep": (1, None)}]})
    request = facts.request(HUGE, rid=HUGE, trace_id=HUGE, model=HUGE, kind=HUGE, finish_reason=HUGE)
    names = ("workspace", "environment", "instance", "process_uid", "role", "service_name", "detail")
    beat = facts.heartbeat(
        boundaries=facts.crossings(HUGE, HUGE, 3, eager=1), armed={HUGE: (False, HUGE)}, requests={HUGE: 1}
    )
    rollup = RollupIncrement(1, 0, {(HUGE, HUGE, 0): Counts(steps=1)})
    changes: dict[str, Any] = dict.fromkeys(names, HUGE)
    store.write([facts.batch(report, request, beat, rollup, **changes)], facts.NOW)
    shown = HUGE[:128].replace("\0", "\ufffd").replace("\ud800", "?")
    (row,) = store.engines(shown, facts.ago(60))
    assert row.instance == shown
    (listed,) = row.config.values()
    assert listed[1:] == [None, None, {"deep": [1, None]}]
    (found,) = store.requests(RequestFilter(workspace=shown, text=HUGE[:50]), 10).items
    assert len(found.rid) == 512
    assert found.rid.startswith("\ufffd'; DROP TABLE request; --?\U0010ffffä")
    assert store.request(shown, found.uid) is not None


@pytest.mark.parametrize(
    "fact",
    [
        facts.request(prompt_tokens=-1),
        facts.request(totals=RequestTotals(accepted=-1)),
        facts.request(totals=RequestTotals(accepted=2**63)),
        facts.request(arrival_ns=2**63),
        facts.request(max_tokens=2**70),
        facts.chunk(seq=-1),
        replace(facts.chunk(), first_step=2**62),
        facts.increment(-1),
        facts.increment(1, steps=2**50),
        RollupIncrement(1, 0, {(ALL, "", -2): Counts()}),
        RollupIncrement(1, 0, {(ALL, "", 10**9): Counts()}),
        facts.heartbeat(requests={"user": -1}),
        facts.heartbeat(queued=2**64),
        facts.heartbeat(boundaries=facts.crossings("draft.fc", "", 2**41)),
        EngineReport(-(2**64), "start", "m", True, {}),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_numbers_out_of_range_are_refused_whole(store: Store, fact: Any) -> None:
    with pytest.raises(Refused):
        store.write([facts.batch(facts.request("good")), facts.batch(fact)], facts.NOW)
    assert store.requests(RequestFilter(), 10).items == ()
    store.write([facts.batch(facts.request("good"))], facts.NOW)
    assert len(store.requests(RequestFilter(), 10).items) == 1


def test_the_largest_numbers_fit_and_add_up(store: Store) -> None:
    most = 2**40
    told = [facts.increment(n, steps=most, accepted=most) for n in range(100)]
    store.write([facts.batch(*told, facts.request(arrival_ns=2**63 - 1, end_ns=-(2**63)))], facts.NOW)
    (point,) = store.series("default", None, facts.ago(60), facts.NOW, 10)
    assert point.counts.accepted == 100 * most
    (row,) = store.requests(RequestFilter(), 10).items
    assert (row.arrival.year, row.end and row.end.year) == (2262, 1677)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_unknown(store: Store, value: float) -> None:
    store.write(
        [facts.batch(facts.request(temperature=value, queue_s=value, first_token_s=value))], facts.NOW
    )
    (row,) = store.requests(RequestFilter(), 10).items
    assert (row.temperature, row.queue_s, row.first_token_s) == (None, None, None)


@pytest.mark.postgres
def test_both_databases_take_the_same_text(
    sqlite_url: str, postgres_url: str, stores: tuple[Store, Store]
) -> None:
    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.text(max_size=40), min_size=6, max_size=6), st.floats() | st.none())
    def told(texts: list[str], number: float | None) -> None:
        batches = [_batch(texts, number), _batch(texts[::-1], number)]
        found: list[Dump] = []
        for store, url in zip(stores, (sqlite_url, postgres_url), strict=True):
            empty(url)
            store.write(batches, facts.NOW)
            found.append(dump(url))
        assert found[0] == found[1]

    told()


def _batch(texts: list[str], number: float | None) -> Batch:
    one, two, three, four, five, six = texts
    return facts.batch(
        EngineReport(1, one, two, True, {three: number, "list": [four, five]}),
        facts.request(one, rid=two, trace_id=three, state=four, kind=five, model=six, temperature=number),
        facts.heartbeat(armed={one: (True, two)}, boundaries=facts.crossings(three, four, 2, eager=1)),
        RollupIncrement(1, 0, {(one, two, STEP): Counts(steps=1), (two, one, 0): Counts(steps=1)}),
        process_uid=one,
        instance=two,
        workspace=three,
        role=four,
    )


@pytest.mark.parametrize("text", ["\0", "a\0b"])
def test_asking_for_a_nul_finds_nothing_or_is_refused_but_the_database_is_not_blamed(
    store: Store, text: str
) -> None:
    for ask in (
        lambda: store.engines(text, facts.ago(60)),
        lambda: store.request("default", text),
        lambda: store.requests(RequestFilter(text=text), 10).items,
    ):
        try:
            assert not ask()
        except Refused as error:
            assert "refused a value" in str(error)

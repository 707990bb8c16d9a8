"""Duplicated, late, shuffled and regrouped batches leave the same rows, on both databases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specscope.chunks import pack_boundaries
from specscope_server.store import open_store
from specscope_server.store.port import Store
from specscope_server.store.told import EngineReport, LogBatch, RequestTotals, SpanBatch, Told
from storekit import facts
from storekit.dump import Dump, dump, empty

OTHER: dict[str, Any] = {"process_uid": "p1", "tp": 1, "role": "worker", "service_name": "shop"}
ELSEWHERE: dict[str, Any] = {"workspace": "second", "instance": "launch"}


def _ledger(expected: int, observed: int) -> bytes:
    return pack_boundaries(
        {("draft.fc", "target_fed"): expected}, {("draft.fc", "target_fed", "eager"): observed}
    )


# One fact a batch: the smallest pieces an export can be cut into. The same request is told running, finished
# and by a second process; totals, ledger and clocks move on; some facts come late or contradict others.
PIECES: tuple[Told, ...] = (
    facts.batch(facts.REPORT),
    facts.batch(EngineReport(facts.ago_ns(30), "weight_update", "tiny-2", False, {"draft": {"layers": 2}})),
    facts.batch(facts.REPORT, **OTHER),
    facts.batch(
        facts.request(
            state="running",
            end_ns=None,
            output_tokens=None,
            finish_reason=None,
            first_token_s=None,
            totals=RequestTotals(verify_steps=1, drafted_depth=3, bonus=1, prefill_passes=1),
            boundaries=_ledger(2, 1),
        )
    ),
    facts.batch(facts.request(boundaries=_ledger(4, 4))),
    facts.batch(
        facts.request(rid="", trace_id="", model="", state="running", queue_s=None, end_ns=None), **OTHER
    ),
    facts.batch(facts.request("u1", state="aborted", kind="health_check", arrival_ns=facts.ago_ns(15))),
    facts.batch(facts.request("u1", state="running", kind="health_check", boundaries=b"damaged")),
    facts.batch(facts.chunk("u0", 0, [facts.step(1), facts.step(2)], [facts.extend(1)])),
    facts.batch(facts.chunk("u0", 1, [facts.step(3)])),
    facts.batch(facts.chunk("u2", 0, [facts.step(9)])),
    *(facts.batch(facts.increment(seq, ago)) for seq, ago in ((1, 30), (2, 20), (3, 20), (4, 0))),
    facts.batch(facts.increment(1), **OTHER),
    *(
        facts.batch(
            facts.heartbeat(
                seconds,
                boundaries=facts.crossings("draft.fc", "target_fed", total, eager=total - 1, graph=3),
                armed={
                    "draft.fc": (total > 3, "" if total > 3 else "not patched yet"),
                    "draft.map": (False, "x"),
                },
                requests={"user": total, "health_check": 1},
                dropped={"queue_full": total // 2},
                hook_errors={"fc": 1},
                queued=9 - total,
                export_failures=total,
                engine_thread_ns=1000 * total,
                speculation=total % 2 == 0,
            )
        )
        for seconds, total in ((33, 2), (22, 5), (12, 7), (1, 8))
    ),
    facts.batch(facts.heartbeat(400, boundaries=facts.crossings("draft.fc", "target_fed", 1)), **OTHER),
    facts.batch(facts.request(), facts.increment(1), facts.heartbeat(5), **ELSEWHERE),
    # Looks in a chunk after the draft extend's, and of a second process; prompts, of which one contradicts.
    facts.batch(facts.chunk("u0", 2, looks=[facts.look(1), facts.look(2)])),
    facts.batch(facts.chunk("u0", 0, [facts.step(1)], looks=[facts.look(1, std=2.0)]), **OTHER),
    facts.batch(facts.prompt()),
    facts.batch(facts.prompt(ids=[1, 2]), **OTHER),
    facts.batch(facts.prompt("u2")),
    *(facts.batch(facts.hidden_increment(seq, bucket_ago=ago)) for seq, ago in ((5, 30), (6, 20), (7, 20))),
    facts.batch(facts.hidden_increment(2, {facts.PLACE: facts.looks(3, 0.7, sum=-0.3)}), **OTHER),
    facts.batch(
        facts.hidden_increment(3, {(*facts.PLACE[:3], 2, *facts.PLACE[4:]): facts.looks(1)}), **OTHER
    ),
    *(facts.batch(facts.rank_steps(first)) for first in (3, 7)),
    facts.batch(facts.rank_steps(3, other=[5]), **OTHER),
    SpanBatch("default", (facts.span(0), facts.span(1))),
    SpanBatch("default", (facts.span(1), facts.span(2, failed=True))),
    SpanBatch("second", (facts.span(0),)),
    SpanBatch("default", (facts.span(3, trace="theirs", request_id="rid-u0", response_id="answer"),)),
    facts.batch(facts.request(response_id="answer"), **OTHER),
    LogBatch("default", (facts.log_record(0), facts.log_record(1))),
    LogBatch("default", (facts.log_record(1), facts.log_record(2, trace="theirs"))),
    LogBatch("second", (facts.log_record(0),)),
)


def _written(store: Store, url: str, exports: Sequence[Sequence[Told]]) -> Dump:
    empty(url)
    for export in exports:
        store.write(export, facts.NOW)
    return dump(url)


@st.composite
def deliveries(draw: st.DrawFn) -> list[list[Told]]:
    """Every piece at least once, any of them again, in any order, cut into exports anywhere."""
    order = draw(st.permutations(range(len(PIECES))))
    again = draw(st.lists(st.integers(0, len(PIECES) - 1), max_size=len(PIECES)))
    mixed = draw(st.permutations([*order, *again]))
    cuts = draw(st.sets(st.integers(1, len(mixed) - 1), max_size=12))
    bounds = [0, *sorted(cuts), len(mixed)]
    return [[PIECES[i] for i in mixed[a:b]] for a, b in pairwise(bounds)]


def test_order_number_and_grouping_of_batches_change_nothing(store: Store, store_url: str) -> None:
    wanted = _written(store, store_url, [[piece] for piece in PIECES])
    filled = {name for name, rows in wanted.items() if rows}
    concluded = {"finding", "alert_state", "alert_event", "delivery"}
    told_by_people = {"reference", "reference_sequence", "expectation", "alert_rule", "silence", "tokenizer"}
    access = {"user", "api_token", "audit"}
    assert filled == set(wanted) - concluded - told_by_people - access

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(deliveries())
    def shuffled(exports: list[list[Told]]) -> None:
        assert _written(store, store_url, exports) == wanted

    shuffled()


@pytest.mark.postgres
def test_both_databases_hold_the_same_rows(sqlite_url: str, postgres_url: str) -> None:
    held: list[Dump] = []
    for url in (sqlite_url, postgres_url):
        store = open_store(url)
        held.append(_written(store, url, [PIECES]))
        store.close()
    assert held[0] == held[1]


def test_deleting_a_workspace_leaves_nothing_of_it(store: Store, store_url: str) -> None:
    _written(store, store_url, [PIECES])
    empty(store_url)
    assert {name: rows for name, rows in dump(store_url).items() if rows} == {}

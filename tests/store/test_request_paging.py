"""Pages of requests while others are written, hostile values in every filter, and look-ups by each id."""

from __future__ import annotations

import threading
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, cast

import pytest
from specscope_server.store.model import Page, RequestFilter
from specscope_server.store.port import Store
from storekit import facts

BEFORE = 150
NO_TEXTS = {"since", "until", "min_acceptance_length", "max_acceptance_length"}
TEXTS = [field.name for field in fields(RequestFilter) if field.name not in NO_TEXTS]
HOSTILE = (
    "'; DROP TABLE request; --",
    "x' OR '1'='1",
    'x" OR ""="',
    "%",
    "_",
    "\\",
    "\0",
    "\ud800",
    "${jndi:ldap://x}",
    "😀" * 600,
    "0x" + "f" * 5000,
)


def _told(number: int, prefix: str, ago: float) -> Any:
    return facts.request(f"{prefix}{number:04}", rid=f"rid-{number % 7}", arrival_ns=facts.ago_ns(ago))


def _walk(store: Store, limit: int, **where: Any) -> list[str]:
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page: Page = store.requests(RequestFilter(**where), limit, cursor)
        seen += [row.uid for row in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return seen


@pytest.mark.parametrize("where", [{}, {"rid": "rid-3"}, {"engine_uid": facts.ENGINE, "kind": "user"}])
def test_pages_stay_whole_while_requests_arrive(store: Store, where: dict[str, Any]) -> None:
    # Several arrive at one moment, so that the uid decides between them.
    there = [_told(n, "a", 1000 + n // 5) for n in range(BEFORE)]
    store.write([facts.batch(facts.REPORT, *there)], facts.NOW)
    wanted = [r for r in there if where.get("rid") in (None, r.rid)]
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            # Before, among and after those that were there, and some of those again, further on.
            batch = [_told(number, "b", ago) for ago in (1, 1030, 1700)]
            store.write([facts.batch(batch[number % 3], there[number % BEFORE])], facts.NOW)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        walks = [_walk(store, limit, **where) for limit in (13, 50)]
    finally:
        stop.set()
        writer.join()
    for seen in walks:
        assert len(seen) == len(set(seen)), "none twice"
        old = [uid for uid in seen if uid.startswith("a")]
        newest_first = sorted(wanted, key=lambda r: (r.arrival_ns, r.uid), reverse=True)
        assert old == [r.uid for r in newest_first], "none missed"


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_values_match_nothing_and_change_nothing(store: Store, name: str) -> None:
    store.write([facts.batch(facts.REPORT, *(_told(n, "a", 10) for n in range(3)))], facts.NOW)
    for value in HOSTILE:
        try:
            assert store.requests(replace(RequestFilter(), **cast("Any", {name: value})), 10).items == (), (
                value
            )
        except ValueError as error:
            assert name == "flag", error
    for value in HOSTILE:
        with pytest.raises(ValueError, match="the cursor is not one"):
            store.requests(RequestFilter(), 10, value)
        assert store.request("default", value) is None
        assert store.request(value, "a0000") is None
    assert len(store.requests(RequestFilter(), 10).items) == 3


@pytest.mark.parametrize("moment", [datetime.min, datetime(2020, 1, 1)])
def test_a_time_without_zone_is_refused(store: Store, moment: datetime) -> None:
    with pytest.raises(ValueError, match="has no zone"):
        store.requests(RequestFilter(since=moment), 10)


def test_each_id_finds_its_request_alone(store: Store) -> None:
    mine = facts.request("a1", rid="mine", trace_id="ab" * 16, response_id="cmpl-1")
    store.write([facts.batch(facts.REPORT, mine, *(_told(n, "b", 10) for n in range(20)))], facts.NOW)
    wheres: tuple[dict[str, Any], ...] = (
        {"rid": "mine"},
        {"trace_id": "ab" * 16},
        {"response_id": "cmpl-1"},
        {"text": "mine"},
        {"text": "a1"},
        {"text": "ABAB"},
        {"text": "cmpl-1"},
    )
    for where in wheres:
        assert [r.uid for r in store.requests(RequestFilter(**where), 10).items] == ["a1"], where
        assert store.requests(RequestFilter(workspace="other", **where), 10).items == ()

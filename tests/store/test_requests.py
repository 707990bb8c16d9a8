"""Lists of requests: every filter, search, paging, and the requests whose process fell silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from specscope.chunks import pack_boundaries
from specscope_server.store.model import RequestFilter
from specscope_server.store.opening import open_store
from specscope_server.store.port import Store
from specscope_server.store.told import RequestTotals
from storekit import facts


@pytest.fixture
def at_now(store_url: str) -> Iterator[Store]:
    """A store whose clock stands at :data:`facts.NOW`."""
    opened = open_store(store_url, clock=lambda: facts.NOW_NS)
    yield opened
    opened.close()


def _uids(store: Store, **where: Any) -> list[str]:
    return [row.uid for row in store.requests(RequestFilter(**where), 100).items]


def _short(expected: int, observed: int) -> bytes:
    return pack_boundaries(
        {("draft.fc", "target_fed"): expected}, {("draft.fc", "target_fed", "eager"): observed}
    )


@pytest.fixture
def filled(at_now: Store) -> Store:
    """Five requests, newest first: e d c b a."""
    at_now.write(
        [
            facts.batch(
                facts.heartbeat(armed={"draft.fc": (True, "")}),
                facts.request("a", arrival_ns=facts.ago_ns(50), model="other"),
                facts.request("b", arrival_ns=facts.ago_ns(40), kind="health_check"),
                facts.request("c", arrival_ns=facts.ago_ns(30), state="running", end_ns=None),
                facts.request(
                    "d", arrival_ns=facts.ago_ns(20), totals=RequestTotals(verify_steps=4, bonus=4)
                ),
                facts.request("e", arrival_ns=facts.ago_ns(10), totals=RequestTotals()),
            )
        ],
        facts.NOW,
    )
    return at_now


def test_newest_arrival_first(filled: Store) -> None:
    assert _uids(filled) == ["e", "d", "c", "b", "a"]


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ({"rid": "rid-a"}, "a"),
        ({"rid": "rid"}, ""),
        ({"trace_id": "trace-b"}, "b"),
        ({"engine_uid": facts.ENGINE}, "edcba"),
        ({"engine_uid": "0000000000000000"}, ""),
        ({"model": "other"}, "a"),
        ({"kind": "health_check"}, "b"),
        ({"kind": "user"}, "edca"),
        ({"state": "running"}, "c"),
        ({"state": "finished"}, "edba"),
        ({"state": "lost"}, ""),
        ({"flag": "unfinished"}, "c"),
        ({"flag": "health_check"}, "b"),
        ({"flag": "zero_acceptance"}, "d"),
        ({"flag": "gap"}, ""),
        ({"since": facts.ago(30)}, "edc"),
        ({"until": facts.ago(30)}, "ba"),
        ({"since": facts.ago(40), "until": facts.ago(20)}, "cb"),
        ({"max_acceptance_length": 1.0}, "d"),
        ({"min_acceptance_length": 1.0}, "dcba"),
        ({"min_acceptance_length": 1.3}, "cba"),
        ({"min_acceptance_length": 1.4}, ""),
        ({"kind": "user", "state": "finished", "min_acceptance_length": 1.2}, "a"),
    ],
)
def test_filters(filled: Store, where: dict[str, Any], wanted: str) -> None:
    assert _uids(filled, **where) == list(wanted)


def test_search_finds_rid_trace_and_uid_whole_or_by_their_beginning(at_now: Store) -> None:
    at_now.write(
        [
            facts.batch(
                facts.request("0a" * 16, rid="chat-1_%", trace_id="bb" * 16, arrival_ns=3),
                facts.request("0c" * 16, rid="chat-12", trace_id="cc" * 16, arrival_ns=2),
                facts.request("0d" * 16, rid="Chat-1", trace_id="dd" * 16, arrival_ns=1),
            )
        ],
        facts.NOW,
    )
    first, second, third = "0a" * 16, "0c" * 16, "0d" * 16
    for text, wanted in (
        ("chat-1", [first, second]),
        (" chat-12 ", [second]),
        ("chat-1_%", [first]),
        ("%", []),
        ("Chat-1", [third]),
        ("BBBB", [first]),
        ("dd" * 16, [third]),
        ("0C0C", [second]),
        ("0", [first, second, third]),
        ("hat", []),
        ("é\0", []),
        ("", [first, second, third]),
    ):
        assert _uids(at_now, text=text) == wanted, text


def test_gap_needs_an_armed_boundary(at_now: Store) -> None:
    short = facts.request(boundaries=_short(3, 1))
    full = facts.request("u1", boundaries=_short(3, 3))
    blind = facts.heartbeat(20, armed={"draft.fc": (False, "symbol missing"), "draft.map": (True, "")})
    at_now.write([facts.batch(short, full, blind)], facts.NOW)
    assert _uids(at_now, flag="gap") == []
    at_now.write([facts.batch(facts.heartbeat(10, armed={"draft.fc": (True, "")}))], facts.NOW)
    assert _uids(at_now, flag="gap") == ["u0"]
    at_now.write([facts.batch(facts.heartbeat(5, armed={"draft.fc": (False, "disarmed")}))], facts.NOW)
    assert _uids(at_now, flag="gap") == []


def test_a_running_request_of_a_silent_process_is_lost(at_now: Store) -> None:
    running = facts.request(state="running", end_ns=None)
    at_now.write([facts.batch(running, facts.request("u1"))], facts.ago(61))
    assert {row.uid: row.state for row in at_now.requests(RequestFilter(), 9).items} == {
        "u0": "lost",
        "u1": "finished",
    }
    assert _uids(at_now, state="lost") == _uids(at_now, flag="unfinished") == ["u0"]
    assert _uids(at_now, state="running") == []
    detail = at_now.request("default", "u0")
    assert detail is not None
    assert detail.request.state == "lost"
    # It speaks again, of something else: the request may still go on.
    at_now.write([facts.batch(facts.heartbeat())], facts.ago(1))
    assert _uids(at_now, state="running") == ["u0"]


def test_another_process_speaking_does_not_keep_it_alive(at_now: Store) -> None:
    at_now.write([facts.batch(facts.request(state="running"))], facts.ago(90))
    at_now.write([facts.batch(facts.heartbeat(), process_uid="p1", dp=1)], facts.NOW)
    assert _uids(at_now, state="lost") == ["u0"]


def test_paging_shows_every_request_once_in_order(at_now: Store) -> None:
    # Groups of three arrive in the same nanosecond: the uid decides there.
    told = [facts.request(f"{n:02d}", arrival_ns=facts.ago_ns(n // 3)) for n in range(20)]
    at_now.write([facts.batch(*told)], facts.NOW)
    wanted = _uids(at_now)
    assert len(wanted) == 20
    for size in (1, 3, 7, 20):
        seen: list[str] = []
        cursor: str | None = None
        while True:
            page = at_now.requests(RequestFilter(), size, cursor)
            assert len(page.items) <= size
            seen += [row.uid for row in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == wanted


def test_arrivals_between_pages_do_not_shift_them(at_now: Store) -> None:
    at_now.write([facts.batch(*(facts.request(f"{n}", arrival_ns=n) for n in range(4)))], facts.NOW)
    page = at_now.requests(RequestFilter(), 2)
    at_now.write([facts.batch(facts.request("9", arrival_ns=9))], facts.NOW)
    assert [row.uid for row in at_now.requests(RequestFilter(), 2, page.next_cursor).items] == ["1", "0"]


@pytest.mark.parametrize("cursor", ["", "x", "!!!!", "MTIz", "eC95", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5L3g", "é"])
def test_a_foreign_cursor_is_refused(at_now: Store, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor is not one that this server gave out"):
        at_now.requests(RequestFilter(), 10, cursor)


def test_unknown_flags_and_limits_are_refused(at_now: Store) -> None:
    with pytest.raises(ValueError, match="flag 'odd' is unknown; known are gap, health_check"):
        at_now.requests(RequestFilter(flag="odd"), 10)
    with pytest.raises(ValueError, match="limit is 0"):
        at_now.requests(RequestFilter(), 0)

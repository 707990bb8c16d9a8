"""One snapshot shows one moment, whatever is committed between its reads."""

from __future__ import annotations

from datetime import timedelta

from specscope_server.store.model import RequestFilter
from specscope_server.store.port import Reads, Store
from storekit import facts

HOUR = timedelta(hours=1)


def _seen(reads: Reads) -> tuple[int, int, int, int]:
    """Requests by row, by evidence and by list, and verify steps."""
    row = reads.engine("default", facts.ENGINE, facts.NOW - HOUR)
    evidence = reads.evidence("default", facts.ENGINE, facts.NOW, 300)
    assert row is not None and evidence is not None and row.counts is not None
    listed = reads.requests(RequestFilter(), 10)
    return (
        row.requests.get("user", 0),
        evidence.window_requests.get("user", 0),
        len(listed.items),
        row.counts.steps,
    )


def _tell(store: Store, number: int) -> None:
    told = facts.heartbeat(2, requests={"user": number})
    store.write([facts.batch(facts.request(f"u{number}"), facts.increment(number), told)], facts.NOW)


def test_what_is_committed_after_the_first_read_is_not_seen(store: Store) -> None:
    _tell(store, 1)
    with store.snapshot() as reads:
        before = _seen(reads)
        _tell(store, 2)
        assert _seen(reads) == before == (1, 1, 1, 3)
        # A read by itself sees the newest.
        assert _seen(store) == (2, 2, 2, 6)
    assert _seen(store) == (2, 2, 2, 6)


def test_a_snapshot_gives_its_connection_back(store: Store) -> None:
    """More of them than there are connections, each left by an error."""
    _tell(store, 1)
    for _ in range(20):
        try:
            with store.snapshot() as reads:
                assert reads.models("default") == ["tiny"]
                raise LookupError
        except LookupError:
            pass
    assert _seen(store)[0] == 1

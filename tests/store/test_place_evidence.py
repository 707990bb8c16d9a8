"""Places held against each other, read from the newest chunks of a window."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from specscope import hidden
from specscope.hidden import HiddenRow
from specscope_server.diagnosis.engine_evidence import PlaceComparison
from specscope_server.store.place_evidence import MAX_CHUNKS, MAX_FIRST
from specscope_server.store.port import Store
from storekit import facts
from storekit.references import left_and_started, rows, states

PACKED = states()


def _places(store: Store, window_s: float = 60) -> tuple[PlaceComparison, ...]:
    found = store.evidence("default", facts.ENGINE, facts.NOW, window_s)
    assert found is not None
    return found.places


def _write(store: Store, looks: list[HiddenRow], uid: str = "u0", seq: int = 0, ago: float = 18) -> None:
    chunk = facts.chunk(uid, seq, looks=looks, end_ns=facts.ago_ns(ago), start_ns=facts.ago_ns(ago + 1))
    store.write([facts.batch(facts.request(uid), chunk)], facts.NOW)


def test_no_hidden_states_are_no_comparison(store: Store) -> None:
    store.write([facts.batch(facts.request(), facts.chunk(steps=[facts.step(1)]))], facts.NOW)
    assert _places(store) == ()


def test_requests_are_added_and_never_mixed(store: Store) -> None:
    """Each has states of its own at the same positions and steps."""
    for number in range(2):
        own = states(seed=number)
        _write(store, [*rows(own), *rows(own, hidden.AUX_CAPTURE)], f"u{number}")
    found = _places(store)
    assert [one.rows for one in found] == [40, 80] * 3
    assert max(one.relative_error for one in found) < 0.01


def test_a_request_goes_on_in_its_next_chunk(store: Store) -> None:
    stale = np.concatenate([PACKED[:1], PACKED[:-1]])
    looks = [*rows(stale), *rows(PACKED, hidden.AUX_CAPTURE)]
    _write(store, [row for row in looks if row.step <= 5], seq=0, ago=19)
    _write(store, [row for row in looks if row.step > 5], seq=1)
    found = _places(store)
    assert [one.rows for one in found] == [20, 40] * 3
    assert all(one.shifted[-1] < 0.02 < 0.3 < one.relative_error for one in found)


def test_what_is_older_than_the_window_is_not_read(store: Store) -> None:
    _write(store, [*rows(PACKED), *rows(PACKED, hidden.AUX_CAPTURE)], ago=50)
    assert _places(store, 30) == ()
    assert _places(store, 60) != ()


def test_only_the_newest_chunks_are_read(store: Store) -> None:
    for number in range(MAX_CHUNKS + 3):
        _write(store, [*rows(PACKED), *rows(PACKED, hidden.AUX_CAPTURE)], f"u{number}", ago=30 - number)
    assert {one.rows for one in _places(store) if one.after == "prefill"} == {20 * MAX_CHUNKS}


def test_hand_overs_are_read_from_first_chunks_too(store: Store) -> None:
    """The newest chunks are later ones of one long request, and tell nothing of what a prefill left."""
    for number in range(MAX_FIRST + 3):
        _write(store, left_and_started(), f"u{number}", ago=40 - number)
    for seq in range(1, MAX_CHUNKS + 1):
        later = [replace(row, position=row.position + 40 * seq) for row in left_and_started()]
        _write(store, [row for row in later if row.after == "verify"], "long", seq, ago=20 - seq)
    found = store.evidence("default", facts.ENGINE, facts.NOW, 60)
    assert found is not None
    filled = [one for one in found.hand_overs if one.after == "prefill"]
    assert [one.request for one in filled] == [
        f"u{n}" for n in range(MAX_FIRST + 2, 3, -1)
    ]  # and one of "long"
    assert sum(one.request == "long" for one in found.hand_overs) >= MAX_CHUNKS
    assert {round(one.relative_error, 3) for one in found.hand_overs} == {0.0}


def test_without_fingerprints_there_is_nothing_to_compare(store: Store) -> None:
    bare = [replace(row, levels=None, fingerprints=None) for row in rows(PACKED)]
    _write(store, bare)
    assert _places(store) == ()


def test_what_is_damaged_is_left_out_and_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    _write(store, [*rows(PACKED), *rows(PACKED, hidden.AUX_CAPTURE)])
    broken = replace(facts.chunk("u1", looks=rows(PACKED)), hidden=b"SPSC nonsense", end_ns=facts.ago_ns(5))
    store.write([facts.batch(facts.request("u1"), broken)], facts.NOW)
    with caplog.at_level(logging.WARNING):
        assert [one.rows for one in _places(store)] == [20, 40] * 3
    assert any(message.startswith("request u1: hidden states") for message in caplog.messages)

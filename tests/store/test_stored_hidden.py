"""Hidden states: of a request joined by step, over a window, over time; and its tokens by position."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from specscope import hidden
from specscope.hidden_rollup import Sums
from specscope_server.store import read_hidden
from specscope_server.store.model import RequestHidden
from specscope_server.store.port import Store
from storekit import facts

OTHER: dict[str, Any] = {"process_uid": "p1", "tp": 1, "role": "worker"}


def _hidden(store: Store, first_step: int = 0, steps: int = 200, limit: int = 2000) -> RequestHidden:
    found = store.hidden("default", "u0", first_step, steps, limit)
    assert found is not None
    return found


def _write(store: Store, *told: Any, **process: Any) -> None:
    store.write([facts.batch(*told, **process)], facts.NOW)


def test_unknown_requests_are_none(store: Store) -> None:
    assert store.hidden("default", "nobody") is None


def test_a_request_that_nobody_looked_at_has_no_rows(store: Store) -> None:
    _write(store, facts.request(), facts.chunk(steps=[facts.step(1)]))
    found = _hidden(store)
    assert (found.rows, found.left_out, found.prompt_ids, found.prompt_sha256) == ((), 0, None, "")
    assert found.output_ids == {}


def test_rows_read_back_along_the_path(store: Store) -> None:
    rows = [
        facts.look(2, place=hidden.CARRY, source="self_fed", draft_step=1),
        facts.look(2, place=hidden.FC_IN, same_as=hidden.FED, mean=None, std=None, levels=None),
        facts.look(2, slot=1),
        facts.look(2, slot=0),
        facts.look(1, after="prefill", rows=3, levels=[512, hidden.NO_LEVEL, 0], fingerprints=[1] * 24),
    ]
    _write(store, facts.request(), facts.chunk(steps=[facts.step(2)], looks=rows))
    assert _hidden(store).rows == (rows[4], rows[3], rows[2], rows[1], rows[0])
    assert (_hidden(store, limit=2).rows, _hidden(store, limit=2).left_out) == ((rows[4], rows[3]), 3)


def test_a_look_that_comes_late_belongs_to_its_own_step(store: Store) -> None:
    """A device's numbers may be told two chunks after the draft extend that they are of."""
    chunks = [
        facts.chunk(seq=n, steps=[facts.step(64 * n + i, context=10 + 64 * n + i) for i in range(64)])
        for n in range(3)
    ]
    late = facts.chunk(seq=3, first_step=192, looks=[facts.look(70)])
    own = facts.chunk(seq=4, first_step=192, looks=[facts.look(0, after="prefill"), facts.look(191)])
    _write(store, facts.request(), *chunks, late, own)
    steps = {
        (first, count): [row.step for row in _hidden(store, first, count).rows]
        for first, count in ((0, 64), (64, 64), (128, 64), (0, 200), (192, 10))
    }
    assert steps[64, 64] == [70]
    assert steps[0, 200] == [0, 70, 191]
    # Beyond what a look may be late it is not searched for: the prefill's comes three chunks later here.
    assert (steps[0, 64], read_hidden.LATE) == ([], 128)
    assert steps[128, 64] == [191]
    assert steps[192, 10] == []


def test_two_processes_that_tell_of_one_place_are_one_row(store: Store) -> None:
    _write(store, facts.request(), facts.chunk(steps=[facts.step(1)], looks=[facts.look(1)]))
    rows = [facts.look(1, std=5.0), facts.look(1, slot=1)]
    _write(store, facts.chunk(steps=[facts.step(1)], looks=rows), **OTHER)
    assert _hidden(store).rows == (facts.look(1), rows[1])


def test_tokens_by_position_as_far_as_they_were_told(store: Store) -> None:
    """The prompt has positions 0 to 9, prefill gives the token at 10, which no step commits."""
    steps = [
        facts.step(1, context=11, root=6, output_ids=[7, 8]),
        facts.step(2, context=13),
        facts.step(3, context=15, output_ids=[9]),
        facts.step(4, context=16, output_ids=[1], overshoot=1),
    ]
    _write(store, facts.request(), facts.prompt(), facts.chunk(steps=steps))
    found = _hidden(store)
    assert found.prompt_ids == tuple(range(5, 15))
    assert found.prompt_sha256 == facts.prompt().sha256
    assert found.output_ids == {10: 6, 11: 7, 12: 8, 15: 9}
    assert _hidden(store, 2).output_ids == {15: 9}


def test_what_is_damaged_is_left_out_and_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    broken = replace(facts.chunk(seq=1, first_step=0), hidden=b"SPSC nonsense")
    _write(store, facts.request(), facts.chunk(looks=[facts.look(1)]), broken)
    _write(store, replace(facts.prompt(), ids=b"SPSC nonsense"))
    with caplog.at_level(logging.WARNING):
        found = _hidden(store)
    assert (len(found.rows), found.prompt_ids) == (1, None)
    assert [m.split(":")[0] for m in caplog.messages] == ["request u0", "request u0"]


def test_sums_of_a_window(store: Store) -> None:
    zero = facts.looks(4, levelled=0, sum_square=0.0, max_abs=0.0, sum_level=0.0, sum_level2=0.0, zero_rows=8)
    _write(store, facts.hidden_increment(1, bucket_ago=40))
    _write(store, facts.hidden_increment(2, {facts.PLACE: facts.looks(6, 2.0, sum=-3.0)}, 30))
    _write(store, facts.hidden_increment(3, {facts.PLACE: zero, facts.place(slot=1): facts.looks(1)}, 20))
    _write(store, facts.hidden_increment(3, bucket_ago=20), **OTHER)

    def stats(since: float, until: float) -> dict[int, Sums]:
        found = store.hidden_stats("default", facts.ENGINE, facts.ago(since), facts.ago(until))
        return {key[3]: sums for key, sums in found.items()}

    assert stats(3600, 0)[0] == Sums(
        looks=30,
        rows=60,
        zero_rows=8,
        levelled=26,
        sum=-3.0,
        sum_square=2 * 20 * 16.0 + 2 * 6 * 4.0,
        max_abs=12.0,
        sum_level=20 * 2.0 + 6 * 1.0,
        sum_level2=20 * 4.0 + 6 * 1.0,
    )
    # NOW is 3 s into a bucket; the bucket of ``since`` counts, that of ``until`` does not unless it began.
    assert stats(33, 23)[0].looks == 6
    assert set(stats(33, 23)) == {0}
    assert set(stats(23, 13)) == {0, 1}
    assert stats(13, 0) == {}
    assert store.hidden_stats("second", facts.ENGINE, facts.ago(3600), facts.NOW) == {}


def test_sums_over_time_leave_gaps(store: Store) -> None:
    for seq, ago in ((1, 50), (2, 40), (3, 10)):
        _write(store, facts.hidden_increment(seq, bucket_ago=ago))
    since = facts.NOW - timedelta(seconds=63)
    points = store.hidden_series("default", facts.ENGINE, since, facts.NOW, 10)
    assert [(p.start, p.sums[facts.PLACE].looks) for p in points] == [
        (facts.ago(3 + ago), 10) for ago in (50, 40, 10)
    ]
    # NOW is 12:00:03, and all three were before 12:00.
    wider = store.hidden_series("default", facts.ENGINE, since, facts.NOW, 60)
    assert [p.sums[facts.PLACE].looks for p in wider] == [30]
    assert store.hidden_series("second", facts.ENGINE, since, facts.NOW, 10) == []
    with pytest.raises(ValueError, match="multiple of 10"):
        store.hidden_series("default", facts.ENGINE, since, facts.NOW, 15)


def test_what_a_chunk_inflates_to_is_bounded(store: Store) -> None:
    """Looks behind too many numbers are not read, and the answer says that there are more."""
    looks = [facts.look(1, slot=n, rows=512, levels=[0] * 512, fingerprints=[1] * 4096) for n in range(800)]
    _write(store, facts.request(), *(facts.chunk(seq=n, looks=looks) for n in range(3)))
    found = _hidden(store, limit=1 << 20)
    assert read_hidden.MAX_NUMBERS < 2 * 800 * 4608
    assert (len(found.rows), found.left_out) == (800, 1)


def test_chunks_that_are_too_many_are_left_out_and_counted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_hidden, "MAX_CHUNKS", 2)
    told = [facts.chunk(seq=n, first_step=n, looks=[facts.look(n)] if n != 3 else []) for n in range(6)]
    _write(store, facts.request(), *told)
    found = _hidden(store)
    assert (len(found.rows), found.left_out) == (2, 3), "one of the four that were not read has none"

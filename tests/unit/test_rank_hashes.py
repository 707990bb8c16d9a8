"""Checksums of one rank: collected without a lock, cut into records, bounded."""

from __future__ import annotations

import threading
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specscope import chunks, columns
from specscope.ranks import HELD, ROWS, RankHashes
from specscope.records import RankSteps


def taken(ranks: RankHashes) -> list[RankSteps]:
    found: list[RankSteps] = []
    while (record := ranks.take(everything=True)) is not None:
        found.append(record)
    return found


def test_a_step_is_told_as_checksums_of_what_the_rank_did() -> None:
    ranks = RankHashes(2)
    ranks.add(7, b"drafts", b"accepted")
    ranks.add(8, None, b"")
    record = ranks.take(everything=True)
    assert record is not None
    assert (record.size, record.steps) == (2, (7, 8))
    assert record.proposals == (crc32(b"drafts"), None)
    assert record.accepts == (crc32(b"accepted"), 0)
    assert ranks.take(everything=True) is None


def test_one_other_byte_is_another_checksum() -> None:
    one, other = RankHashes(2), RankHashes(2)
    one.add(1, bytes(4096), b"")
    other.add(1, bytes(4095) + b"\1", b"")
    first, second = one.take(everything=True), other.take(everything=True)
    assert first is not None and second is not None
    assert first.proposals != second.proposals
    assert first.accepts == second.accepts


def test_until_a_beat_only_full_records_are_due() -> None:
    ranks = RankHashes(2)
    for step in range(ROWS - 1):
        ranks.add(step, b"", b"")
    assert ranks.take(everything=False) is None
    for step in range(ROWS - 1, ROWS + 5):
        ranks.add(step, b"", b"")
    full = ranks.take(everything=False)
    assert full is not None and full.steps == tuple(range(ROWS))
    assert ranks.take(everything=False) is None
    assert [r.steps for r in taken(ranks)] == [tuple(range(ROWS, ROWS + 5))]
    assert ranks.lost() == 0


def test_when_nothing_can_go_out_the_oldest_go_and_are_counted() -> None:
    ranks = RankHashes(2)
    for step in range(HELD + 10):
        ranks.add(step, b"", b"")
    assert ranks.lost() == 10
    steps = [step for record in taken(ranks) for step in record.steps]
    assert steps == list(range(10, HELD + 10))
    assert ranks.lost() == 10


def test_engine_and_pump_may_work_at_the_same_time() -> None:
    ranks = RankHashes(2)
    wanted = 200_000

    def engine() -> None:
        for step in range(wanted):
            ranks.add(step, b"x", b"y")

    thread = threading.Thread(target=engine)
    thread.start()
    found: list[int] = []
    while thread.is_alive():
        record = ranks.take(everything=True)
        found += () if record is None else record.steps
    thread.join()
    found += [step for record in taken(ranks) for step in record.steps]
    assert found == sorted(set(found))
    assert len(found) + ranks.lost() == wanted


NUMBERS = (-700, 1, -2, 3, -4, 5, -6, 7, -8)


def test_hidden_states_go_along_where_they_were_taken() -> None:
    ranks = RankHashes(2)
    ranks.add(7, b"", b"", NUMBERS)
    ranks.add(8, b"", b"")
    record = ranks.take(everything=True)
    assert record is not None
    assert (record.hidden, record.fc_out) == ((NUMBERS, None), ())
    ranks.add(9, b"", b"", NUMBERS, NUMBERS[::-1])
    record = ranks.take(everything=True)
    assert record is not None
    assert (record.hidden, record.fc_out) == ((NUMBERS,), (NUMBERS[::-1],))
    ranks.add(10, b"", b"")
    record = ranks.take(everything=True)
    assert record is not None
    assert (record.hidden, record.fc_out) == ((), ())


@given(st.lists(st.none() | st.lists(st.tuples(*[st.integers(-32768, 32767)] * 9), min_size=1, max_size=3)))
def test_packed_hidden_states_come_back_equal(slots: list[list[tuple[int, ...]] | None]) -> None:
    hidden = [None if one is None else tuple(number for slot in one for number in slot) for one in slots]
    steps, none = list(range(len(hidden))), [None] * len(hidden)
    for name in chunks.RANK_LOOKS:
        looks = [hidden if one == name else () for one in chunks.RANK_LOOKS]
        blob = chunks.pack_ranks(steps, none, none, *looks)
        told = {one: chunks.unpack_rank_looks(blob, one) for one in chunks.RANK_LOOKS}
        assert told == {one: hidden if one == name else none for one in chunks.RANK_LOOKS}
        assert chunks.unpack_ranks(blob) == [(step, None, None) for step in steps]
        assert (name in columns.decode(blob)) == any(one is not None for one in hidden)


def test_ranks_of_an_earlier_tracer_have_none() -> None:
    blob = columns.encode({"step": [1, 2], "proposals": [3, 4], "accepts": [5, None]})
    assert [chunks.unpack_rank_looks(blob, name) for name in chunks.RANK_LOOKS] == [[None, None]] * 2
    assert chunks.unpack_ranks(blob) == [(1, 3, 5), (2, 4, None)]


@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        ([[1] * 8], "8 numbers"),
        ([list[int]()], "0 numbers"),
        ([[1] * 9 * (chunks.MAX_RANK_SLOTS + 1)], "numbers in one step"),
        ([1], "a list wanted"),
        (["x"], "a list wanted"),
    ],
)
def test_what_is_no_fingerprint_of_a_rank_is_refused(hidden: Any, message: str) -> None:
    for name in chunks.RANK_LOOKS:
        blob = columns.encode({"step": [1], "proposals": [1], "accepts": [1], name: hidden})
        with pytest.raises(columns.CodecError, match=message):
            chunks.unpack_rank_looks(blob, name)


def test_packed_they_come_back_equal() -> None:
    rows = [(1_000_000, 0, None), (1_000_001, None, 0xFFFFFFFF), (1_000_007, 5, 6)]
    steps, proposals, accepts = zip(*rows, strict=True)
    assert chunks.unpack_ranks(chunks.pack_ranks(steps, proposals, accepts)) == rows


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        ({"step": [1], "proposals": [1]}, "lack the columns"),
        ({"step": [-1], "proposals": [1], "accepts": [1]}, "is not"),
        ({"step": [None], "proposals": [1], "accepts": [1]}, "is not"),
        ({"step": [1], "proposals": ["1"], "accepts": [1]}, "is not"),
        ({name: list(range(257)) for name in chunks.RANK_COLUMNS}, "257 rows are over the limit of 256"),
    ],
)
def test_what_is_no_rank_is_refused(packed: dict[str, columns.Column], message: str) -> None:
    with pytest.raises(columns.CodecError, match=message):
        chunks.unpack_ranks(columns.encode(packed))

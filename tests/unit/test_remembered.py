"""What chunks come to is the same when it was remembered."""

from __future__ import annotations

import pytest
from specscope.chunks import StepRow, pack_steps
from specscope.columns import CodecError
from specscope_server.store import remembered
from specscope_server.store.remembered import Remembered
from specscope_server.store.step_sums import add_up, sums_of
from storekit import facts


def rows() -> list[StepRow]:
    told = {
        "ids_min": 3, "ids_max": 90, "ids_mode_share": 0.5, "ids_even_share": 0.25, "ids_below_zero": 0,
        "ids_above_vocab": 1, "ids_repeats_last": 1, "draft_tokens": [3, 90, 3],
        "shift_hits": [0, 1, 2, 0, 0], "shift_of": [1, 2, 3, 3, 3],
        "draft_top1": [5000, 4000, -1], "draft_entropy": [900, 1000, -1],
        "target_rank": 7, "target_prob": 0.125, "draft_prob": 0.0625, "outside_draft_vocab": 1,
    }  # fmt: skip
    steps = [facts.step(number, **told) for number in range(5)]
    return [*steps, facts.step(5, drafted_depth=0, accepted=0), facts.step(6, overshoot=1), facts.step(7)]


def test_the_sums_of_a_chunk_are_the_same_the_second_time() -> None:
    blob = pack_steps(rows(), tokens=True)
    for first_step in (0, 64):
        once, again = sums_of(blob, first_step), sums_of(blob, first_step)
        assert once == again == add_up(rows(), first_step)
        assert once is not again, "who changes one does not change what is remembered"
    assert sums_of(blob, 0) != sums_of(blob, 64), "where a chunk stands in its request counts"


def test_what_fails_is_not_remembered() -> None:
    for _ in range(2):
        with pytest.raises(CodecError):
            sums_of(b"no chunk", 0)


def test_what_nobody_asks_for_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST", 3)
    worked: list[bytes] = []

    def work(blob: bytes) -> int:
        worked.append(blob)
        return len(blob)

    known = Remembered(work, int, int)
    for letter in b"abcdefghi":
        assert known.of(b"asked for") == 9
        assert known.of(bytes([letter]) * 2) == 2
    assert worked.count(b"asked for") == 1
    known.of(b"aa")
    assert worked.count(b"aa") == 2

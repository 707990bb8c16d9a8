"""What chunks come to is the same when it was remembered."""

from __future__ import annotations

import pytest
from specscope.chunks import pack_steps
from specscope.columns import CodecError
from specscope_server.store import remembered
from specscope_server.store.remembered import Remembered
from specscope_server.store.step_sums import added, sums_of
from storekit import facts


def test_a_chunk_is_opened_once_and_its_place_in_its_request_counts() -> None:
    blob = pack_steps([facts.step(number) for number in range(5)], tokens=True)
    assert sums_of(blob, 0) is sums_of(bytes(bytearray(blob)), 0)
    assert added([sums_of(blob, 0)]) != added([sums_of(blob, 64)])


def test_what_fails_is_not_remembered() -> None:
    for _ in range(2):
        with pytest.raises(CodecError):
            sums_of(b"no chunk", 0)


def test_what_nobody_asks_for_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST", 3)
    worked: list[bytes] = []

    def work(blob: bytes, number: int) -> int:
        worked.append(blob)
        return len(blob) + number

    known = Remembered(work)
    for letter in b"abcdefghi":
        assert known.of(b"asked for") == 9
        assert known.of(bytes([letter]) * 2) == 2
    assert worked.count(b"asked for") == 1
    assert known.of(b"asked for", 1) == 10
    known.of(b"aa")
    assert worked.count(b"aa") == 2

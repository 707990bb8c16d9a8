"""Passes are timed from begin to begin, and only where nothing but the engine's work lay between."""

from __future__ import annotations

import subprocess
import sys

import pytest
from specscope import pass_times
from specscope.convention import PASS_DECODE as DECODE
from specscope.convention import PASS_DRAFT as DRAFT
from specscope.convention import PASS_STEP as STEP
from specscope.convention import PASS_VERIFY as VERIFY
from specscope.pass_times import PassTimes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that is set by hand."""
    now = [1000]
    monkeypatch.setattr(pass_times.time, "monotonic_ns", lambda: now[0])
    return now


def begin(times: PassTimes, clock: list[int], at: int, kind: str, reqs: list[object], step: int) -> None:
    clock[0] = at
    assert times.begins(kind, reqs, step) == at


def test_steps_that_follow_each_other_on_the_same_requests_count(clock: list[int]) -> None:
    times, reqs = PassTimes(), [object(), object(), object()]
    for step, at in ((7, 100), (8, 130), (9, 170)):
        begin(times, clock, at, STEP, list(reqs), step)
    assert times.sums == {(STEP, 2): (2, 70)}


def test_a_prefill_another_kind_a_gap_or_other_requests_do_not(clock: list[int]) -> None:
    times, one, other = PassTimes(), [object()], [object()]
    begin(times, clock, 10, STEP, one, 1)
    begin(times, clock, 20, "", one, 2)  # a prefill
    begin(times, clock, 30, STEP, one, 3)
    begin(times, clock, 40, STEP, one, 5)  # a step was not seen
    begin(times, clock, 50, DECODE, one, 6)
    begin(times, clock, 60, DECODE, other, 7)
    times.pause()
    begin(times, clock, 70, DECODE, other, 8)
    begin(times, clock, 80, "", other, 9)
    begin(times, clock, 90, "", other, 10)
    assert times.sums == {}


def test_parts_are_timed_only_where_the_host_is_the_device(clock: list[int]) -> None:
    times = PassTimes()
    assert times.part_begins() is None
    times.host_is_device = True
    assert times.part_begins() == 1000
    clock[0] = 1100
    times.parts(4, began_ns=1000, target_ns=60)
    assert times.sums == {(VERIFY, 3): (1, 60), (DRAFT, 3): (1, 40)}


def test_a_forked_child_starts_anew(clock: list[int]) -> None:
    times, reqs = PassTimes(), [object()]
    begin(times, clock, 10, STEP, reqs, 1)
    begin(times, clock, 20, STEP, reqs, 2)
    times.clear()
    begin(times, clock, 30, STEP, reqs, 3)
    assert times.sums == {}


def test_the_engine_needs_no_numpy_for_it() -> None:
    # numpy starts threads when it is imported: what an engine imports of ours leaves that to the exporter.
    code = "import sys, specscope.recorder, specscope.pass_times; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

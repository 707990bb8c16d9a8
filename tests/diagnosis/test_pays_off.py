"""Does speculation pay: from measured times only, and not known where plain decode is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_literals import HEALTHY, counts
from specscope_server.diagnosis import pays_off
from specscope_server.diagnosis.engine_evidence import PassTime, Slice
from specscope_server.diagnosis.model import Evidence, Finding
from specscope_server.diagnosis.verdict import CLEAR, Unknown


def told(accepted: int, *times: PassTime) -> Evidence:
    """400 steps at batch 1 with such times."""
    return replace(HEALTHY, slices=(Slice("batch", "1", counts(400, accepted, 0)),), times=times)


def timed(kind: str, ms: float, passes: int = 100, batch: int = 1) -> PassTime:
    return PassTime(kind, batch, passes, ms)


def test_it_speeds_up_by_length_times_plain_over_step() -> None:
    evidence = told(800, timed("step", 20), timed("decode", 12))
    said = pays_off.assess(evidence)
    assert isinstance(said, pays_off.Assessment)
    assert said.speedup == pytest.approx(3.0 * 12 / 20)
    assert said.words == "speeds up 1.8 x"
    assert pays_off.judge(evidence, ()) is CLEAR


def test_it_slows_down() -> None:
    found = pays_off.judge(told(40, timed("step", 20), timed("decode", 12)), ())
    assert isinstance(found, Finding)
    assert (found.kind, found.confidence) == ("pays_off", "observation")
    assert "slows down to 0.66 x" in found.sentence


def test_without_plain_decode_a_bound_is_told_and_nothing_found() -> None:
    parts = (timed("verify", 10), timed("draft", 10))
    for accepted, words in ((800, "not known"), (40, "slows down to 0.55 x at best")):
        found = pays_off.judge(told(accepted, *parts), ())
        assert isinstance(found, Unknown)
        assert found.reason.startswith(words)


def test_nothing_timed_or_too_little_is_not_known() -> None:
    assert isinstance(pays_off.judge(HEALTHY, ()), Unknown)
    few = told(800, timed("step", 20, 49), timed("decode", 12))
    assert isinstance(pays_off.assess(few), str)
    other = told(800, timed("step", 20), timed("decode", 12, batch=4))
    assert isinstance(pays_off.assess(other), str)

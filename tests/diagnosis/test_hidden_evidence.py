"""Statistics of hidden states from sums, by literals; what was not looked at has no number."""

from __future__ import annotations

import pytest
from specscope import hidden
from specscope.hidden_rollup import Key, Sums
from specscope_server.diagnosis import hidden_evidence
from specscope_server.diagnosis.hidden_evidence import CarryRatio, HiddenEvidence


def key(place: str = hidden.FED, draft_step: int = 0, slot: int = 0, mode: str = "eager") -> Key:
    source = "self_fed" if draft_step else "target_fed"
    return place, source, draft_step, slot, "verify", mode


def only(sums: Sums) -> HiddenEvidence:
    [one] = hidden_evidence.of({key(): sums})
    return one


def test_nothing_looked_at_is_no_entry() -> None:
    assert hidden_evidence.of({}) == ()
    assert hidden_evidence.carry_ratios(()) == ()


def test_means_sizes_and_shares() -> None:
    one = only(
        Sums(
            looks=4,
            rows=10,
            nonfinite=5,
            zero_rows=2,
            equal_rows=3,
            levelled=4,
            sum=-20.0,
            sum_square=90.0,
            max_abs=7.0,
            sum_level=8.0,
            sum_level2=20.0,
        )
    )
    assert (one.looks, one.rows, one.max_abs, one.levelled) == (4, 10, 7.0, 4)
    assert (one.mean, one.rms, one.geometric_rms, one.deviation) == (-2.0, 3.0, 4.0, 1.0)
    # Six rows have one before them in their look.
    assert (one.nonfinite_per_row, one.zero_share, one.equal_share) == (0.5, 0.2, 0.5)


def test_what_cannot_be_taken_is_none() -> None:
    one = only(Sums(looks=3, rows=3, nonfinite=96))
    assert (one.mean, one.rms) == (0.0, 0.0)
    assert (one.geometric_rms, one.deviation, one.equal_share) == (None, None, None)


def test_rounding_leaves_no_negative_deviation() -> None:
    assert only(Sums(looks=2, rows=2, levelled=2, sum_level=4.0, sum_level2=7.9999999)).deviation == 0.0


def test_entries_go_along_the_path() -> None:
    keys = [key(hidden.CARRY, 1), key(hidden.FC_OUT), key(hidden.FED, slot=1), key(hidden.FED), key("other")]
    found = hidden_evidence.of({one: Sums(looks=1, rows=1) for one in keys})
    assert [one.key for one in found] == [keys[3], keys[2], keys[1], keys[4], keys[0]]


def test_the_carry_from_draft_step_to_draft_step() -> None:
    def size(level: float) -> Sums:
        return Sums(looks=5, rows=5, levelled=5, sum_level=5 * level, sum_level2=5 * level**2)

    found = hidden_evidence.of(
        {
            key(hidden.CARRY, 0): size(1.0),
            key(hidden.CARRY, 1): size(3.0),
            key(hidden.CARRY, 2): size(2.0),
            key(hidden.CARRY, 4): size(9.0),
            key(hidden.CARRY, 5): Sums(looks=5, rows=5),
            key(hidden.CARRY, 1, mode="graph"): size(5.0),
            key(hidden.FED, 0): size(0.0),
        }
    )
    ratios = hidden_evidence.carry_ratios(found)
    assert ratios == (CarryRatio(0, 0, "verify", "eager", 4.0), CarryRatio(1, 0, "verify", "eager", 0.5))
    assert ratios[0].ratio == pytest.approx(2.0 ** (3.0 - 1.0))

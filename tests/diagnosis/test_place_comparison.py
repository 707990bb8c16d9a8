"""Simulated states on the wire, held against each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from specscope import hidden
from specscope.hidden import HiddenRow
from specscope_server.diagnosis import place_comparison
from specscope_server.diagnosis.engine_evidence import PlaceComparison
from storekit.references import rows, states

PACKED = states()


def told(*parts: list[HiddenRow]) -> tuple[PlaceComparison, ...]:
    return place_comparison.conclude(place_comparison.hold([row for part in parts for row in part]))


def test_a_copy_has_no_error() -> None:
    found = told(rows(PACKED), rows(PACKED, hidden.AUX_CAPTURE))
    assert [(one.slot, one.after, one.rows) for one in found] == [
        (slot, after, count) for slot in range(3) for after, count in (("prefill", 20), ("verify", 40))
    ]
    for one in found:
        assert (one.place, one.other) == (hidden.FED, hidden.AUX_CAPTURE)
        assert one.relative_error < 0.01
        assert one.scale == pytest.approx(1, abs=0.001)


@pytest.mark.parametrize(
    ("place", "same_as"), [(hidden.FED, hidden.AUX_CAPTURE), (hidden.AUX_CAPTURE, hidden.FED)]
)
def test_one_tensor_is_the_same_whichever_place_tells_it(place: str, same_as: str) -> None:
    numbers = rows(PACKED, same_as)
    shared = [replace(row, place=place, same_as=same_as, levels=None, fingerprints=None) for row in numbers]
    found = told(numbers, shared)
    assert sum(one.rows for one in found) == 180
    assert {one.relative_error for one in found} == {0.0}


def test_rows_of_the_token_before_are_found_across_passes() -> None:
    stale = np.concatenate([PACKED[:1], PACKED[:-1]])
    for one in told(rows(stale), rows(PACKED, hidden.AUX_CAPTURE)):
        assert one.relative_error > 0.3
        assert one.shifted[-1] < 0.02
        assert one.shifted[1] > 0.3


@pytest.mark.parametrize("factor", [0.1, 3.0])
def test_a_factor_is_exact(factor: float) -> None:
    for one in told(rows(PACKED * factor), rows(PACKED, hidden.AUX_CAPTURE)):
        assert one.relative_error == pytest.approx(abs(1 - factor), rel=0.01)
        assert one.scale == pytest.approx(factor, rel=0.002)


def test_states_of_zero_are_an_error_of_one() -> None:
    for one in told(rows(np.zeros_like(PACKED)), rows(PACKED, hidden.AUX_CAPTURE)):
        assert (one.relative_error, one.scale) == (1.0, 0.0)


def test_only_the_same_pass_is_paired() -> None:
    later = [replace(row, step=row.step + 100) for row in rows(PACKED, hidden.AUX_CAPTURE)]
    assert told(rows(PACKED), later) == ()


def test_the_first_carry_is_held_against_what_fc_gave() -> None:
    one_slot = PACKED[:, :1]
    ends = [replace(row, position=row.position + row.rows - 1, rows=1, levels=(row.levels or [])[-1:],
                    fingerprints=(row.fingerprints or [])[-8:])
            for row in rows(one_slot, hidden.CARRY)]  # fmt: skip
    found = told(ends, rows(one_slot, hidden.FC_OUT))
    assert [(one.place, one.other, one.rows) for one in found] == [
        (hidden.CARRY, hidden.FC_OUT, 1),
        (hidden.CARRY, hidden.FC_OUT, 10),
    ]
    assert all(one.relative_error < 0.02 for one in found)


def test_self_fed_rows_and_damaged_ones_are_left_out() -> None:
    drafted = rows(PACKED, source="self_fed", draft_step=1)
    assert told(drafted, rows(PACKED, hidden.AUX_CAPTURE)) == ()
    assert told(rows(PACKED, levels=[1]), rows(PACKED, hidden.AUX_CAPTURE)) == ()


def test_requests_add_up() -> None:
    held = place_comparison.hold([*rows(PACKED), *rows(PACKED, hidden.AUX_CAPTURE)])
    before = place_comparison.conclude(held)
    for one in held.values():
        one.add(replace(one))
    assert [one.rows for one in place_comparison.conclude(held)] == [2 * one.rows for one in before]

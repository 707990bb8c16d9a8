"""Relative error, scale, order and shift of simulated states against a reference."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from specscope import hidden
from specscope.hidden import HiddenRow
from specscope_server.diagnosis import reference
from specscope_server.diagnosis.reference import SlotComparison, compare, conclude, known_ids
from storekit import references
from storekit.references import IDS, SAME_AS, States, passage, rows, states

HEALTHY = states()
REFERENCE = passage(HEALTHY)


def told(found: list[HiddenRow], ids: tuple[int, ...] = IDS) -> list[SlotComparison]:
    return [conclude(pairs) for pairs in compare(found, ids, REFERENCE, SAME_AS)]


def error_of(one: SlotComparison) -> float:
    assert one.estimate is not None
    return one.estimate.relative_error


def noisy(share: float, seed: int = 1) -> States:
    """Return states with noise of this share of the root mean square of each row."""
    noise = np.random.default_rng(seed).standard_normal(HEALTHY.shape)
    return HEALTHY + share * noise * np.sqrt((HEALTHY**2).mean(axis=2, keepdims=True))


def test_equal_states_have_no_error() -> None:
    found = told(rows(HEALTHY))
    assert [(one.place, one.slot, one.recorded) for one in found] == [
        (hidden.FED, slot, 60) for slot in range(3)
    ]
    for one in found:
        assert one.estimate is not None
        assert one.estimate.tokens == 60
        assert one.estimate.relative_error < 0.02
        assert one.estimate.standard_error < 0.02
        assert one.estimate.scale == pytest.approx(1, abs=0.001)
        assert one.equals == one.slot
        assert one.positions == tuple(range(60))
        assert max(one.errors) < 0.03
        assert one.median_error is not None and one.median_error < 0.02


def test_what_the_draft_leaves_depends_on_the_token_behind() -> None:
    left = states(tokens=59, slots=1, seed=2)
    (one,) = [
        conclude(pairs)
        for pairs in compare(
            rows(left, place=hidden.CARRY), (*IDS[:30], 7), passage({hidden.CARRY: left}), SAME_AS
        )
    ]
    assert error_of(one) < 0.02
    assert one.positions == tuple(range(29))  # that at 29 was made with another token 30


@pytest.mark.parametrize("factor", [0.1, 0.5, 2.0, 10.0])
def test_a_change_of_scale_is_exact_whatever_the_projections(factor: float) -> None:
    for one in told(rows(HEALTHY * factor)):
        assert one.estimate is not None
        assert one.estimate.relative_error == pytest.approx(abs(1 - factor), rel=0.01)
        assert one.estimate.scale == pytest.approx(factor, rel=0.002)
        assert one.median_error == pytest.approx(abs(1 - factor), rel=0.02)
        assert one.equals is None


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_noise_is_told_within_its_standard_error(share: float) -> None:
    found = [one for seed in range(8) for one in told(rows(noisy(share, seed)))]
    off = [(error_of(one) - share) / one.estimate.standard_error for one in found if one.estimate]
    assert len(off) == 24
    assert abs(np.mean(off)) < 1
    assert 0.4 < np.std(off) < 2
    assert max(abs(error_of(one) / share - 1) for one in found) < 0.25


def test_slots_in_another_order_are_named() -> None:
    found = told(rows(HEALTHY[:, [1, 0, 2]]))
    assert [one.equals for one in found] == [1, 0, 2]
    assert error_of(found[2]) < 0.02
    for one in found[:2]:
        assert error_of(one) > 0.5
        best = one.against[1 - one.slot]
        assert best is not None and best < 0.02


def test_rows_of_the_token_before_are_found_by_a_shift() -> None:
    stale = np.concatenate([HEALTHY[:1], HEALTHY[:-1]])
    for one in told(rows(stale)):
        behind, ahead = one.shifted[-1], one.shifted[1]
        assert behind is not None and ahead is not None
        assert behind < 0.02
        assert error_of(one) > 0.3
        assert ahead > 0.3


def test_rotated_states_are_as_far_as_any_others() -> None:
    rng = np.random.default_rng(3)
    turn = np.linalg.qr(rng.standard_normal((references.WIDTH, references.WIDTH)))[0]
    for one in told(rows(HEALTHY @ turn)):
        assert one.estimate is not None
        # Rows that are alike are turned alike, so the 8 projections are nearly all there is to go by.
        assert one.estimate.relative_error == pytest.approx(math.sqrt(2), abs=3 * one.estimate.standard_error)
        assert 1 < one.estimate.relative_error < 1.9
        assert one.estimate.scale == pytest.approx(1, abs=0.001)
        assert one.equals is None


def test_states_of_zero_are_an_error_of_one_and_not_nothing() -> None:
    for one in told(rows(np.zeros_like(HEALTHY))):
        assert one.estimate is not None
        assert (one.estimate.relative_error, one.estimate.scale) == (1.0, 0.0)


def test_rows_that_are_not_finite_are_not_compared() -> None:
    broken = [replace(row, levels=[hidden.NO_LEVEL] * row.rows, nonfinite=9) for row in rows(HEALTHY)]
    for one in told(broken):
        assert (one.recorded, one.estimate, one.median_error, one.equals) == (60, None, None, None)


def test_only_tokens_that_both_know_are_compared() -> None:
    for ids, tokens in (
        (IDS[:30], 30),
        ((*IDS[:25], 7, *IDS[26:]), 25),
    ):
        for one in told(rows(HEALTHY), ids):
            assert one.estimate is not None and one.estimate.tokens == tokens
            assert one.positions == tuple(range(tokens))
    for one in told(rows(HEALTHY), (7, *IDS[1:])):
        assert (one.estimate, one.errors, set(one.shifted.values())) == (None, (), {None})


def test_an_embedding_needs_the_token_behind_it() -> None:
    at = passage({hidden.EMBEDDING: HEALTHY[:-1, :1]})
    (one,) = compare(rows(HEALTHY[:, :1], hidden.EMBEDDING), IDS[:30], at, SAME_AS)
    assert one.against[0].tokens == 29


def test_places_that_the_reference_does_not_know_are_left_out() -> None:
    places = [hidden.FC_OUT, hidden.FC_IN, hidden.AUX_CAPTURE, hidden.CARRY]
    found = told([row for place in places for row in rows(HEALTHY, place)])
    assert [one.place for one in found[::3]] == [hidden.AUX_CAPTURE, hidden.FC_IN]
    assert compare(rows(HEALTHY, hidden.FC_IN), IDS, REFERENCE, {}) == []


def test_self_fed_rows_and_rows_without_fingerprints_are_left_out() -> None:
    assert told(rows(HEALTHY, source="self_fed", draft_step=1)) == []
    assert told(rows(HEALTHY, levels=None, fingerprints=None)) == []


@pytest.mark.parametrize("levels", [[1], [1 << 40] * 60])
def test_rows_that_make_no_sense_are_left_out(levels: list[int]) -> None:
    assert told(rows(HEALTHY, first=60, levels=levels)) == []


def test_another_number_of_slots_is_compared_as_far_as_it_goes() -> None:
    (one,) = told(rows(states(slots=1, seed=5)))
    assert len(one.against) == 3
    assert one.estimate is not None and one.estimate.relative_error > 1
    more = told(rows(np.concatenate([HEALTHY, HEALTHY[:, :1]], axis=1)))
    assert (more[3].estimate, more[3].equals) == (None, 0)


def test_requests_add_up() -> None:
    near, far = (compare(rows(one), IDS, REFERENCE, SAME_AS)[0] for one in (HEALTHY, noisy(0.3)))
    both = conclude(near + far)
    assert both.estimate is not None
    assert (both.estimate.tokens, both.recorded, both.errors) == (120, 120, ())
    assert both.estimate.relative_error == pytest.approx(0.3 / math.sqrt(2), rel=0.2)


def test_ids_are_known_up_to_the_first_that_is_not() -> None:
    prompt = [10, 11, 12]
    assert known_ids(prompt, {}) == prompt
    assert known_ids(prompt, {4: 14, 5: 15}) == prompt
    assert known_ids(prompt, {3: 13, 4: 14, 6: 16}) == [10, 11, 12, 13, 14]


def test_the_longest_common_prefix_ends_with_the_shorter() -> None:
    assert reference.common_prefix([1, 2, 3], [1, 2, 4]) == 2
    assert reference.common_prefix([], [1]) == 0
    assert reference.common_prefix([1, 2], [1, 2, 3]) == 2

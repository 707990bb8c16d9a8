from __future__ import annotations

import math
import random

import pytest
from specscope_server.diagnosis import sprt


def first_decision(p: float, seed: int, limit: int = 20_000) -> tuple[str, int]:
    """Look after every single step, as impatiently as anybody could."""
    rng = random.Random(seed)
    accepted = 0
    for steps in range(1, limit + 1):
        accepted += rng.random() < p
        decision = sprt.decide(steps, accepted).decision
        if decision != sprt.UNDECIDED:
            return decision, steps
    return sprt.UNDECIDED, limit


def test_ratio_is_the_log_of_the_two_likelihoods() -> None:
    wanted = math.log((0.10**3 * 0.90**97) / (0.25**3 * 0.75**97))
    assert sprt.decide(100, 3).ratio == pytest.approx(wanted)


def test_documented_error_rates() -> None:
    assert pytest.approx(1.157e-9, rel=1e-3) == sprt.ALPHA
    assert pytest.approx(20.58, abs=0.01) == sprt.UPPER
    assert pytest.approx(-4.605, abs=0.001) == sprt.LOWER


@pytest.mark.parametrize(("p", "steps"), [(0.0, 113), (0.05, 162), (0.10, 284), (0.114, 360)])
def test_documented_sample_sizes_without_benefit(p: float, steps: int) -> None:
    assert sprt.expected_steps(p) == pytest.approx(steps, abs=1)


@pytest.mark.parametrize(("p", "steps"), [(0.25, 50), (0.36, 22), (0.70, 8)])
def test_documented_sample_sizes_with_benefit(p: float, steps: int) -> None:
    assert sprt.expected_steps(p) == pytest.approx(steps, abs=1)


def test_drift_changes_sign_between_the_hypotheses() -> None:
    assert sprt.drift(0.16) > 0 > sprt.drift(0.17)
    assert sprt.drift(sprt.P1) > 0 > sprt.drift(sprt.P0)


@pytest.mark.parametrize("p", [0.0, 0.05, 0.10])
def test_no_benefit_is_found_near_the_expected_sample_size(p: float) -> None:
    runs = [first_decision(p, seed) for seed in range(60)]
    found = [steps for decision, steps in runs if decision == sprt.NO_BENEFIT]
    assert len(found) >= 57
    assert sum(found) / len(found) == pytest.approx(sprt.expected_steps(p), rel=0.25)


@pytest.mark.parametrize("p", [0.25, 0.36, 0.7])
def test_impatient_looks_never_accuse_a_draft_with_benefit(p: float) -> None:
    assert all(first_decision(p, seed)[0] == sprt.BENEFIT for seed in range(200))


@pytest.mark.parametrize(("steps", "accepted"), [(5, 6), (5, -1)])
def test_impossible_counts_are_refused(steps: int, accepted: int) -> None:
    with pytest.raises(ValueError, match="wanted 0 <= accepted <= steps"):
        sprt.decide(steps, accepted)

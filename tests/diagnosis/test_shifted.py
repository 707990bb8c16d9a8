from __future__ import annotations

from dataclasses import replace

import pytest
from specscope import hidden
from specscope_server.diagnosis import Evidence, Finding, shifted
from specscope_server.diagnosis.step_evidence import StepEvidence
from specscope_server.diagnosis.verdict import CLEAR, Unknown
from state_literals import (
    CARRIES,
    FULL_CONFIG,
    POSITIONS,
    REFERENCES,
    REPEATS,
    SHIFTS,
    WHOLE_DRAFT,
    given,
    refer,
    shifts,
    steps,
)

UNSHIFTED = ((300, 18), (300, 10), (300, 6), (300, 4))
"""Fault m: accepted at positions 0 to 3."""


def found(evidence: Evidence) -> Finding:
    told = shifted.judge(evidence, ())
    assert isinstance(told, Finding), told
    return told


def not_shifted() -> Evidence:
    return given("m", positions=UNSHIFTED, steps=steps(SHIFTS["b3"], REPEATS["m"]))


def test_states_of_the_token_before_are_proven_with_and_without_a_reference() -> None:
    for evidence in (given("k1"), given("k1", reference=True, places=())):
        told = found(evidence)
        assert (told.fault_class, told.confidence, told.boundary) == ("F14", "certain", "draft.extend")
        assert told.title == "The draft is fed the states of the token before"
        assert {r.fault[:3] for r in told.ruled_out} == {"F05", "F07", "F23"}


def test_states_of_the_token_after() -> None:
    ahead = tuple(replace(one, relative_error=1.1, shifted={-1: 1.2, 1: 0.01}) for one in REFERENCES["k1"])
    assert found(given("healthy", reference=ahead)).title == "The draft is fed the states of the token after"


def test_inputs_not_shifted_repeat_the_last_token() -> None:
    told = found(not_shifted())
    assert (told.fault_class, told.confidence) == ("F14", "certain")
    assert "39% of the first drafts are the target's token one place before, and only 6%" in told.sentence


def test_embeddings_of_the_token_before_against_a_reference() -> None:
    inputs = refer(0, 1.2, 1.0, 0.0, place=hidden.EMBEDDING)
    told = found(given("healthy", reference=(*REFERENCES["healthy"], inputs)))
    assert (told.confidence, told.fault_class) == ("certain", "F14")
    assert "embeddings that it takes in are those of the token before" in told.sentence


def test_proposals_that_stand_one_place_late() -> None:
    late = shifts((10, 1200), (12, 1180), (30, 1100), (420, 1010), (20, 910))
    told = found(given("healthy", steps=steps(late)))
    assert "meant for the place after" in told.title
    assert "42% of the drafts" in told.sentence


@pytest.mark.parametrize(
    "weights",
    [
        {},
        {"drafts": []},
        {"drafts": [{**WHOLE_DRAFT, "observed": False}]},
        {"drafts": [{**WHOLE_DRAFT, "missing": ["model.fc.weight"]}]},
    ],
)
def test_weights_that_are_not_known_to_be_there_leave_a_suspicion(weights: dict[str, object]) -> None:
    told = found(replace(not_shifted(), config={**FULL_CONFIG, "weights": weights}))
    assert told.confidence == "suspected"


def test_a_draft_found_untrained_repeats_its_input_by_that() -> None:
    root = replace(found(not_shifted()), kind="weights_missing")
    assert shifted.judge(not_shifted(), (root,)) is CLEAR


@pytest.mark.parametrize("fault", sorted({*SHIFTS, *POSITIONS, *CARRIES, "s", "n"} - {"k1"}))
def test_other_faults_and_healthy_runs_are_not_taken_for_it(fault: str) -> None:
    assert shifted.judge(given(fault, reference=True), ()) is CLEAR


@pytest.mark.parametrize("fault", sorted(set(REFERENCES) - {"k1"}))
def test_other_states_are_not_taken_for_it(fault: str) -> None:
    assert shifted.judge(given(fault, reference=True), ()) is CLEAR


def test_a_text_that_repeats_itself_matches_everywhere() -> None:
    same = shifts(*[(300, 400)] * 5)
    assert shifted.judge(given("healthy", steps=steps(same, repeats=0.8)), ()) is CLEAR


@pytest.mark.parametrize(("count", "requests"), [(63, 10), (300, 7), (0, 0)])
def test_few_steps_or_requests_say_nothing(count: int, requests: int) -> None:
    few = replace(not_shifted(), steps=steps(SHIFTS["b3"], 0.39, count, requests))
    assert isinstance(shifted.judge(few, ()), Unknown)


def test_proposals_that_were_not_compared_are_unknown() -> None:
    bare = StepEvidence(steps=300, requests=10)
    assert isinstance(shifted.judge(given("healthy", steps=bare), ()), Unknown)

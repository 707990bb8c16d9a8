"""Verification that refuses right drafts, accepts wrong ones, or works only at temperature 0."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_literals import HEALTHY, SEED_FAULT, counts
from slice_literals import sliced
from specscope.rollup import TEMPERATURE
from specscope_server.diagnosis import Evidence, diagnose, verify_wrong
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, Finding
from specscope_server.diagnosis.step_evidence import Certainty, Refusal, Shift, StepEvidence
from specscope_server.diagnosis.verdict import CLEAR, Unknown


def refused(shift: Shift | None, rank: float | None, steps: int = 600) -> Evidence:
    told = StepEvidence(
        steps=steps,
        requests=20,
        shifts=() if shift is None else (shift,),
        refusal=None if rank is None else Refusal(steps, rank, 0.4, None),
    )
    return replace(HEALTHY, counts=counts(steps, 0, steps), positions=((steps, 0),) * 4, steps=told)


def accepted(top1: float, share: float = 1.0, steps: int = 600, users: int = 20) -> Evidence:
    sure = tuple(Certainty(at, steps, top1, 2.4, steps, int(steps * share)) for at in range(4))
    positions = tuple((steps, int(steps * share)) for _ in range(4))
    return replace(
        HEALTHY,
        counts=counts(steps, int(4 * steps * share), 0),
        positions=positions,
        window_requests={"user": users},
        steps=StepEvidence(steps=steps, requests=users, certainty=sure),
    )


def test_right_drafts_that_are_refused_prove_it() -> None:
    verdict = verify_wrong.judge(refused(Shift(0, 1600, 2400), 0.0), ())
    assert isinstance(verdict, Finding)
    assert (verdict.fault_class, verdict.confidence) == ("F22", CERTAIN)
    assert any(number.name == "odds of no accept by chance" for number in verdict.numbers)


@pytest.mark.parametrize(
    "evidence", [refused(Shift(0, 1600, 2400), None), refused(None, 0.0)], ids=["tokens", "rank"]
)
def test_one_signal_alone_is_a_suspicion(evidence: Evidence) -> None:
    verdict = verify_wrong.judge(evidence, ())
    assert isinstance(verdict, Finding)
    assert verdict.confidence == SUSPECTED


def test_wrong_drafts_are_rightly_refused() -> None:
    """A lost token map: exactly 0 as well, but the drafts are no tokens of the target (fault table, b1)."""
    assert verify_wrong.judge(refused(Shift(0, 3, 2400), 180.0), ()) is CLEAR


def test_without_tokens_and_ranks_a_zero_says_nothing_of_verification() -> None:
    assert isinstance(verify_wrong.judge(refused(None, None), ()), Unknown)
    assert verify_wrong.judge(SEED_FAULT, ()) is CLEAR
    assert isinstance(verify_wrong.judge(replace(HEALTHY, counts=None), ()), Unknown)
    assert isinstance(verify_wrong.judge(refused(Shift(0, 1600, 2400), 0.0, steps=60), ()), Unknown)


def test_a_draft_that_is_unsure_and_always_right_is_not_believed() -> None:
    evidence = accepted(top1=0.45)
    verdict = verify_wrong.judge(evidence, ())
    assert isinstance(verdict, Finding)
    assert verdict.confidence == SUSPECTED
    first = diagnose(evidence).findings[0]
    assert first.kind == verify_wrong.KIND


def test_a_sure_draft_may_always_be_right() -> None:
    assert verify_wrong.judge(accepted(top1=0.97), ()) is CLEAR


def test_less_sure_than_right_is_how_sound_drafts_are() -> None:
    """The tiny pair: 0.45 sure, 0.69 to 0.80 right."""
    assert verify_wrong.judge(accepted(top1=0.45, share=0.8), ()) is CLEAR


def test_too_few_requests_or_no_word_of_certainty_decide_nothing() -> None:
    assert isinstance(verify_wrong.judge(accepted(0.45, users=2), ()), Unknown)
    assert isinstance(verify_wrong.judge(replace(accepted(0.45), steps=StepEvidence()), ()), Unknown)


def test_sampling_that_accepts_nothing_is_told() -> None:
    verdict = verify_wrong.judge(sliced(TEMPERATURE, ("0", 1500, 1050), ("<=1", 1500, 12)), ())
    assert isinstance(verdict, Finding)
    assert "sampled" in verdict.sentence


@pytest.mark.parametrize(
    "hot",
    [("<=1", 1500, 450), (">1", 1500, 12), ("<=1", 60, 1)],
    ids=["lower", "hotter than 1", "too few"],
)
def test_a_slope_with_temperature_is_no_fault(hot: tuple[str, int, int]) -> None:
    assert verify_wrong.judge(sliced(TEMPERATURE, ("0", 1500, 1050), hot), ()) is CLEAR

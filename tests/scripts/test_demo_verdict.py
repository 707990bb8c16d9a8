"""`make demo CHECK=1` passes for what the demo must show and for nothing less."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.demo_verdict import described, expect_healthy, expect_reported, expect_seed_fault, fc_crossings

FINDING = {
    "fault_class": "F04",
    "kind": "fc_bypassed",
    "severity": "critical",
    "confidence": "certain",
    "title": "fc was bypassed",
    "sentence": "The target's aux hidden states never reached the draft.",
}


def _line(expected: int, observed: int, source: str = "target_fed", armed: bool = True) -> dict[str, Any]:
    return {
        "boundary": "draft.fc",
        "source": source,
        "expected": expected,
        "observed": observed,
        "armed": armed,
    }


def _healthy(**changes: Any) -> dict[str, Any]:
    return {
        "name": "healthy",
        "state": "healthy",
        "state_reason": "every boundary was crossed as often as it must be",
        "acceptance_length": 3.1,
        "acceptance_rate": 0.52,
        "verify_steps": 938,
        "ledger": [_line(0, 0, source="self_fed"), _line(998, 998)],
        "findings": [],
        **changes,
    }


def _faulty(**changes: Any) -> dict[str, Any]:
    item = {"name": "seed-fault", "state": "faulty", "acceptance_length": 1.11, "acceptance_rate": 0.03}
    return _healthy(**item, ledger=[_line(2600, 0)], findings=[FINDING], **changes)


def test_the_healthy_engine_passes_as_itself_only() -> None:
    assert expect_healthy(_healthy()) == []
    assert expect_healthy(_faulty()) != []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"findings": [FINDING]}, "finding 'fc was bypassed'"),
        ({"state": "too little data"}, "state 'too little data'"),
        ({"acceptance_length": 2.0}, "acceptance length 2.0"),
        ({"acceptance_length": None}, "acceptance length None"),
    ],
)
def test_a_healthy_engine_with_a_blemish_fails(changes: dict[str, Any], said: str) -> None:
    (failure,) = expect_healthy(_healthy(**changes))
    assert said in failure


def test_the_faulty_engine_passes_as_itself_only() -> None:
    assert expect_seed_fault(_faulty()) == []
    assert len(expect_seed_fault(_healthy())) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"findings": []}, "no finding F04"),
        ({"findings": [{**FINDING, "confidence": "suspected"}]}, "F04 is suspected"),
        ({"ledger": []}, "no armed line for draft.fc at target_fed"),
        ({"ledger": [_line(2600, 0, armed=False)]}, "no armed line"),
        ({"ledger": [_line(0, 0)]}, "fc ran 0 times of 0 expected"),
        ({"ledger": [_line(2600, 1)]}, "fc ran 1 times of 2600 expected"),
        ({"acceptance_length": 1.3}, "acceptance length 1.3"),
        ({"acceptance_length": None}, "acceptance length None"),
    ],
)
def test_a_fault_that_is_told_by_halves_fails(changes: dict[str, Any], said: str) -> None:
    (failure,) = expect_seed_fault({**_faulty(), **changes})
    assert said in failure


def test_steps_that_were_not_reported_are_missed() -> None:
    assert expect_reported(938)(_healthy()) == []
    assert expect_reported(939)(_healthy()) == ["938 verify steps reported, SGLang counted 939"]
    assert expect_reported(1)(_healthy(verify_steps=None)) == ["0 verify steps reported, SGLang counted 1"]


def test_what_is_printed_holds_the_numbers_and_the_cause() -> None:
    text = "\n".join(described(_faulty()))
    for part in ("seed-fault: faulty", "1.11", "fc ran 0 of 2600 times", "F04 certain", FINDING["sentence"]):
        assert part in text
    assert "no finding" in "\n".join(described(_healthy()))
    assert fc_crossings(_healthy()) == (998, 998)


def test_an_engine_without_steps_is_described_without_numbers() -> None:
    nothing = _healthy(
        acceptance_length=None, acceptance_rate=None, verify_steps=None, ledger=[], state="idle"
    )
    assert next(described(nothing)) == "healthy: idle"
    assert "acceptance" not in "\n".join(described(nothing))

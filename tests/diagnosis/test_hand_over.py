"""F07 by the state that a proposal starts from: what arrives must be what was left, token by token."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_literals import HEALTHY
from specscope_server.diagnosis import diagnose, hand_over
from specscope_server.diagnosis.engine_evidence import HandOver
from specscope_server.diagnosis.hand_over_pairs import hand_overs
from specscope_server.diagnosis.model import CERTAIN, Evidence, Finding
from specscope_server.diagnosis.verdict import CLEAR, Unknown
from storekit.references import left_and_started


def handed(
    prefill: float, verify: float, requests: int = 8, scale: float = 1.0, first: int = 0
) -> tuple[HandOver, ...]:
    """Of each request the hand-over after its prefill, and nine after verify steps, with these errors."""
    return tuple(
        HandOver(f"u{n}", 20 + step, "verify" if step else "prefill", error, scale if error else 1.0)
        for n in range(first, first + requests)
        for step in range(10)
        for error in (verify if step else prefill,)
    )


def seen(*told: tuple[HandOver, ...]) -> Evidence:
    return replace(HEALTHY, hand_overs=tuple(one for part in told for one in part))


def found(evidence: Evidence) -> Finding:
    told = hand_over.judge(evidence, ())
    assert isinstance(told, Finding), told
    return told


@pytest.mark.parametrize(
    ("error", "scale", "words"),
    [(1.0, 0.0, "zeros"), (1.3, 1.1, "of another token or request"), (0.9, 0.1, "of another size")],
)
def test_a_prefill_whose_state_does_not_arrive_is_a_transport(error: float, scale: float, words: str) -> None:
    told = found(seen(handed(error, 0.0, scale=scale)))
    assert (told.fault_class, told.confidence) == ("F07", CERTAIN)
    assert words in told.sentence and "8 of 8 after prefill" in told.sentence
    assert [one.value for one in told.numbers[:3]] == [8, 0, error]
    first, *_ = diagnose(seen(handed(error, 0.0, scale=scale))).findings
    assert first.kind == "hand_over"


def test_the_first_request_may_have_got_its_own() -> None:
    told = found(seen(handed(0.0, 0.0, 2), handed(1.2, 0.0, 6, first=2)))
    assert (told.fault_class, told.numbers[0].value) == ("F07", 6)


def test_what_is_changed_between_all_passes_is_the_carry() -> None:
    assert found(seen(handed(0.9, 0.9, scale=0.02))).fault_class == "F06"


@pytest.mark.parametrize(
    "told",
    [
        handed(0.0, 0.0),
        handed(0.05, 0.05),  # through another number format
        handed(1.2, 0.0, requests=3),
        (*handed(0.0, 0.0, 40), *handed(1.2, 0.0, 4, first=40)),  # a few of many
    ],
)
def test_sound_ones_and_a_few_odd_ones_are_none(told: tuple[HandOver, ...]) -> None:
    assert hand_over.judge(seen(told), ()) is CLEAR


def test_some_steps_of_some_requests_are_not_this_fault() -> None:
    told = hand_over.judge(seen(handed(0.0, 0.0, 4), handed(0.0, 1.1, 4, first=4)), ())
    assert isinstance(told, Unknown) and "36 of 72 after verify steps" in told.reason


def test_without_states_on_both_sides_nothing_is_known() -> None:
    assert isinstance(hand_over.judge(seen(), ()), Unknown)


# --- from rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "error"), [(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)])
def test_a_state_is_held_against_that_of_its_token(scale: float, error: float) -> None:
    told = hand_overs(left_and_started(scale), "u0")
    assert [one.after for one in told] == ["prefill", *["verify"] * (len(told) - 1)] and len(told) > 4
    assert [one.relative_error for one in told] == pytest.approx([error] * len(told), abs=0.02)
    assert [one.scale for one in told] == pytest.approx([scale] * len(told), abs=0.01)


def test_a_state_that_was_left_later_is_not_what_it_started_from() -> None:
    assert hand_overs(left_and_started(late=-1), "u0") == []


def test_statistics_alone_are_not_compared() -> None:
    bare = [replace(one, levels=None, fingerprints=None) for one in left_and_started()]
    assert hand_overs(bare, "u0") == []

from __future__ import annotations

from dataclasses import replace

import pytest
from specscope import hidden
from specscope_server.diagnosis import Evidence, Finding, fed_states_differ
from specscope_server.diagnosis.verdict import CLEAR, Unknown
from state_literals import CARRIES, PLACES, REFERENCES, SOUND, given, look, pair


def found(evidence: Evidence) -> Finding:
    told = fed_states_differ.judge(evidence, ())
    assert isinstance(told, Finding), told
    return told


def test_noise_on_the_way_is_proven_without_a_reference() -> None:
    told = found(given("r"))
    assert (told.fault_class, told.confidence, told.boundary) == ("F07", "certain", "draft.extend")
    assert "off by up to 38% from what the target packed" in told.sentence
    assert "something that knows nothing of it was added" in told.sentence
    assert "without graphs" in told.next_check


def test_only_the_hand_over_after_prefill_is_said_where_it_is_so() -> None:
    handed = tuple(
        pair(slot, 1.1 if after == "prefill" else 0.0, 1.0, 1.1, 200, after)
        for slot in range(3)
        for after in ("prefill", "verify")
    )
    told = found(given("healthy", places=handed))
    assert (told.fault_class, told.confidence) == ("F07", "certain")
    assert "the first steps after the hand-over suffer, later ones recover" in told.sentence
    assert "it is that of other tokens" in told.sentence


def test_a_factor_on_the_way_is_numeric() -> None:
    handed = tuple(pair(slot, 0.5, 0.5, 0.9, 200, "verify") for slot in range(3))
    told = found(given("healthy", places=handed))
    assert (told.fault_class, told.confidence) == ("F12", "certain")
    assert "0.5 times as large" in told.sentence


def test_a_copy_through_a_narrower_type_is_no_change() -> None:
    copied = tuple(replace(one, relative_error=0.004) for one in PLACES["healthy"])
    assert isinstance(fed_states_differ.judge(given("healthy", places=copied), ()), Unknown)
    assert fed_states_differ.judge(given("healthy", reference=True, places=copied), ()) is CLEAR


def test_the_same_rows_of_another_size_are_seen_without_fingerprints() -> None:
    packed = look(hidden.AUX_CAPTURE, rows=333, rms=18.97)
    noisy = look(hidden.FED, rows=333, rms=20.30)
    told = found(given("healthy", places=(), hidden=(packed, noisy)))
    assert (told.fault_class, told.confidence) == ("F07", "certain")
    assert "1.07 times as large" in told.sentence
    other_rows = replace(packed, rows=332)
    assert isinstance(
        fed_states_differ.judge(given("healthy", places=(), hidden=(other_rows, noisy)), ()), Unknown
    )
    rounded = replace(packed, rms=20.31)
    assert isinstance(
        fed_states_differ.judge(given("healthy", places=(), hidden=(rounded, noisy)), ()), Unknown
    )


@pytest.mark.parametrize(
    ("fault", "fault_class", "confidence", "words"),
    [
        ("q", "F12", "certain", "0.1 times as large as the target's own"),
        ("rotated", "F12", "suspected", "no direction in common"),
        ("r", "F07", "suspected", "added noise"),
        ("other rows", "F07", "suspected", "stale or misplaced rows"),
    ],
)
def test_what_a_reference_tells(fault: str, fault_class: str, confidence: str, words: str) -> None:
    told = found(given(fault, reference=True, places=()))
    assert (told.fault_class, told.confidence) == (fault_class, confidence)
    assert words in told.sentence


@pytest.mark.parametrize("factor", [0.1, 0.7, 1.25, 8.0])
def test_any_factor_is_a_scale(factor: float) -> None:
    scaled = tuple(
        replace(one, relative_error=abs(1 - factor), scale=factor) for one in REFERENCES["healthy"]
    )
    assert found(given("healthy", reference=scaled)).fault_class == "F12"


def test_rows_of_zeros() -> None:
    told = found(given("healthy", hidden=(look(hidden.FED, rows=333, zero_share=0.1), *SOUND[6:])))
    assert (told.fault_class, told.confidence) == ("F07", "certain")
    assert "10% of the 333 rows" in told.sentence


@pytest.mark.parametrize(("rows", "share"), [(10, 0.3), (1000, 0.01), (333, 0.0)])
def test_few_rows_of_zeros_are_none(rows: int, share: float) -> None:
    few = (look(hidden.FED, rows=rows, zero_share=share), *SOUND[6:])
    assert isinstance(fed_states_differ.judge(given("healthy", hidden=few), ()), Unknown)


def test_equal_rows_are_suspected_only_where_their_tokens_differ() -> None:
    same = look(hidden.FED, rows=333, equal_share=0.9)
    tokens = look(hidden.EMBEDDING, rows=333, equal_share=0.05)
    told = found(given("healthy", places=(), hidden=(same, tokens)))
    assert (told.fault_class, told.confidence) == ("F07", "suspected")
    repeated = replace(tokens, equal_share=0.88)
    for others in ((repeated,), ()):
        assert isinstance(
            fed_states_differ.judge(given("healthy", places=(), hidden=(same, *others)), ()), Unknown
        )


@pytest.mark.parametrize("fault", ["healthy", "e1", "e2", "e3", "f1", "f2", "f3", "k1", "k2"])
def test_other_faults_are_not_taken_for_it(fault: str) -> None:
    assert fed_states_differ.judge(given(fault, reference=True), ()) is CLEAR


@pytest.mark.parametrize("fault", ["healthy", *sorted(CARRIES)])
def test_a_sound_hand_over_leaves_only_the_target_unknown(fault: str) -> None:
    told = fed_states_differ.judge(given(fault), ())
    assert isinstance(told, Unknown)
    assert "a reference alone tells" in told.reason


def test_nothing_looked_at_is_unknown() -> None:
    told = fed_states_differ.judge(given("healthy", places=(), hidden=()), ())
    assert isinstance(told, Unknown)
    assert "no hidden states" in told.reason


def test_it_adds_nothing_where_fc_is_bypassed() -> None:
    root = replace(found(given("r")), kind="fc_bypassed")
    assert fed_states_differ.judge(given("r"), (root,)) is CLEAR

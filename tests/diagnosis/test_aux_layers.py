from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from specscope_server.diagnosis import Evidence, Finding, aux_layers, deviation, diagnose
from specscope_server.diagnosis.verdict import CLEAR, Unknown
from state_literals import FULL_CONFIG, POSITIONS, REFERENCES, SOUND, fed, given


def found(evidence: Evidence) -> Finding:
    told = aux_layers.judge(evidence, ())
    assert isinstance(told, Finding), told
    return told


def difference(
    why: str, named: list[int] | None, captured: list[int], level: str = "check"
) -> dict[str, Any]:
    line = {"field": "aux_layer_ids", "checkpoint": named, "draft": None, "target": captured}
    return {**FULL_CONFIG, "differences": [line | {"level": level, "why": why}]}


OTHER_THAN_NAMED = "The target captures the outputs of other layers than the checkpoint names (F05)."
USUAL_INPUTS = (
    "The checkpoint's ids are taken as outputs of layers. They are exactly the usual *inputs* (F05)."
)


@pytest.mark.parametrize(
    ("fault", "title", "words"),
    [
        ("e1", "of other layers", "slot 1 holds what slot 2 should"),
        ("e2", "of other layers", "slot 2 holds what slot 1 should"),
        ("f1", "in another order", "slot 0 holds what slot 2 should, slot 2 holds what slot 0 should"),
        ("f2", "in another order", "slot 0 holds what slot 1 should"),
        ("f3", "in another order", "slot 0 holds what slot 1 should, slot 1 holds what slot 0 should"),
    ],
)
def test_a_slot_that_is_another_of_the_reference_names_itself(fault: str, title: str, words: str) -> None:
    told = found(given(fault, reference=True))
    assert (told.fault_class, told.confidence, told.boundary) == ("F05", "certain", "target.aux_capture")
    assert told.title.endswith(title)
    assert words in told.sentence
    assert "specscope fingerprint --target served/target --draft served/draft" in told.next_check


def test_states_of_no_known_slot_are_suspected_and_a_difference_of_the_configuration_proves_them() -> None:
    bare = found(given("e3", reference=True))
    assert (bare.confidence, bare.fault_class) == ("suspected", "F05")
    assert "slot 2 is off by 601% of its size" in bare.sentence
    config = difference(OTHER_THAN_NAMED, [1, 3, 4], [5, 6, 7])
    assert found(given("e3", reference=True, config=config)).confidence == "certain"


def test_the_same_layer_in_two_slots_needs_no_reference() -> None:
    twice = fed((25.92, 1.108, 372), (25.92, 1.108, 372), (25.92, 1.108, 372))
    told = found(given("healthy", hidden=(*twice, *SOUND[6:])))
    assert (told.confidence, told.title) == ("certain", "One layer is fed twice")
    assert "Slots 0 and 1" in told.sentence


@pytest.mark.parametrize("looks", [1, 7])
def test_a_few_looks_at_equal_slots_are_not_enough(looks: int) -> None:
    slots = fed((25.92, 1.108, 372), (25.92, 1.108, 372))
    few = tuple(replace(one, looks=looks, rows=looks) for one in slots)
    assert isinstance(aux_layers.judge(given("healthy", hidden=few), ()), Unknown)


def test_slots_of_one_size_are_not_one_layer() -> None:
    alike = fed((25.92, 1.108, 372), (25.92, 1.108, 371), (25.92, 1.107, 372))
    assert isinstance(aux_layers.judge(given("healthy", hidden=alike), ()), Unknown)


def test_what_the_configuration_says() -> None:
    proven = found(given("healthy", config=difference(OTHER_THAN_NAMED, [1, 3, 4], [2, 4, 5])))
    assert (proven.confidence, proven.fault_class) == ("certain", "F05")
    assert "captures the outputs of other layers than the checkpoint names" in proven.sentence
    usual = given("healthy", config=difference(USUAL_INPUTS, [2, 4, 5], [2, 4, 5]))
    assert found(usual).confidence == "suspected"
    # A reference made of the same configuration agrees with the engine and proves nothing.
    assert found(replace(usual, reference=REFERENCES["healthy"])).confidence == "suspected"


@pytest.mark.parametrize("level", ["note"])
def test_a_difference_that_is_only_a_note_is_none(level: str) -> None:
    config = difference(
        "The checkpoint names no layers: the engine took its own default (F05).", None, [1, 3, 4], level
    )
    assert aux_layers.judge(given("healthy", reference=True, config=config), ()) is CLEAR


@pytest.mark.parametrize("fault", ["healthy", "q", "r", "k1", "k2", "rotated", "other rows"])
def test_other_faults_are_not_taken_for_it(fault: str) -> None:
    assert aux_layers.judge(given(fault, reference=True), ()) is CLEAR


@pytest.mark.parametrize("fault", sorted(POSITIONS))
def test_without_a_reference_nothing_is_said_whatever_is_accepted(fault: str) -> None:
    told = aux_layers.judge(given(fault), ())
    assert isinstance(told, Unknown)
    assert "reference" in told.reason


def test_a_quantised_target_may_differ_more_from_a_plain_reference() -> None:
    slots = tuple(replace(one, relative_error=0.25, scale=0.9) for one in REFERENCES["healthy"])
    assert found(given("healthy", reference=slots)).confidence == "suspected"
    config = {**FULL_CONFIG, "target": {"quantization_config": {"quant_method": "awq"}}}
    assert aux_layers.judge(given("healthy", reference=slots, config=config), ()) is CLEAR


def test_few_rows_of_a_reference_say_nothing() -> None:
    few = tuple(replace(one, rows=deviation.MIN_ROWS - 1) for one in REFERENCES["f1"])
    assert isinstance(aux_layers.judge(given("f1", reference=few), ()), Unknown)


def test_a_draft_without_fc_reads_no_layers() -> None:
    assert aux_layers.judge(given("healthy", config={"draft": {"hidden_size": 128}}), ()) is CLEAR


def test_it_adds_nothing_where_no_states_arrive() -> None:
    other = found(given("f1", reference=True))
    assert aux_layers.judge(given("f1", reference=True), (replace(other, kind="fc_bypassed"),)) is CLEAR


def test_it_is_first_on_the_list() -> None:
    said = diagnose(given("f1", reference=True))
    assert [one.kind for one in said.findings] == ["aux_layers"]
    assert said.state.word == "faulty"

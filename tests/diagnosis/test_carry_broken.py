from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evidence_literals import counts
from specscope_server.diagnosis import Evidence, Finding, carry_broken
from specscope_server.diagnosis.verdict import CLEAR, Unknown
from state_literals import FC_OUT, FULL_CONFIG, NORM, PLACES, POSITIONS, SOUND, WHOLE_DRAFT, carried, given


def found(evidence: Evidence) -> Finding:
    told = carry_broken.judge(evidence, ())
    assert isinstance(told, Finding), told
    return told


@pytest.mark.parametrize(
    ("fault", "title"),
    [
        ("k2", "The draft hands on what it was given"),
        ("k3", "The draft hands on its state after the norm"),
        ("k4", "The draft hands zeros to its next step"),
    ],
)
def test_each_way_is_named(fault: str, title: str) -> None:
    told = found(given(fault))
    assert (told.fault_class, told.confidence, told.severity) == ("F06", "certain", "critical")
    assert told.title == title
    assert {ruled.fault for ruled in told.ruled_out} == {"F04, F05, F07 wrong input"}
    assert {number.name for number in told.numbers} >= {"accepted at position 0"}


def test_the_same_state_at_every_step_needs_no_fingerprints() -> None:
    told = found(given("k2", places=()))
    assert (told.confidence, told.title) == ("certain", "The draft hands on the same state at every step")
    assert "draft steps 1 and 2" in told.sentence


@pytest.mark.parametrize("sizes", [(586.0, 9e3, 1.5e5, 1.8e6), (60.0, 9.0, 1.5, 0.2)])
def test_a_state_that_grows_or_shrinks_step_after_step(sizes: tuple[float, ...]) -> None:
    told = found(given("healthy", hidden=(*SOUND[:7], *carried(*sizes))))
    assert (told.fault_class, told.confidence) == ("F06", "certain")
    assert ("grows" if sizes[0] < sizes[-1] else "shrinks") in told.title


@pytest.mark.parametrize("sizes", [(60.0, 300.0, 290.0, 310.0), (60.0, 180.0, 540.0, 1600.0), (60.0, 600.0)])
def test_one_jump_or_a_slow_growth_is_none(sizes: tuple[float, ...]) -> None:
    assert carry_broken.judge(given("healthy", hidden=(*SOUND[:7], *carried(*sizes))), ()) is CLEAR


def test_a_draft_that_carries_its_normed_state_by_design_is_well() -> None:
    """What is carried is as large as the norm's weights; position 1 is accepted as position 0."""
    by_design = given("k3", positions=POSITIONS["healthy"])
    assert carry_broken.judge(by_design, ()) is CLEAR


def test_sizes_alone_do_not_prove_a_norm_where_fc_gives_the_same_size() -> None:
    near = replace(FC_OUT, geometric_rms=2.0)
    told = found(given("k3", hidden=(near, *carried(1.1415, 1.5205, 1.5555, 1.5496))))
    assert told.confidence == "suspected"


def test_other_final_norms_do_not_fit() -> None:
    config = {**FULL_CONFIG, "weights": {"drafts": [{**WHOLE_DRAFT, "tensors": [{**NORM, "mean": 40.0}]}]}}
    long = tuple((10 * drafted, 10 * accepted) for drafted, accepted in POSITIONS["k3"])
    told = found(given("k3", config=config, positions=long))
    assert (told.confidence, told.title) == ("suspected", "Drafts collapse after the first")


@pytest.mark.parametrize("fault", sorted(set(POSITIONS) - {"k2", "k3", "k4"}))
def test_other_faults_and_healthy_runs_are_not_taken_for_it(fault: str) -> None:
    assert carry_broken.judge(given(fault), ()) is CLEAR


@pytest.mark.parametrize("steps", [30, 300, 30_000])
@pytest.mark.parametrize("shares", [(0.7, 0.49), (0.25, 0.15), (0.07, 0.03), (0.9, 0.62)])
def test_a_decay_with_depth_is_no_collapse(steps: int, shares: tuple[float, float]) -> None:
    positions = tuple((steps, round(share * steps)) for share in shares)
    assert carry_broken.judge(given("healthy", positions=positions), ()) is CLEAR


def test_acceptance_alone_is_a_suspicion_and_needs_many_steps() -> None:
    few = ((60, 42), (60, 6))
    many = ((600, 420), (600, 60))
    assert carry_broken.judge(given("healthy", positions=few), ()) is CLEAR
    told = found(given("healthy", positions=many))
    assert (told.confidence, told.severity) == ("suspected", "warning")
    assert "--speculative-num-steps 1" in told.next_check


def test_a_draft_that_was_not_trained_on_its_own_states_may_collapse() -> None:
    mtp = {name: value for name, value in FULL_CONFIG.items() if name not in ("fc", "capture")}
    assert carry_broken.judge(given("healthy", positions=((600, 420), (600, 60)), config=mtp), ()) is CLEAR


def with_norms(kind: str) -> dict[str, Any]:
    if kind == "stored as w - 1":
        odd = {
            "kind": "norm near zero",
            "name": "model.norm.weight",
            "level": "check",
            "text": "mean 0.01 (F06)",
        }
        return {**FULL_CONFIG, "weights": {"drafts": [{**WHOLE_DRAFT, "oddities": [odd]}]}}
    line = {"field": "norm_flags", "checkpoint": {"fc_norm": True}, "draft": {}, "target": None}
    return {**FULL_CONFIG, "differences": [line | {"level": "check", "why": "a norm is missing (F06)"}]}


@pytest.mark.parametrize("kind", ["stored as w - 1", "built otherwise"])
def test_norms_are_proven_by_what_they_cost(kind: str) -> None:
    well = found(given("healthy", config=with_norms(kind)))
    assert (well.fault_class, well.confidence) == ("F06", "suspected")
    none = found(given("healthy", config=with_norms(kind), counts=counts(400, 12, 390)))
    assert none.confidence == "certain"


def test_nothing_looked_at_is_unknown_and_one_draft_a_step_hands_on_nothing() -> None:
    bare = given("healthy", hidden=(), places=())
    assert isinstance(carry_broken.judge(bare, ()), Unknown)
    single = {**FULL_CONFIG, "speculative": {"num_steps": 1}}
    assert carry_broken.judge(replace(bare, config=single), ()) is CLEAR


def test_few_looks_are_not_looked_at() -> None:
    few = tuple(replace(one, looks=carry_broken.MIN_LOOKS - 1) for one in given("k4").hidden)
    told = carry_broken.judge(
        given("k4", hidden=few, places=PLACES["k4"], positions=POSITIONS["healthy"]), ()
    )
    assert isinstance(told, Unknown)


def test_an_unsound_draft_hands_on_anything() -> None:
    root = replace(found(given("k4")), kind="weights_missing")
    assert carry_broken.judge(given("k4"), (root,)) is CLEAR

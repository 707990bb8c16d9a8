"""Drafts that end at a length of the context, and the findings that this proves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evidence_literals import HEALTHY, SEED_FAULT, counts, fed, ledger, path, with_path
from specscope import convention as c
from specscope import hidden
from specscope.rollup import Counts
from specscope_server.diagnosis import Evidence, Finding, diagnose, draft_silent, fc_bypassed, length_limit
from specscope_server.diagnosis.engine_evidence import Slice
from specscope_server.diagnosis.step_evidence import Ids, StepEvidence
from specscope_server.diagnosis.verdict import Unknown
from state_literals import look

BELOW, ABOVE = counts(200, 388, 56), counts(200, 0, 200)
UNDRAFTED = counts(200, 0, 0, undrafted=200)


def sliced(base: Evidence, **slices: Counts) -> Evidence:
    """Slices of contexts, named ``from_to``."""
    told = tuple(Slice("context", name.strip("_").replace("_", "-"), one) for name, one in slices.items())
    return replace(base, slices=told)


def found(evidence: Evidence) -> Finding:
    told = draft_silent.judge(evidence, ())
    assert isinstance(told, Finding), told
    return told


LONG: dict[str, Counts] = {"_64_127": BELOW, "_512_1023": ABOVE, "_1024_2047": ABOVE}


def test_the_length_is_found_whatever_the_order() -> None:
    for order in (LONG, dict(reversed(LONG.items()))):
        limit = length_limit.find(sliced(HEALTHY, **order))
        assert limit == length_limit.Limit(512, 400, 0, 200, 388)


def test_the_steps_looked_at_tell_it_where_rollups_do_not() -> None:
    steps = StepEvidence(slices={"length": {"64-127": BELOW, "512-1023": UNDRAFTED}})
    limit = length_limit.find(replace(HEALTHY, steps=steps))
    assert limit == length_limit.Limit(512, 200, 200, 200, 388)


@pytest.mark.parametrize(
    "slices",
    [
        {},
        {"_64_127": BELOW},
        {"_64_127": BELOW, "_512_1023": counts(31, 0, 31)},
        {"_64_127": counts(31, 60, 9), "_512_1023": ABOVE},
        {"_64_127": ABOVE, "_512_1023": BELOW},
        {"_64_127": BELOW, "_512_1023": counts(200, 1, 199)},
        {"_64_127": ABOVE, "_512_1023": ABOVE},
    ],
)
def test_no_limit(slices: dict[str, Counts]) -> None:
    assert length_limit.find(sliced(HEALTHY, **slices)) is None


def test_filler_from_a_length_on_is_certain() -> None:
    short = sliced(with_path(HEALTHY, self_forward=(1200, 600), fed_forward=(432, 232)), **LONG)
    told = found(short)
    assert (told.fault_class, told.confidence, told.title) == (
        "F02",
        "certain",
        "Draft silent in long contexts",
    )
    assert (
        "from 512 tokens on no draft is accepted in 400 verify steps, below 388 are in 200" in told.sentence
    )


def test_no_drafts_from_a_length_on_is_certain() -> None:
    short = sliced(with_path(HEALTHY, propose=(400, 200)), _64_127=BELOW, _512_1023=UNDRAFTED)
    told = found(short)
    assert (told.fault_class, told.confidence) == ("F01", "certain")
    assert "200 of which drafted nothing" in told.sentence


def test_without_a_length_or_with_hook_errors_it_is_suspected() -> None:
    short = with_path(HEALTHY, self_forward=(1200, 600))
    assert found(short).confidence == "suspected"
    assert found(replace(sliced(short, **LONG), hook_errors={"forward": 1})).confidence == "suspected"


def test_a_length_alone_is_no_silence() -> None:
    """A draft may well be of no use in long contexts (F13, F17); it took part."""
    assert "draft_silent" not in {one.kind for one in diagnose(sliced(HEALTHY, **LONG)).findings}


# --- filler by its ids ------------------------------------------------------------------------------------


def with_ids(base: Evidence, **changes: Any) -> Evidence:
    ids: dict[str, Any] = {
        "steps": 200,
        "nodes": 800,
        "smallest": 0,
        "largest": 0,
        "mode_share": 1.0,
        "even_share": 1.0,
    }
    more: dict[str, Any] = {"below_zero": 0, "above_vocab": 0, "distinct": 1, "same_mode": 1.0, "mode_id": 0}
    return replace(base, steps=StepEvidence(steps=200, requests=10, ids=Ids(**(ids | more | changes))))


UNSEEN = replace(
    HEALTHY,
    window=tuple(
        replace(line, armed=line.boundary != c.DRAFT_FORWARD, reason="no such symbol")
        for line in HEALTHY.window
    ),
)
"""An engine whose draft's forward cannot be observed."""


def test_one_constant_id_is_a_suspicion_where_the_forward_is_not_seen() -> None:
    told = found(with_ids(UNSEEN))
    assert (told.fault_class, told.confidence) == ("F02", "suspected")
    assert "the id 0" in told.sentence
    assert "not finite" in told.next_check


@pytest.mark.parametrize("changes", [{"same_mode": 0.9}, {"same_mode": None}, {"steps": 63}])
def test_ids_that_are_several_or_not_told_are_none(changes: dict[str, Any]) -> None:
    assert not isinstance(draft_silent.judge(with_ids(UNSEEN, **changes), ()), Finding)


def test_a_draft_that_is_seen_to_run_proposes_no_filler() -> None:
    assert not isinstance(draft_silent.judge(with_ids(HEALTHY), ()), Finding)


def test_constant_ids_stand_beside_a_silent_forward() -> None:
    silent = with_path(HEALTHY, fed_forward=(432, 0), self_forward=(1200, 0), fc=(0, 0))
    told = found(with_ids(replace(silent, counts=counts(400, 0, 400), extends=()), mode_id=-1))
    assert (told.fault_class, told.confidence) == ("F02", "certain")
    assert "share of proposed ids that are -1" in {number.name for number in told.numbers}


# --- fc on a buffer that is not refilled --------------------------------------------------------------------

GRAPH = replace(
    HEALTHY,
    window=ledger(path(400, 32), mode=c.GRAPH),
    extends=(fed(128, 384, 0, 432, None, "verify"),),
)
TAKEN_IN = replace(look(hidden.FC_IN, rows=400), mode=c.GRAPH)


@pytest.mark.parametrize(
    ("seen", "confidence"),
    [
        (replace(TAKEN_IN, zero_share=1.0), "certain"),
        (replace(TAKEN_IN, deviation=0.0), "certain"),
        (replace(TAKEN_IN, deviation=0.0, levelled=15), "suspected"),
        (TAKEN_IN, "suspected"),
        (replace(TAKEN_IN, zero_share=1.0, mode=c.EAGER), "suspected"),
    ],
)
def test_rows_of_zeros_or_the_same_row_prove_a_stale_buffer(seen: Any, confidence: str) -> None:
    told = fc_bypassed.judge(replace(GRAPH, hidden=(seen,)), ())
    assert isinstance(told, Finding)
    assert (told.kind, told.fault_class, told.confidence) == ("fc_bypassed", "F04", confidence)


def test_the_seed_fault_stays_the_only_root() -> None:
    assert [one.kind for one in diagnose(SEED_FAULT).findings if one.confidence == "certain"] == [
        "fc_bypassed"
    ]


def test_nothing_armed_is_unknown() -> None:
    bare = replace(UNSEEN, window=ledger(path(400, 32), armed=False))
    assert isinstance(draft_silent.judge(bare, ()), Unknown)

"""F17 by configuration: a window that the draft was not trained with, and what shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from slice_literals import sliced
from specscope.rollup import COPY_LIKE
from specscope_server.diagnosis import cliff, draft_window
from specscope_server.diagnosis.model import CERTAIN, SUSPECTED, Evidence, Finding
from specscope_server.diagnosis.verdict import CLEAR, Unknown
from test_draft_state import judged, never, odd, request
from test_position_config import BLIND, WELL, line
from weight_literals import config

SHORT = {"arguments": {draft_window.ARGUMENT: 16}}
"""The engine lets the draft see 16 tokens; its checkpoint states no window."""
LOST = {"differences": [line("sliding_window", 64, None, None)]}


def states(told: Mapping[str, Any], first: int = 40) -> Evidence:
    """Twenty requests of which every second token is wrong, from position ``first`` on."""
    wrong = [one for n in range(20) for one in request(n, odd, position=first, sequence=f"text {n}")]
    return replace(judged(wrong), config=config(**told))


def found(evidence: Evidence) -> Finding:
    told = cliff.judge(evidence, ())
    assert isinstance(told, Finding), told
    return told


def test_a_window_of_another_draft_is_certain_where_states_behind_it_are_wrong() -> None:
    told = found(states(SHORT))
    assert (told.fault_class, told.confidence) == ("F17", CERTAIN)
    assert told.title == "The draft looks back less far than in its training"
    assert told.sentence.startswith("The draft's attention sees the last 16 tokens (speculative_draft_window")
    assert [one.value for one in told.numbers[:2]] == [16, 100]
    assert "--speculative-draft-window-size" in told.next_check


def test_a_window_that_the_engine_lost_is_certain_likewise() -> None:
    told = found(states(LOST, first=70))
    assert told.confidence == CERTAIN
    assert told.title == "The draft looks back further than in its training"
    assert "sliding_window" in told.next_check


def test_wrong_states_within_both_windows_are_not_the_windows_doing() -> None:
    for told in (states(LOST, first=40), states(SHORT, first=10)):
        assert not isinstance(cliff.judge(told, ()), Finding)


def test_without_a_reference_it_is_suspected_where_copied_text_is_accepted_less() -> None:
    told = found(replace(sliced(COPY_LIKE, *BLIND), config=config(**SHORT)))
    assert (told.fault_class, told.confidence) == ("F17", SUSPECTED)
    assert "copies its context is accepted less" in told.sentence


def test_a_window_that_costs_nothing_is_no_fault() -> None:
    well = replace(sliced(COPY_LIKE, *WELL), config=config(**SHORT))
    assert isinstance(cliff.judge(well, ()), Unknown)
    right = [one for n in range(20) for one in request(n, never)]
    assert isinstance(cliff.judge(replace(judged(right), config=config(**SHORT)), ()), Unknown)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"arguments": {draft_window.ARGUMENT: None}},
        {"arguments": {draft_window.ARGUMENT: 64}, "draft": {"sliding_window": 64}},
        {"differences": [line("sliding_window", 64, 64, None)]},
        {"differences": [line("sliding_window", 64, None, None, level="note")]},
        {"arguments": {draft_window.ARGUMENT: "8"}},
    ],
)
def test_the_drafts_own_window_is_none_of_another(told: dict[str, Any]) -> None:
    assert draft_window.other(replace(judged([]), config=config(**told))) is None
    assert cliff.judge(replace(sliced(COPY_LIKE, *BLIND), config=config(**told)), ()) is CLEAR

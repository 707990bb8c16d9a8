"""Confidence on a request's page, from steps written by hand."""

from __future__ import annotations

from typing import Any

from specscope_server.web.confidence import MAX_POSITIONS, Position, Side, confidence

STEPS: list[dict[str, Any]] = [
    {
        "accepted": 2,
        "drafted_depth": 2,
        "draft_top1": [9000, 8000],
        "draft_entropy": [100, 200],
        "accepted_free": 2,
    },
    {
        "accepted": 1,
        "drafted_depth": 2,
        "draft_top1": [7000, 1000],
        "draft_entropy": [300, 4000],
        "target_rank": 1,
        "target_prob": 0.25,
        "draft_prob": 0.5,
        "outside_draft_vocab": 0,
        "accepted_free": 2,
    },
    {
        "accepted": 0,
        "drafted_depth": 2,
        "draft_top1": [-1, 5000],
        "draft_entropy": [-1, 900],
        "target_rank": 8,
        "target_prob": 0.05,
        "outside_draft_vocab": 1,
    },
]


def test_positions_part_by_what_became_of_the_draft() -> None:
    found = confidence(STEPS)
    assert found is not None
    assert found.steps == 3
    # Position 1 of the last step is not known; its position 2 was never looked at by the verifier.
    assert found.positions == (
        Position(1, Side(2, 0.8, 0.2), Side(0, None, None)),
        Position(2, Side(1, 0.8, 0.2), Side(1, 0.1, 4.0)),
    )


def test_facts_say_of_how_many_drafts_they_are() -> None:
    found = confidence(STEPS)
    assert found is not None
    told = {fact.label: (fact.value, fact.unit) for fact in found.facts}
    assert told == {
        "Target's rank, median": ("5.5", "of 2 refused drafts"),
        "Target's probability, mean": ("0.15", "of 2 refused drafts"),
        "Draft's probability, mean": ("0.5", "of the target's choice, known 1 times"),
        "Could never be accepted": (
            "1",
            "of 2 refusals: the target's token is none the draft can propose",
        ),
        "Grammar": ("4", "accepted without the grammar, 3 with it"),
    }


def test_nothing_recorded_is_nothing_said() -> None:
    assert confidence([{"accepted": 1, "drafted_depth": 2}]) is None


def test_a_list_of_a_million_is_cut() -> None:
    found = confidence([{"accepted": 0, "draft_top1": [5000] * 1_000_000}])
    assert found is not None
    assert len(found.positions) == MAX_POSITIONS

"""How each committed token came, and what the draft had said where it was refused."""

from __future__ import annotations

from typing import Any

import pytest
from specscope_server.tokens.committed import Gap, Instead, Token, committed, instead
from steps import chain

UNKNOWN = Instead(None, None, None, None, None, None)


def test_accepted_drafts_have_their_depth_and_the_last_one_its_cause() -> None:
    found = committed(
        [
            chain(0, [5, 6, 7], [5, 6], 2, root=4),
            chain(1, [8, 9], [8, 1, 2], 1, draft_top1=[9000, 4100, -1], target_rank=2, target_prob=0.125),
            chain(2, [3], [], 0),
        ]
    )
    assert found == [
        Token(4, "prefill", 0),
        Token(5, "accepted", 0, 1),
        Token(6, "accepted", 0, 2),
        Token(7, "bonus", 0),
        Token(8, "accepted", 1, 1),
        Token(9, "correction", 1, instead=Instead((1,), 0.41, 3, 0.125, None, None)),
        Token(3, "undrafted", 2),
    ]


def test_in_a_tree_every_draft_that_follows_the_accepted_one_was_refused() -> None:
    step = chain(0, [10, 99], [10, 20, 11, 12, 21], 1) | {
        "parents": [-1, -1, 0, 0, 1],
        "drafted_depth": 2,
        "draft_prob": 0.0625,
        "outside_draft_vocab": 0,
        "target_rank": 0,
    }
    (_, last) = committed([step])
    assert last == Token(99, "correction", 0, instead=Instead((11, 12), None, 1, None, 0.0625, False))


def test_behind_the_end_of_a_branch_nothing_was_refused() -> None:
    step = chain(0, [10, 99], [10, 20, 21], 1) | {"parents": [-1, -1, 1], "drafted_depth": 2}
    assert committed([step])[1] == Token(99, "bonus", 0)


def test_a_cut_at_a_stop_leaves_out_what_was_not_committed() -> None:
    (only,) = committed([chain(0, [5], [5, 6, 7], 3)])
    assert only == Token(5, "accepted", 0, 1)


def test_missing_steps_are_gaps_and_overshoot_is_none() -> None:
    found = committed(
        [
            chain(0, [1], [7], 0),
            chain(4, [2], [7], 0),
            chain(5, None, [7], 0),
            chain(6, None, [7], 0),
            chain(7, [3], [7], 0),
            chain(8, [4], [7], 0, overshoot=1),
        ]
    )
    shown = [(one.why, one.steps) if isinstance(one, Gap) else one.id for one in found]
    assert shown == [1, ("lost", 3), 2, ("not_recorded", 2), 3]


@pytest.mark.parametrize(
    "step",
    [
        chain(0, [9], [1], 0) | {"parents": None},
        chain(0, [9], [1], 0) | {"accepted_path": [0, 0]},
        chain(0, None, [1], 0),
    ],
)
def test_what_was_not_recorded_is_none(step: dict[str, Any]) -> None:
    assert instead(step) == UNKNOWN


NONSENSE: list[dict[str, Any]] = [
    {"index": 0, "output_ids": [1], "accepted": -5, "drafted_depth": -1},
    {"index": 0, "output_ids": [1], "accepted": 1 << 40, "drafted_depth": 2},
    chain(0, [9], [1, 2], 1) | {"accepted_path": [-2], "parents": [5]},
    chain(0, [9], [1, 2], 0) | {"draft_top1": []},
]


@pytest.mark.parametrize("step", NONSENSE)
def test_nonsense_of_an_engine_is_no_error(step: dict[str, Any]) -> None:
    assert [token.id for token in committed([step]) if isinstance(token, Token)] == step["output_ids"]

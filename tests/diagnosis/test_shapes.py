"""The shape of the curve over draft positions, and the wall that is a fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from evidence_literals import HEALTHY
from specscope_server.diagnosis import cliff, shapes
from specscope_server.diagnosis.model import Finding
from specscope_server.diagnosis.verdict import CLEAR, Unknown

Positions = tuple[tuple[int, int], ...]

HEALTHY_CURVE: Positions = ((1000, 690), (1000, 520), (1000, 420), (1000, 310))
"""The tiny pair: 0.69, then 0.76, 0.80 and 0.74 of those that got there."""
FADING: Positions = ((1000, 700), (1000, 450), (1000, 230), (1000, 90), (1000, 22), (1000, 4))
"""More drafts than trained for: 0.70, 0.64, 0.51, 0.39, 0.24."""
WALL: Positions = ((1000, 700), (1000, 520), (1000, 12), (1000, 0))
CARRY: Positions = ((1000, 740), (1000, 80), (1000, 10), (1000, 0))
"""A carry after the norm: 0.74, then 0.11 (fault table, k3)."""


@pytest.mark.parametrize(
    ("positions", "word", "at"),
    [
        (HEALTHY_CURVE, shapes.UNIFORM, None),
        (FADING, shapes.PROGRESSIVE, None),
        (WALL, shapes.CLIFF, 2),
        (CARRY, shapes.CLIFF, 1),
        (((1000, 40), (1000, 5)), shapes.CLIFF, 0),
        (((1000, 500), (1000, 400), (1000, 200), (1000, 190)), shapes.UNEVEN, None),
        (((1000, 300), (1000, 90), (1000, 27)), shapes.UNIFORM, None),
        (((20, 10), (20, 5)), shapes.UNKNOWN, None),
        (((1000, 600),), shapes.UNKNOWN, None),
        ((), shapes.UNKNOWN, None),
    ],
)
def test_shapes(positions: Positions, word: str, at: int | None) -> None:
    found = shapes.shape(positions)
    assert (found.word, found.at) == (word, at)
    assert found.words


def test_a_curve_ends_where_too_few_steps_got() -> None:
    curve = shapes.conditional(((1000, 100), (1000, 20), (1000, 4)))
    assert [(one.hits, one.of) for one in curve] == [(100, 1000), (20, 100)]


def test_what_was_not_drafted_is_not_refused() -> None:
    """An adaptive draft stops early: positions count only the steps that got to them."""
    curve = shapes.conditional(((1000, 800), (200, 160)))
    assert [one.value for one in curve] == [0.8, 0.8]


def judged(positions: Positions) -> object:
    return cliff.judge(replace(HEALTHY, positions=positions), ())


def test_a_wall_behind_the_second_draft_is_told() -> None:
    found = judged(WALL)
    assert isinstance(found, Finding)
    assert found.title == "Acceptance breaks off after draft token 2"
    assert "--speculative-num-steps 2" in found.next_check


@pytest.mark.parametrize("positions", [HEALTHY_CURVE, FADING, CARRY], ids=["healthy", "fading", "carry"])
def test_no_other_curve_is_a_wall(positions: Positions) -> None:
    assert judged(positions) is CLEAR


def test_few_steps_are_no_wall() -> None:
    assert judged(tuple((n // 10, k // 10) for n, k in WALL)) is CLEAR
    assert isinstance(judged(()), Unknown)

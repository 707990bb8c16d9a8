"""Where the drafts of a step are drawn: each once, parents to the left, nothing over another."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specscope_frontend.charts.draft_tree import BOX, MOST, draft_tree


def test_a_chain_is_one_line() -> None:
    found = draft_tree([-1, 0, 1])
    assert [(node.index, node.depth) for node in found.nodes] == [(-1, 0), (0, 1), (1, 2), (2, 3)]
    assert {node.y for node in found.nodes} == {0}
    assert found.height == BOX[1]
    assert [edge.index for edge in found.edges] == [0, 1, 2]


def test_siblings_stand_below_each_other_and_the_accepted_one_on_top() -> None:
    found = draft_tree([-1, -1, 0, 1], first={1, 3})
    rows = {node.index: node.y for node in found.nodes}
    assert rows[-1] == rows[1] == rows[3] == 0
    assert rows[0] == rows[2] > 0


def test_orphans_and_loops_hang_on_nothing() -> None:
    found = draft_tree([-1, -2, 1, 4, 3, 99, 6])
    assert [node.index for node in found.nodes] == [-1, 0]
    assert found.loose == (1, 2, 3, 4, 5, 6)


def test_of_very_many_only_the_first_are_drawn() -> None:
    found = draft_tree([-1] * 1000)
    assert (len(found.nodes), found.left_out, found.loose) == (MOST + 1, 1000 - MOST, ())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-3, 70), max_size=60))
def test_whatever_is_told_no_box_lies_over_another(parents: list[int]) -> None:
    found = draft_tree(parents)
    places = [(node.x, node.y) for node in found.nodes]
    assert len(places) == len(set(places))
    drawn = [node.index for node in found.nodes]
    assert sorted([*drawn, *found.loose]) == list(range(-1, len(parents)))
    assert all(0 <= x <= found.width - BOX[0] and 0 <= y <= found.height - BOX[1] for x, y in places)
    by_index = {node.index: node for node in found.nodes}
    for node in found.nodes[1:]:
        assert by_index[parents[node.index]].depth == node.depth - 1


@pytest.mark.parametrize("depth", [0, 200])
def test_a_deep_or_empty_draft_is_drawn(depth: int) -> None:
    assert len(draft_tree(list(range(-1, depth - 1))).nodes) == depth + 1

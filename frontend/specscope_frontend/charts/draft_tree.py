"""The draft of one verify step, drawn by the server as a tree that grows to the right: columns are depths."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

BOX: Final = (124, 42)
"""Width and height of a node, px."""
_APART: Final = (30, 12)
MOST: Final = 256
"""Nodes drawn at most."""


@dataclass(frozen=True, slots=True)
class Node:
    """A box: its upper left corner, the index of its draft (-1: the root), and how deep it is (root: 0)."""

    index: int
    depth: int
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Edge:
    """A line from a node's parent to the node of ``index``, as an SVG path."""

    index: int
    path: str


@dataclass(frozen=True, slots=True)
class DraftTree:
    """What to draw, in px. ``loose`` drafts hang on no path from the root, ``left_out`` are too many."""

    width: int
    height: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    loose: tuple[int, ...]
    left_out: int


def draft_tree(parents: Sequence[int], first: Collection[int] = ()) -> DraftTree:
    """Return where to draw drafts whose parents are these indices, -1 the root.

    Whatever the indices are, each draft is drawn at most once. Of siblings those of ``first`` come on top.
    """
    children: dict[int, list[int]] = {}
    for index, parent in enumerate(parents):
        if parent == -1 or 0 <= parent < len(parents):
            children.setdefault(parent, []).append(index)
    places: dict[int, tuple[int, int]] = {-1: (0, 0)}
    row, reached = 0, set[int]()
    # (index, depth) in the order of drawing; a sibling after the first one begins a row of its own.
    waiting = [(-1, 0, False)]
    while waiting:
        index, depth, below = waiting.pop()
        if len(places) > MOST:
            reached.add(index)
        else:
            row += below
            places[index] = (depth, row)
        mine = sorted(children.get(index, ()), key=lambda one: (one not in first, one))
        for place, child in reversed(list(enumerate(mine))):
            waiting.append((child, depth + 1, place > 0))
    width, height = BOX
    right, down = width + _APART[0], height + _APART[1]
    nodes = tuple(Node(index, depth, depth * right, at * down) for index, (depth, at) in places.items())
    loose = tuple(i for i in range(len(parents)) if i not in places and i not in reached)
    return DraftTree(
        width=max(node.x for node in nodes) + width,
        height=max(node.y for node in nodes) + height,
        nodes=nodes,
        edges=tuple(
            Edge(node.index, _path(places[parents[node.index]], places[node.index]))
            for node in nodes
            if node.index >= 0
        ),
        loose=loose,
        left_out=len(reached),
    )


def _path(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return a line from the right of one box to the left of another."""
    width, height = BOX
    right, down = width + _APART[0], height + _APART[1]
    x, y = start[0] * right + width, start[1] * down + height // 2
    to_x, to_y = end[0] * right, end[1] * down + height // 2
    middle = (x + to_x) // 2
    return f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"

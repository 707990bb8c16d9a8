"""Draft trees as they are handed to the verifier, read into parents, depths and accepted paths.

SGLang stores a tree as first child and next sibling of each node (``retrieve_next_token``,
``retrieve_next_sibling`` in ``speculative/eagle_utils.py``), node 0 being the root: the bonus token of the
step before. Here the root is left out, so draft i is node i + 1 and parent -1 is the root.

SGLang keeps the candidates with the highest path probabilities. Where a child's equals its parent's (the
draft is certain in float arithmetic) it may keep the child alone: such an orphan is verified for nothing,
as nothing leads to it. SGLang counts it as drafted, and so do we.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from specscope.records import ORPHAN, ROOT, Ids


@cache
def chain(length: int) -> Ids:
    """Return the parents of a chain of ``length`` drafts: (-1, 0, 1, ...)."""
    return tuple(range(-1, length - 1))


def parents(first_child: Sequence[int], next_sibling: Sequence[int]) -> Ids:
    """Return the parent of each draft as an index into the drafts, or :data:`ROOT`, or :data:`ORPHAN`.

    Both arguments have one entry a node, the root first, -1 for none.

    Raises:
        ValueError: a node has two parents, so this is no tree.
    """
    found = [ORPHAN] * len(first_child)
    for node in range(len(first_child)):
        child = first_child[node]
        while child != -1:
            if found[child] != ORPHAN or child == 0:
                raise ValueError(f"node {child} of the draft tree has two parents")
            found[child] = node - 1
            child = next_sibling[child]
    return tuple(found[1:])


def depth(parents_of: Ids) -> int:
    """Return the deepest position that a path from the root reaches, counted from 1; 0 for no drafts.

    A parent stands before its children: SGLang numbers the kept candidates level by level.

    Raises:
        ValueError: a parent stands behind its child.
    """
    depths: list[int] = []
    for index, parent in enumerate(parents_of):
        if parent >= index:
            raise ValueError(f"draft {index} of the tree stands before its parent {parent}")
        if parent < 0:
            depths.append(1 if parent == ROOT else 0)
        else:
            # What hangs on an orphan is not reached either.
            depths.append(depths[parent] + 1 if depths[parent] else 0)
    return max(depths, default=0)


def walk(parents_of: Ids, drafts: Sequence[int], wanted: Sequence[int]) -> Ids:
    """Return the drafts, as indices, that spell ``wanted`` from the root on, as far as the tree goes.

    Of the drafts that follow the same one at most one has a given token: drafts are the best distinct ones.
    """
    path: list[int] = []
    at = ROOT
    for token in wanted:
        found = after(parents_of, drafts, at, token)
        if found is None:
            break
        path.append(found)
        at = found
    return tuple(path)


def follow(parents_of: Ids, drafts: Sequence[int], favourites: Sequence[int]) -> int:
    """Return how many drafts are accepted when the target takes its favourite after each token.

    ``favourites`` has one entry a node, the root first.
    """
    at, count = ROOT, 0
    while True:
        step = after(parents_of, drafts, at, favourites[at + 1])
        if step is None:
            return count
        at, count = step, count + 1


def after(parents_of: Ids, drafts: Sequence[int], at: int, token: int) -> int | None:
    """Return the draft with ``token`` that follows ``at``, ``None`` where there is none."""
    for index, (parent, draft) in enumerate(zip(parents_of, drafts, strict=True)):
        if parent == at and draft == token:
            return index
    return None

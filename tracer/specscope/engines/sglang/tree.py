"""Draft trees as SGLang hands them to the verifier, read into parents, depths and accepted paths.

SGLang stores a tree as first child and next sibling of each node (``retrieve_next_token``,
``retrieve_next_sibling`` in ``speculative/eagle_utils.py``), node 0 being the root: the bonus token of the
step before. Here the root is left out, so draft i is node i + 1 and parent -1 is the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from specscope.records import Ids


@cache
def chain(length: int) -> Ids:
    """Return the parents of a chain of ``length`` drafts: (-1, 0, 1, ...)."""
    return tuple(range(-1, length - 1))


def parents(first_child: Sequence[int], next_sibling: Sequence[int]) -> Ids:
    """Return the parent of each draft as an index into the drafts, -1 for the root.

    Both arguments have one entry a node, the root first, -1 for none.

    Raises:
        ValueError: a node has no parent or two, so this is no tree.
    """
    count = len(first_child)
    found: list[int | None] = [None] * count
    for node in range(count):
        child = first_child[node]
        while child != -1:
            if found[child] is not None or child == 0:
                raise ValueError(f"node {child} of the draft tree has two parents")
            found[child] = node - 1
            child = next_sibling[child]
    drafts = found[1:]
    if any(parent is None for parent in drafts):
        raise ValueError(f"the draft tree has nodes without a parent: {drafts}")
    return tuple(parent for parent in drafts if parent is not None)


def depth(parents_of: Ids) -> int:
    """Return the deepest drafted position, counted from 1; 0 for no drafts."""
    depths: list[int] = []
    for index, parent in enumerate(parents_of):
        # A child never comes before its parent: SGLang sorts the kept candidates by tree level.
        if parent >= index:
            return max(_depth_of(parents_of, i) for i in range(len(parents_of)))
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return max(depths, default=0)


def _depth_of(parents_of: Ids, index: int) -> int:
    steps = 0
    while index >= 0 and steps <= len(parents_of):
        steps += 1
        index = parents_of[index]
    return steps


def accepted_path(accept_index: Sequence[int], row: int, nodes: int, accepted: int) -> Ids:
    """Return the accepted drafts of batch row ``row`` in order, as indices into its drafts.

    ``accept_index`` is the row of the verifier's answer: node numbers counted over the whole batch
    (``nodes`` a row, the root included), root first, then the accepted drafts, then -1.
    """
    base = row * nodes + 1
    return tuple(node - base for node in accept_index[1 : 1 + accepted])

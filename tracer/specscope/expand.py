"""A verify step told as its batch, read into one entry a request. Runs in the exporter process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from specscope import tree
from specscope.records import (
    ROOT,
    Block,
    Ids,
    Reals,
    RequestStarted,
    VerifyBatch,
    VerifyStep,
)

Odd = Callable[[ValueError], None]
Values = tuple[float | None, ...]


def rows(block: Block) -> list[list[int]]:
    """Return the numbers of a block, a list a row.

    Raises:
        ValueError: the data are no whole rows, or numbers of a size that is not known.
    """
    data, size, width = block
    return np.frombuffer(data, dtype=f"<i{size}").reshape(-1, width).tolist()


def prompt(record: RequestStarted) -> Sequence[int] | None:
    """Return the last tokens of a request's prompt, ``None`` where they are not known.

    Raises:
        ValueError: see :func:`rows`.
    """
    if record.prompt is None:
        return record.prompt_ids
    return rows(record.prompt)[0] if record.prompt[2] else ()


def whole_prompt(record: RequestStarted) -> Sequence[int] | None:
    """Return a request's prompt where all of it is known, ``None`` where only its end is, or nothing.

    Raises:
        ValueError: see :func:`rows`.
    """
    known = prompt(record)
    return known if known is not None and len(known) == record.prompt_tokens else None


def reals(block: Reals) -> NDArray[np.float32]:
    """Return real numbers [rows, width].

    Raises:
        ValueError: the data are no whole rows.
    """
    return np.frombuffer(block[0], dtype="<f4").reshape(-1, block[1])


def known(values: NDArray[np.float32]) -> Values:
    """Return real numbers as Python's, ``None`` for what is not known."""
    return tuple(None if math.isnan(value) else value for value in values.tolist())


def _each_known(rows: NDArray[np.float32]) -> tuple[Values, ...]:
    if np.isnan(rows).any():
        return tuple(known(row) for row in rows)
    return tuple(map(tuple, rows.tolist()))


def step(batch: VerifyBatch, odd: Odd) -> VerifyStep:
    """Return the verify step of ``batch``.

    Drafts that are no tree, and accepted tokens that the tree does not hold, cost the tree and the path, not
    the counts: each is told to ``odd``, once a step.
    """
    over = batch.over or [False] * len(batch.uids)
    committed = tuple(
        0 if done else after - before
        for done, before, after in zip(over, batch.before, batch.after, strict=True)
    )
    blocks = None if batch.drafts is None else rows(batch.drafts)
    drafts = None if blocks is None else tuple(tuple(row[1:]) for row in blocks)
    output = None if batch.committed is None else rows(batch.committed)
    parents = _guarded(lambda: _parents(batch), odd)
    nodes = (batch.nodes - 1,) * len(batch.uids)
    if batch.padding is not None and parents is not None and drafts is not None:
        nodes = tuple(proposed(row, ids, batch.padding) for row, ids in zip(parents, drafts, strict=True))
        parents = tuple(row[:count] for row, count in zip(parents, nodes, strict=True))
        drafts = tuple(ids[:count] for ids, count in zip(drafts, nodes, strict=True))
    found = VerifyStep(
        t_ns=batch.t_ns,
        step=batch.step,
        mode=batch.mode,
        batch_size=len(batch.uids),
        uids=batch.uids,
        rows=tuple(range(len(batch.uids))),
        context=tuple(p + b for p, b in zip(batch.prompt, batch.before, strict=True)),
        drafted_depth=_depths(batch, parents),
        drafted_nodes=nodes,
        accepted=tuple(batch.accepted),
        bonus=(batch.bonus,) * len(batch.uids),
        committed=committed,
        expected=batch.expected,
        crossed=batch.crossed,
        overshoot=tuple(over),
        draft_tokens=drafts,
        parents=parents,
        roots=None if blocks is None else tuple(row[0] for row in blocks),
        weight_version=batch.weight_version,
    )
    if output is not None:
        found.output_ids = tuple(tuple(row[:n]) for row, n in zip(output, committed, strict=True))
        found.bonus_ids = tuple(
            row[batch.lead + accepted] for row, accepted in zip(output, batch.accepted, strict=True)
        )
    if parents is not None and drafts is not None and output is not None:
        taken, accepted_tokens = batch.lead, zip(output, batch.accepted, strict=True)
        wanted = [row[taken : taken + count] for row, count in accepted_tokens]
        found.accepted_path = _guarded(lambda: _paths(parents, drafts, wanted), odd)
    elif batch.chain:
        found.accepted_path = tuple(tuple(range(count)) for count in batch.accepted)
    if batch.free is not None and parents is not None and drafts is not None:
        free = rows(batch.free)
        found.accepted_free = tuple(tree.follow(*one) for one in zip(parents, drafts, free, strict=True))
    _confidence(batch, found)
    return found


def proposed(parents: Ids, drafts: Ids, padding: int) -> int:
    """Return how many drafts of a row are left without the placeholders at its end."""
    count = len(drafts)
    while count and drafts[count - 1] == padding and parents[count - 1] == ROOT:
        count -= 1
    return count


def _parents(batch: VerifyBatch) -> tuple[Ids, ...] | None:
    if batch.chain:
        return (tree.chain(batch.nodes - 1),) * len(batch.uids)
    if batch.first_child is None or batch.next_sibling is None:
        return None
    links = zip(rows(batch.first_child), rows(batch.next_sibling), strict=True)
    found = tuple(tree.parents(child, sibling) for child, sibling in links)
    for row in found:
        tree.depth(row)
    return found


def _depths(batch: VerifyBatch, parents: tuple[Ids, ...] | None) -> Ids:
    """Of a tree that is not known only its bound is."""
    if parents is None:
        return (min(batch.depth, batch.nodes - 1),) * len(batch.uids)
    return tuple(tree.depth(row) for row in parents)


def _paths(parents: tuple[Ids, ...], drafts: tuple[Ids, ...], wanted: list[list[int]]) -> tuple[Ids, ...]:
    found = tuple(tree.walk(*one) for one in zip(parents, drafts, wanted, strict=True))
    for path, tokens in zip(found, wanted, strict=True):
        if len(path) != len(tokens):
            raise ValueError(f"the tree ends after {len(path)} of {len(tokens)} accepted drafts")
    return found


def _confidence(batch: VerifyBatch, found: VerifyStep) -> None:
    if batch.confidence is not None:
        found.top1, found.entropy = map(_each_known, np.split(reals(batch.confidence), 2))
    if batch.view is not None:
        rank, target, draft = (known(row) for row in reals(batch.view))
        if batch.padding is not None:
            real = _refused(batch, found)
            rank, target, draft = (
                tuple(value if there else None for value, there in zip(row, real, strict=True))
                for row in (rank, target, draft)
            )
        found.target_rank = tuple(None if one is None else int(one) for one in rank)
        found.target_prob, found.draft_prob = target, draft


def _refused(batch: VerifyBatch, found: VerifyStep) -> list[bool]:
    """Say in which rows a draft was refused: a placeholder behind the last accepted one is none."""
    if batch.first_child is None or found.accepted_path is None:
        return [False] * len(batch.uids)
    children = zip(rows(batch.first_child), found.accepted_path, found.drafted_nodes, strict=True)
    return [0 < links[path[-1] + 1 if path else 0] <= nodes for links, path, nodes in children]


def _guarded(read: Callable[[], tuple[Ids, ...] | None], odd: Odd) -> tuple[Ids, ...] | None:
    try:
        return read()
    except ValueError as error:
        odd(error)
        return None

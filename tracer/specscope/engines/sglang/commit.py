"""A verify step as a record, put together when the engine has committed its tokens."""

from __future__ import annotations

from typing import Any, Final

from specscope import convention as c
from specscope.engines.sglang import tree
from specscope.engines.sglang.passes import Drafted, Pass
from specscope.engines.sglang.requests import uids_of, visible
from specscope.records import Ids, VerifyStep

NO_DRAFTS: Final = Drafted(nodes=1, steps=0, chain=True)
"""Of a pass whose drafts were not seen."""


def verify_step(
    one: Pass, before: list[tuple[int, bool]], parents: tuple[Ids, ...] | None, batch: Any, result: Any
) -> VerifyStep:
    """Return the record of a committed verify pass, with ``parents`` as :func:`parents_of` gives them.

    ``before`` holds, for each request of the batch, its output length before the commit and whether it
    was over already (an overshoot step, whose tokens nobody gets). Every value was on the host anyway:
    SGLang itself copies the accept lengths and the committed tokens.
    """
    reqs = batch.reqs
    drafted = one.drafted or NO_DRAFTS
    accepted: list[int] = result.num_correct_drafts_per_req_cpu
    expected, crossed = one.split(extend=False)
    outputs: list[Ids] = []
    for req, (length, over) in zip(reqs, before, strict=True):
        outputs.append(() if over else tuple(req.output_ids[length : visible(req)]))
    depths = tuple(tree.depth(row) for row in parents) if parents is not None else _depths(drafted, len(reqs))
    return VerifyStep(
        t_ns=one.t_ns,
        step=one.step,
        mode=c.GRAPH if drafted.graph else c.EAGER,
        batch_size=len(reqs),
        uids=uids_of(reqs),
        rows=tuple(range(len(reqs))),
        context=tuple(
            len(req.origin_input_ids) + length for req, (length, _) in zip(reqs, before, strict=True)
        ),
        drafted_depth=depths,
        drafted_nodes=(drafted.nodes - 1,) * len(reqs),
        accepted=tuple(accepted),
        bonus=(result.num_non_draft_tokens_per_req,) * len(reqs),
        committed=tuple(len(ids) for ids in outputs),
        expected=expected,
        crossed=crossed,
        overshoot=tuple(over for _, over in before),
        draft_tokens=None if drafted.tokens is None else tuple(tuple(row) for row in drafted.tokens),
        parents=parents,
        accepted_path=_paths(drafted, accepted),
        output_ids=tuple(outputs),
    )


def parents_of(drafted: Drafted, rows: int) -> tuple[Ids, ...] | None:
    """Return the tree of each batch row as in :mod:`.tree`, ``None`` where it stayed on a device.

    Raises:
        ValueError: what SGLang handed over is no tree.
    """
    if drafted.chain:
        return (tree.chain(drafted.nodes - 1),) * rows
    if drafted.first_child is None or drafted.next_sibling is None:
        return None
    return tuple(
        tree.parents(child, sibling)
        for child, sibling in zip(drafted.first_child, drafted.next_sibling, strict=True)
    )


def _depths(drafted: Drafted, rows: int) -> Ids:
    """Of a tree that stays on a device only its bound is known: one position a draft step."""
    return (min(drafted.steps, drafted.nodes - 1),) * rows


def _paths(drafted: Drafted, accepted: list[int]) -> tuple[Ids, ...] | None:
    if drafted.chain:
        return tuple(tuple(range(count)) for count in accepted)
    if drafted.accept_index is None:
        return None
    return tuple(
        tree.accepted_path(index, row, drafted.nodes, count)
        for row, (index, count) in enumerate(zip(drafted.accept_index, accepted, strict=True))
    )

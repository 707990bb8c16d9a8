"""A verify step as a record, put together when the engine has committed its tokens."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

from specscope import convention as c
from specscope.engines.sglang.passes import Counts, Drafted, Pass
from specscope.records import Block, VerifyBatch

_OVER: Final = attrgetter("finished_reason", "is_retracted")
_RUNNING: Final = (None, False)


def over(reqs: list[Any]) -> list[bool] | None:
    """Say which requests were over before this step, ``None`` when none was.

    Under the overlap schedule such a request may be in one more step, whose tokens nobody gets.
    """
    found = [_OVER(req) != _RUNNING for req in reqs]
    return found if any(found) else None


def visible(reqs: list[Any]) -> list[int]:
    """Return how many output tokens each request really has, after a stop cut."""
    return [len(req.output_ids) if (cut := req.finished_len) is None else cut for req in reqs]


def unseen(result: Any, steps: int | None) -> Drafted:
    """Return the drafts of a pass whose verification was not seen: SGLang still says how many there were.

    ``steps`` is the depth that the draft reaches, ``None`` for an algorithm that proposes in one go.
    """
    nodes: int = result.speculative_num_draft_tokens or 1
    depth = nodes - 1 if steps is None else min(steps, nodes - 1)
    return Drafted(nodes=nodes, depth=depth, chain=depth == nodes - 1)


def accepts(result: Any) -> tuple[list[int], int]:
    """Return how many drafts each request accepted in a step, and how many tokens each got beside them.

    SGLang takes ``num_non_draft_tokens_per_req`` (1; 2 with UNO) from the tokens of each request
    (``_resolve_spec_v2_tokens``). A verification always gives one token that is no draft, the target's own,
    so where these counts and the tokens do not agree with that, the tokens do: they are what was committed.
    SGLang's totals of a request stay what they are, and that they are others than its steps' is what shows.
    """
    counted: list[int] = result.num_correct_drafts_per_req_cpu
    bonus: int = max(1, result.num_non_draft_tokens_per_req)
    lengths = getattr(result, "accept_lens", None)
    if lengths is None or lengths.device.type != "cpu":
        return counted, result.num_non_draft_tokens_per_req
    return [length - bonus for length in lengths.tolist()], bonus


def verify_batch(
    one: Pass,
    counts: Counts,
    before: list[int],
    ended: list[bool] | None,
    batch: Any,
    result: Any,
    padding: int | None,
) -> VerifyBatch:
    """Return the record of a committed verify pass; ``padding`` is the algorithm's placeholder token.

    ``before`` and ``ended`` are :func:`visible` and :func:`over` of the batch before the commit. Every value
    was on the host anyway: SGLang itself copies the accept lengths and the committed tokens.
    """
    drafted = one.drafted
    if drafted is None:
        raise ValueError("a verify step without drafts")
    drafts, first_child, next_sibling = [
        *(() if drafted.blocks is None else drafted.blocks.blocks()), None, None, None,
    ][:3]  # fmt: skip
    accepted, bonus = accepts(result)
    return VerifyBatch(
        t_ns=one.t_ns,
        step=one.step,
        mode=c.GRAPH if drafted.graph else c.EAGER,
        uids=one.uids,
        prompt=one.prompt,
        before=before,
        after=visible(batch.reqs),
        accepted=accepted,
        bonus=bonus,
        nodes=drafted.nodes,
        depth=drafted.depth,
        chain=drafted.chain,
        expected=counts.expected,
        crossed=counts.crossed,
        over=ended,
        drafts=drafts,
        first_child=first_child,
        next_sibling=next_sibling,
        committed=_committed(result),
        lead=bonus - 1,
        free=None if one.free is None else one.free.block(),
        padding=padding,
        confidence=None if one.confidence is None else one.confidence.reals(),
        view=None if one.view is None else one.view.reals(),
        weight_version=one.weight_version,
    )


def _committed(result: Any) -> Block | None:
    """The rows of committed tokens, padded to the stride that SGLang itself reads them with
    (``_get_speculative_output_stride`` in ``batch_result_processor.py``)."""
    ids = result.next_token_ids
    if ids.device.type != "cpu":
        return None
    stride: int = result.speculative_output_stride or result.speculative_num_draft_tokens
    return ids.numpy().tobytes(), ids.element_size(), stride

"""Faults of a patched engine in what it keeps from step to step, and in how it judges: F14 to F24.

Engine facts: SGLang 0.5.23, ``speculative/eagle_worker_v2.py`` unless another file is named.

Measured on the first tiny pair, chain of four, nine prompts of three domains one at a time (float32, greedy):
acceptance length of all and of each domain, of the same prompts again from the prefix cache, of the first
verify step alone and with eight at once; ``own`` is how many of 18 texts are the target's own. All from the
engine's own counters: of ``bonus_token_counted`` they are what lies, and acceptance is the healthy one.

==============================  ====  =======  =========  ====  ======  =====  =======  ===
patch                           all   licence  docstring  copy  cached  first  at once  own
==============================  ====  =======  =========  ====  ======  =====  =======  ===
healthy                         3.04  2.62     3.24       3.38  3.04    3.56   3.04     18
one_row_before_the_last         2.20  2.02     2.24       2.37  2.20    3.56   2.20     18
fed_with_the_verified_block     1.28  1.16     1.16       1.63  1.28    3.56   1.28     18
prompt_not_shifted              2.90  2.52     3.42       2.91  2.90    3.56   2.90     18
not_written_again_after_verify  1.43  1.19     1.48       1.73  1.59    3.56   1.47     18
prefix_of_the_target_only       3.02  2.62     3.24       3.29  2.37    3.56   2.99     18
rows_past_the_captured_batch    3.04  2.62     3.24       3.38  3.04    3.56   2.51     18
draft_zeroed_by_an_update       1.02  1.00     1.02       1.05  1.02    1.00   1.02     18
links_of_the_tree_unset         1.00  1.00     1.00       1.00  1.00    1.00   1.00     18
compared_with_itself            5.00  5.00     5.00       5.00  5.00    5.00   5.00     0
bonus_token_counted             4.04  3.62     4.24       4.38  4.04    4.56   4.04     18
==============================  ====  =======  =========  ====  ======  =====  =======  ===

On two tensor-parallel ranks, ``other_fc_on_the_second_rank`` 1.22 (healthy 3.04), all texts the target's own.
On a tree of top-k 4 and 16 nodes, ``siblings_visible`` 2.47 (healthy 3.47), no text the target's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import Any

from patching import Laid, patch, put, put_parameter, torch

# --- F14: by one ------------------------------------------------------------------------------------------


@contextmanager
def extending(worker: Any, change: Callable[[Any, Any], None]) -> Laid:
    """``change(batch, result of the verify step)`` before the draft's pass over what was accepted."""
    drafter = worker.draft_worker
    extend = drafter._draft_extend_for_decode

    def extends(batch: Any, result: Any, **more: Any) -> None:
        change(batch, result)
        extend(batch, result, **more)

    with put(drafter, _draft_extend_for_decode=extends):
        yield


def inputs(worker: Any, result: Any, back: int = 0) -> tuple[Any, Any, Any]:
    """What ``_draft_extend_for_decode`` makes of a result; the row it goes on from lies ``back`` before."""
    width = worker.speculative_num_draft_tokens
    starts = torch().arange(0, len(result.accept_lens) * width, width)
    rows = starts + (result.accept_lens - 1 - back).clamp(min=0)
    return result.accept_lens - 1, rows, result.next_token_ids.to(torch().int64)


@patch("F14")
def one_row_before_the_last(worker: Any) -> Laid:
    """A count without the bonus token is taken for one with it: drafting goes on from the row before the
    last accepted one."""

    def before(_batch: Any, result: Any) -> None:
        result.prepared_draft_extend_inputs = inputs(worker, result, back=1)

    with extending(worker, before):
        yield


@patch("F14")
def fed_with_the_verified_block(worker: Any) -> Laid:
    """The draft is given the tokens that were verified, in place of those that came out: with each state the
    token that it was made from, not the one after it."""

    def unshifted(batch: Any, result: Any) -> None:
        correct, rows, _ = inputs(worker, result)
        result.prepared_draft_extend_inputs = correct, rows, batch.spec_info.draft_token.to(torch().int64)

    with extending(worker, unshifted):
        yield


@patch("F14", "the copy domain, or any that looks back")
def prompt_not_shifted(worker: Any) -> Laid:
    """Only in prefill: the prompt is given to the draft as it is, with the new token in its last place."""
    drafter = worker.draft_worker
    prefill = drafter._draft_extend_for_prefill

    def prefills(batch: Any, *given: Any, **more: Any) -> Any:
        parts = [torch().roll(part, 1) for part in batch.input_ids.split(list(batch.extend_lens))]
        batch.input_ids = torch().cat(parts)
        return prefill(batch, *given, **more)

    with put(drafter, _draft_extend_for_prefill=prefills):
        yield


# --- F15, F16, F18: what stays from before ----------------------------------------------------------------


@patch("F15")
def not_written_again_after_verify(worker: Any) -> Laid:
    """Keys and values of accepted tokens stay those that the draft wrote from its own states while it
    drafted; the pass over what was accepted computes new ones and does not store them."""
    drafter = worker.draft_worker
    pool = drafter.draft_runner.token_to_kv_pool
    extend = drafter._draft_extend_for_decode

    def not_stored(*_given: Any, **_more: Any) -> None:
        return

    def extends(batch: Any, result: Any, **more: Any) -> None:
        with put(pool, set_kv_buffer=not_stored):
            extend(batch, result, **more)

    with put(drafter, _draft_extend_for_decode=extends):
        yield


@patch("F16", "prompts with a prefix in the cache")
def prefix_of_the_target_only(worker: Any) -> Laid:
    """A prefix that comes out of the cache has been restored in the target's pool, and in the draft's the
    slots are empty."""
    drafter = worker.draft_worker
    pool = drafter.draft_runner.token_to_kv_pool
    prefill = drafter._draft_extend_for_prefill
    begun: set[str] = set()

    def prefills(batch: Any, *given: Any, **more: Any) -> Any:
        for request, slot, length in zip(batch.reqs, batch.req_pool_indices, batch.prefix_lens, strict=True):
            if request.rid not in begun and length:
                places = worker.req_to_token_pool.req_to_token[slot, :length].long()
                pool.get_key_buffer(0)[places] = 0
                pool.get_value_buffer(0)[places] = 0
            begun.add(request.rid)
        return prefill(batch, *given, **more)

    with put(drafter, _draft_extend_for_prefill=prefills):
        yield


@patch("F17", "a tree")
def siblings_visible(worker: Any) -> Laid:
    """The tree's mask is filled with true and never written: in verify, a node attends to its siblings and
    to nodes after it. The text is no longer the target's."""
    drafter = worker.draft_worker
    draft = drafter.draft

    def drafts(batch: Any, **more: Any) -> Any:
        made = draft(batch, **more)
        made.custom_mask.fill_(True)
        return made

    with put(drafter, draft=drafts):
        yield


@patch("F18", "more than four requests at once")
def rows_past_the_captured_batch(worker: Any) -> Laid:
    """A buffer made for four requests: states of the fifth and later ones are those of the step before."""
    width = worker.speculative_num_draft_tokens
    before: list[Any] = []

    def stale(_batch: Any, result: Any) -> None:
        output = result.logits_output
        fresh, fed = output.hidden_states.clone(), output.hidden_states.clone()
        if before:
            rows = min(len(fed), len(before[0]))
            fed[4 * width : rows] = before[0][4 * width : rows]
        before[:] = [fresh]
        output.hidden_states = fed

    with extending(worker, stale):
        yield


# --- F19: ranks ------------------------------------------------------------------------------------------


@patch("F19", "two tensor-parallel ranks")
def other_fc_on_the_second_rank(worker: Any) -> Laid:
    """The second rank's machine has an older copy of the checkpoint: its fc is another."""
    parallel = importlib.import_module("sglang.srt.runtime_context").get_parallel()
    module = worker.draft_worker.draft_runner.model.model.fc
    value = module.weight.clone()
    if parallel.tp_rank == 1:
        value = value.roll(1, 0)
    with put_parameter(module, value):
        yield


# --- F21, F22, F24 ---------------------------------------------------------------------------------------


@patch("F21", "an update, which is the moment it is laid")
def draft_zeroed_by_an_update(worker: Any) -> Laid:
    """Memory was released and taken again; the target's weights were sent anew and the draft's were not."""
    model = worker.draft_worker.draft_runner.model
    parts = [
        module for module in model.modules() if isinstance(getattr(module, "weight", None), torch().Tensor)
    ]
    with ExitStack() as stack:
        for module in parts:
            if module is not model.model.embed_tokens:
                stack.enter_context(put_parameter(module, torch().zeros_like(module.weight)))
        yield


@patch("F22")
def links_of_the_tree_unset(worker: Any) -> Laid:
    """The links from each node to the next are never filled: verify stops at the root. Exactly nothing is
    accepted, whatever the draft proposes."""
    drafter = worker.draft_worker
    draft = drafter.draft

    def drafts(batch: Any, **more: Any) -> Any:
        made = draft(batch, **more)
        made.retrieve_next_token.fill_(-1)
        return made

    with put(drafter, draft=drafts):
        yield


@patch("F22")
def compared_with_itself(worker: Any) -> Laid:
    """The target's choice is compared where it is not a number, and such a comparison comes out as equal:
    each draft is accepted, and the text is the draft's."""
    module = importlib.import_module("sglang.srt.speculative.eagle_utils")
    original = module.verify_tree_greedy_func

    def accepts(*, candidates: Any, target_predict: Any, **more: Any) -> Any:
        width = candidates.shape[1]
        agreed = target_predict.clone()
        agreed[:, : width - 1] = candidates[:, 1:]
        return original(candidates=candidates, target_predict=agreed, **more)

    with put(module, verify_tree_greedy_func=accepts):
        yield


@patch("F24")
def bonus_token_counted(worker: Any) -> Laid:
    """The scheduler is told that a step has no token beside the drafts, so that its counters take the bonus
    token for an accepted draft."""
    verify = worker.verify

    def verifies(*given: Any, **more: Any) -> Any:
        result = verify(*given, **more)
        result.num_non_draft_tokens_per_req = 0
        return result

    with put(worker, verify=verifies):
        yield

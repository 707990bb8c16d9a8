"""Faults of a patched engine that were written by someone who has read the rules: further mechanisms."""

from __future__ import annotations

from typing import Any

from patching import Laid, patch, put


@patch("F16", "prompts with a prefix in the cache")
def prefix_in_another_order(worker: Any) -> Laid:
    """The values of a prefix that comes out of the cache are copied back into the draft's pool by a list of
    slots that is sorted otherwise than that of its keys: each key has the value of another token. (Keys and
    values moved together change nothing: a key knows its position, and attention adds up in any order.)"""
    drafter = worker.draft_worker
    pool = drafter.draft_runner.token_to_kv_pool
    prefill = drafter._draft_extend_for_prefill
    begun: set[str] = set()

    def prefills(batch: Any, *given: Any, **more: Any) -> Any:
        for request, slot, length in zip(batch.reqs, batch.req_pool_indices, batch.prefix_lens, strict=True):
            if request.rid not in begun and length:
                places = worker.req_to_token_pool.req_to_token[slot, :length].long()
                values = pool.get_value_buffer(0)
                values[places] = values[places].roll(7, 0)
            begun.add(request.rid)
        return prefill(batch, *given, **more)

    with put(drafter, _draft_extend_for_prefill=prefills):
        yield

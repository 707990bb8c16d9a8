"""Faults of a patched engine in what is drafted, and in what the draft is made from: F01 to F08.

Engine facts: SGLang 0.5.23, ``speculative/eagle_worker_v2.py``.

Measured on the first tiny pair, chain of four, nine prompts of three domains one at a time (float32, greedy):
acceptance length of all and of each domain, of the same prompts again from the prefix cache, of the first
verify step alone and with eight at once; ``own`` is how many of 18 texts are the target's own.

==================================  ====  =======  =========  ====  ======  =====  =======  ===
patch                               all   licence  docstring  copy  cached  first  at once  own
==================================  ====  =======  =========  ====  ======  =====  =======  ===
healthy                             3.04  2.62     3.24       3.38  3.04    3.56   3.04     18
steps_resolved_to_zero              1.00  1.00     1.00       1.00  1.00    1.00   1.00     18
beyond_the_drafts_length            2.71  2.34     2.66       3.27  2.71    3.56   1.93     18
drafted_and_dropped                 1.00  1.00     1.00       1.00  1.00    1.00   1.00     18
buffer_never_copied_into            1.38  1.42     1.21       1.56  1.38    3.56   1.38     18
captured_without_a_copy             1.33  1.50     1.19       1.34  1.33    1.11   1.33     18
stacked_instead_of_joined           1.12  1.02     1.12       1.26  1.12    1.00   1.12     18
captured_before_the_residual        1.15  1.06     1.11       1.30  1.15    1.00   1.15     18
residual_around_attention_lost      1.17  1.09     1.12       1.30  1.17    1.11   1.17     18
hidden_norm_missing                 1.01  1.00     1.00       1.02  1.01    1.00   1.01     18
slot_of_an_earlier_request          2.90  2.57     3.00       3.21  2.88    1.11   2.85     18
state_not_handed_over               2.99  2.62     3.08       3.38  2.99    2.11   2.99     18
embedding_set_on_another_attribute  1.16  1.04     1.04       1.50  1.16    1.56   1.16     18
==================================  ====  =======  =========  ====  ======  =====  =======  ===
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from patching import Laid, hooks, patch, put, put_parameter, torch

# --- F01, F02, F03: what is drafted and what is verified --------------------------------------------------


@patch("F01")
def steps_resolved_to_zero(worker: Any) -> Laid:
    """A resolver reads the number of steps before it is set: the worker takes the path for none."""
    drafter = worker.draft_worker

    def skips(batch: Any, result: Any, **_more: Any) -> None:
        skipped(worker, batch, result)

    with (
        put(worker, speculative_num_steps=0, speculative_num_draft_tokens=1),
        put(drafter, _draft_extend_for_decode=skips),
    ):
        yield


def skipped(worker: Any, batch: Any, result: Any) -> None:
    """The state that the worker leaves where it skips the pass (``_stub_skipped_draft_extend``)."""
    with put(worker, topk=worker.draft_worker.topk):
        worker._stub_skipped_draft_extend(batch, result)


LONGEST = 64


@patch("F02", "sequences that grow beyond 64 tokens")
def beyond_the_drafts_length(worker: Any) -> Laid:
    """The draft's maximum length was resolved to 64 tokens. A batch with a longer sequence is not given to
    the draft; id 0 is proposed in each place, so that shapes stay."""
    drafter = worker.draft_worker
    draft, extend = drafter.draft, drafter._draft_extend_for_decode

    def too_long(batch: Any) -> bool:
        return int(batch.seq_lens.max()) + drafter.speculative_num_steps > LONGEST

    def placeholders(forward_batch: Any) -> Any:
        rows = forward_batch.batch_size
        ids = torch().zeros((rows, drafter.speculative_num_steps), dtype=torch().long)
        parents, scores = drafter._topk1_parents_prealloc, drafter._topk1_score_indices_prealloc
        return parents[:rows], scores[:rows], ids, None

    def drafts(batch: Any, **more: Any) -> Any:
        if not too_long(batch):
            return draft(batch, **more)
        with put(drafter, draft_forward=placeholders):
            return draft(batch, **more)

    def extends(batch: Any, result: Any, **more: Any) -> None:
        if too_long(batch):
            skipped(worker, batch, result)
        else:
            extend(batch, result, **more)

    with put(drafter, draft=drafts, _draft_extend_for_decode=extends):
        yield


@patch("F03")
def drafted_and_dropped(worker: Any) -> Laid:
    """The drafts are made; then the step goes the way of a plain decode, as the worker's own path for no
    steps does, and none of them reaches the target."""
    drafter = worker.draft_worker
    draft, extend = drafter.draft, drafter._draft_extend_for_decode
    width = worker.speculative_num_draft_tokens

    def drops(batch: Any, **more: Any) -> Any:
        draft(batch, **more)
        worker.speculative_num_draft_tokens = drafter.speculative_num_draft_tokens = 1
        return worker._build_trivial_verify_input(batch)

    def extends(batch: Any, result: Any, **more: Any) -> None:
        try:
            extend(batch, result, **more)
        finally:
            worker.speculative_num_draft_tokens = drafter.speculative_num_draft_tokens = width

    with put(drafter, draft=drops, _draft_extend_for_decode=extends):
        yield


# --- F04, F05, F06: which states the target hands on ------------------------------------------------------


@patch("F04")
def buffer_never_copied_into(worker: Any) -> Laid:
    """The pass after a verify step reads a buffer of its own, which is filled only by states of one hidden
    size: what comes is three wide, the copy is left out, and fc projects zeros."""
    drafter = worker.draft_worker
    extend = drafter._draft_extend_for_decode

    def extends(batch: Any, result: Any, **more: Any) -> None:
        output = result.logits_output
        output.hidden_states = torch().zeros_like(output.hidden_states)
        extend(batch, result, **more)

    with put(drafter, _draft_extend_for_decode=extends):
        yield


@contextmanager
def capturing(worker: Any, change: Callable[[list[Any], dict[str, Any]], list[Any]]) -> Laid:
    """The target hands on ``change(states, seen)``; ``seen`` has each layer's MLP output and the last sum."""
    model = worker.target_worker.model_runner.model.model
    seen: dict[str, Any] = {}

    def keep(name: str, pick: Callable[[Any], Any]) -> Callable[..., None]:
        def kept(_module: Any, _inputs: Any, output: Any) -> None:
            seen[name] = pick(output).clone()

        return kept

    def packs(_model: Any, _inputs: Any, output: Any) -> Any:
        hidden, states = output
        return hidden, change(list(states), seen)

    layers = [
        layer.mlp.register_forward_hook(keep(f"mlp {at}", lambda output: output))
        for at, layer in enumerate(model.layers)
    ]
    last = model.norm.register_forward_hook(keep("last", lambda output: output[1]))
    with hooks(*layers, last, model.register_forward_hook(packs)):
        yield


@patch("F05")
def captured_without_a_copy(worker: Any) -> Laid:
    """The captured states are views of the residual, to which later layers add in place: when they are
    packed, all three have become the sum after the last layer."""
    with capturing(worker, lambda states, seen: [seen["last"]] * len(states)):
        yield


@patch("F05")
def stacked_instead_of_joined(worker: Any) -> Laid:
    """``stack(states, -1).flatten(-2)`` where the draft was trained on ``cat(states, -1)``: each feature
    stands beside those of the other layers."""

    def interleaved(states: list[Any], _seen: Any) -> list[Any]:
        mixed = torch().stack(states, dim=-1).flatten(-2)
        return [part.contiguous() for part in mixed.chunk(len(states), dim=-1)]

    with capturing(worker, interleaved):
        yield


@patch("F06")
def captured_before_the_residual(worker: Any) -> Laid:
    """A port of the capture takes what a layer puts out and forgets to add the residual to it."""
    layers = worker.target_worker.model_runner.model.model.layers_to_capture
    with capturing(worker, lambda _states, seen: [seen[f"mlp {layer - 1}"] for layer in layers]):
        yield


@patch("F06")
def residual_around_attention_lost(worker: Any) -> Laid:
    """The draft's layer adds nothing of its input to what attention makes of it."""
    norm = worker.draft_worker.draft_runner.model.model.layers[0].post_attention_layernorm

    def without(_norm: Any, inputs: Any) -> Any:
        hidden, residual = inputs
        return hidden, torch().zeros_like(residual)

    with hooks(norm.register_forward_pre_hook(without)):
        yield


@patch("F06")
def hidden_norm_missing(worker: Any) -> Laid:
    """A port of the draft's layer leaves out the norm of the carried state."""
    norm = worker.draft_worker.draft_runner.model.model.layers[0].hidden_norm

    def as_it_came(_norm: Any, inputs: Any, _output: Any) -> Any:
        return inputs[0]

    with hooks(norm.register_forward_hook(as_it_came)):
        yield


# --- F07: from prefill to decode --------------------------------------------------------------------------


@contextmanager
def handing_over(worker: Any, change: Callable[[Any, Any], None]) -> Laid:
    """``change(batch, what the draft's prefill made)`` before decode takes it."""
    drafter = worker.draft_worker
    prefill = drafter._draft_extend_for_prefill

    def prefills(batch: Any, *inputs: Any, **more: Any) -> Any:
        made = prefill(batch, *inputs, **more)
        change(batch, made)
        return made

    with put(drafter, _draft_extend_for_prefill=prefills):
        yield


@patch("F07")
def slot_of_an_earlier_request(worker: Any) -> Laid:
    """Prefill's state is handed to decode in a slot that is written after it is read: a request gets what the
    one before it in that slot left (the first one its own)."""
    left: list[Any] = []

    def late(_batch: Any, made: Any) -> None:
        rows = len(made.topk_index)
        fresh = made.topk_p.clone(), made.topk_index.clone(), made.hidden_states.clone()
        for row in range(min(rows, len(left[0]) if left else 0)):
            made.topk_p[row], made.topk_index[row], made.hidden_states[row] = (part[row] for part in left)
        left[:] = fresh

    with handing_over(worker, late):
        yield


@patch("F07")
def state_not_handed_over(worker: Any) -> Laid:
    """The first token's draft is handed over and the hidden state beside it is not: it arrives as zeros."""

    def zeroed(_batch: Any, made: Any) -> None:
        made.hidden_states = torch().zeros_like(made.hidden_states)

    with handing_over(worker, zeroed):
        yield


# --- F08: sharing sets the wrong attribute ----------------------------------------------------------------


@patch("F08")
def embedding_set_on_another_attribute(worker: Any) -> Laid:
    """The target's embedding is shared as ``model.embedding``, which nothing reads; ``embed_tokens`` keeps
    what it was made with."""
    module = worker.draft_worker.draft_runner.model.model.embed_tokens
    made = torch().zeros_like(module.weight)
    made.normal_(0, 0.02, generator=torch().Generator().manual_seed(5))
    with put_parameter(module, made):
        yield

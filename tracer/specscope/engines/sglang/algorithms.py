"""Where each algorithm's path is seen: its hooks, and the boundaries it does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from specscope import convention as c
from specscope.contracts import ANY, CONTRACTS, Clause
from specscope.engines.sglang import hooks
from specscope.engines.sglang.hooks import Hook
from specscope.engines.sglang.loaded import Loaded
from specscope.engines.sglang.path import Path

MODULES: Final = "sglang.srt.speculative."
SAMPLES: Final[Mapping[str, str]] = {
    "EAGLE3": "eagle_worker_common",
    "EAGLE": "eagle_worker_common",
    "MULTI_LAYER_EAGLE": "eagle_worker_common",
    "FROZEN_KV_MTP": "eagle_worker_common",
    "STANDALONE": "eagle_worker_common",
    "NGRAM": "ngram_worker",
}
"""The module in which an algorithm calls ``eagle_sample``, which accepts and refuses drafts."""

GRAPH_RUNNERS: Final = ("cuda_graph_runner", "cuda_graph_runner_for_draft_extend")
"""Attributes of a draft worker that hold what replays its captured graphs."""


def clauses(algorithm: str) -> tuple[Clause, ...]:
    """Return the contract of an algorithm, for one that is not known that of any."""
    return CONTRACTS.get(algorithm, ANY)


def unreachable(loaded: Loaded) -> dict[str, str]:
    """Return the boundaries that this engine has no place for, and why."""
    shape = loaded.shape()
    found: dict[str, str] = {}
    wanted = clauses(loaded.algorithm)
    for boundary in c.BOUNDARIES:
        own = [one for one in wanted if one.boundary == boundary]
        if not own:
            found[boundary] = f"{loaded.algorithm} has no such step"
        elif not any(shape.holds(one.when) for one in own):
            draft = type(loaded.draft_runner.model).__name__
            found[boundary] = {
                c.DRAFT_FC: f"the draft {draft} has no fc",
                c.DRAFT_MAP: "the draft has the target's vocabulary and needs no map",
            }[boundary]
    return found


def path_hooks(loaded: Loaded, path: Path) -> list[Hook]:
    """Return the hooks on the speculative path, the upstream one first.

    They sit on the live objects, so that a plain target forward costs nothing; only what SGLang keeps in
    ``__slots__`` or makes anew (graph runners) is hooked on its class.
    """
    algorithm = loaded.algorithm
    own = tuple(b for b in c.BOUNDARIES if any(one.boundary == b for one in clauses(algorithm)))
    found = [
        Hook(
            loaded.worker,
            "forward_batch_generation",
            ("batch",),
            own,
            path.forward_begins,
            path.forward_ended,
        )
    ]
    if c.AUX_CAPTURE in own:
        logits = hooks.module("sglang.srt.layers.logits_processor")
        found.append(
            Hook(
                logits, "pack_aux_hidden_states", ("aux_hidden_states",), (c.AUX_CAPTURE,), after=path.packed
            )
        )
    found += _draft_hooks(loaded, path, own)
    # The algorithm decides how drafts come about; the target's worker verifies them all.
    verifies = (c.TARGET_VERIFY,) if path.sees_propose else (c.TARGET_VERIFY, c.DRAFT_PROPOSE)
    found.append(
        Hook(
            loaded.target_worker,
            "forward_batch_generation",
            ("batch", "forward_batch", "pp_proxy_tensors", "is_verify"),
            verifies,
            path.target_begins,
            path.target_ended,
            prefix="target_",
        )
    )
    if algorithm in SAMPLES:
        module = hooks.module(MODULES + SAMPLES[algorithm])
        parameters = ("verify_input", "batch", "logits_output")
        found.append(Hook(module, "eagle_sample", parameters, (), path.accept_begins, path.accept_ended))
    found.append(
        Hook(
            hooks.kind(loaded.scheduler, "batch_result_processor"),
            "process_batch_result_decode",
            ("self", "batch", "result"),
            (c.ENGINE_COMMIT,),
            path.commit_begins,
            path.commit_ended,
        )
    )
    return found


def _draft_hooks(loaded: Loaded, path: Path, own: tuple[str, ...]) -> list[Hook]:
    """Hooks on the draft model's worker; NGRAM has none and looks its drafts up."""
    if loaded.algorithm == "NGRAM":
        path.sees_propose = True
        return [
            Hook(
                loaded.worker,
                "_prepare_for_speculative_decoding",
                ("batch",),
                (c.DRAFT_PROPOSE,),
                path.propose_begins,
                path.propose_ended,
            )
        ]
    draft = loaded.draft_worker
    if c.DRAFT_EXTEND not in own:
        return []
    path.sees_propose = True
    extend = tuple(b for b in (c.DRAFT_EXTEND, c.DRAFT_FORWARD, c.DRAFT_FC) if b in own)
    proposes = tuple(b for b in (c.DRAFT_PROPOSE, c.DRAFT_MAP, c.DRAFT_FORWARD) if b in own)
    found = [Hook(draft, "draft", ("batch",), proposes, path.propose_begins, path.propose_ended)]
    found += [
        Hook(runner, "forward", ("forward_batch",), (c.DRAFT_FORWARD,), after=path.draft_ran)
        for runner in loaded.draft_runners
    ]
    found += [
        Hook(
            draft,
            "_draft_extend_for_prefill",
            ("batch", "target_hidden_states"),
            extend,
            path.extend_prefill_begins,
            path.extend_prefill_ended,
        ),
        Hook(
            draft,
            "_draft_extend_for_decode",
            ("batch", "batch_result"),
            extend,
            path.extend_decode_begins,
            path.extend_decode_ended,
        ),
    ]
    runners = (getattr(draft, name, None) for name in GRAPH_RUNNERS)
    kinds: set[Any] = {type(runner) for runner in runners if runner is not None}
    for kind in kinds:
        # That of several layers replays one after the other (``multi_layer_eagle_worker_v2.py``).
        runs, takes = ("execute", "forward_batch") if hasattr(kind, "execute") else ("replay", "step")
        found.append(Hook(kind, runs, ("self", takes), (c.DRAFT_FORWARD,), after=path.graph_replayed))
    return found

"""What this scheduler process really loaded: workers, model runners, the draft's fc, widths and ranks.

Everything is looked up on live objects after the engine is built, never on a fixed list of classes: many
draft classes of SGLang hold the same fc test (``llama_eagle3.py``, ``kimi_k25_eagle3.py``, ...).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from specscope.identity import Ranks


@dataclass(frozen=True, slots=True)
class Loaded:
    """Live objects of one scheduler; ``worker`` and what follows are ``None`` without a draft."""

    scheduler: Any
    server_args: Any
    algorithm: str
    eagle3: bool
    ranks: Ranks
    emits: bool
    """Whether this rank tells of requests and steps: one of its tensor-parallel group, the last stage."""
    worker: Any = None
    draft_worker: Any = None
    draft_runner: Any = None
    target_runner: Any = None
    fc: Any = None
    fc_in: int | None = None
    fc_out: int | None = None
    target_hidden: int | None = None

    @property
    def target_captures(self) -> bool:
        """Say whether the target model is set to hand over aux hidden states."""
        return bool(getattr(self.target_runner.model, "capture_aux_hidden_states", False))

    @property
    def map_present(self) -> bool:
        """Say whether the draft worker maps draft ids to target ids (d2t)."""
        return getattr(self.draft_worker, "hot_token_id", None) is not None

    @property
    def draft_vocab(self) -> int | None:
        """Return the size of the draft's vocabulary as its configuration states it."""
        size = getattr(self.draft_runner.model_config.hf_config, "draft_vocab_size", None)
        return size if isinstance(size, int) else None

    @property
    def needs_map(self) -> bool:
        """Say whether draft ids must be mapped: the draft's vocabulary is not the target's."""
        size = self.draft_vocab
        return self.map_present or (size is not None and size != self.target_runner.model_config.vocab_size)


def look(scheduler: Any) -> Loaded:
    """Look at a scheduler whose workers are built.

    Raises:
        AttributeError: the engine is not built as in the version we know.
    """
    ranks, emits = _ranks()
    algorithm = scheduler.spec_algorithm
    name = str(getattr(algorithm, "name", algorithm))
    worker = scheduler.model_worker
    draft_worker = None if algorithm.is_none() else getattr(worker, "_draft_worker", None)
    runner = getattr(draft_worker, "draft_runner", None)
    if runner is None or not algorithm.is_eagle3():
        return Loaded(
            scheduler=scheduler,
            server_args=scheduler.server_args,
            algorithm=name,
            eagle3=False,
            ranks=ranks,
            emits=emits,
            target_runner=scheduler.tp_worker.model_runner,
        )
    target = scheduler.tp_worker.model_runner
    fc = find_fc(runner.model)
    return Loaded(
        scheduler=scheduler,
        server_args=scheduler.server_args,
        algorithm=name,
        eagle3=True,
        ranks=ranks,
        emits=emits,
        worker=worker,
        draft_worker=draft_worker,
        draft_runner=runner,
        target_runner=target,
        fc=fc,
        fc_in=_features(fc, "in_features", "input_size"),
        fc_out=_features(fc, "out_features", "output_size"),
        target_hidden=_features(target.model_config, "hidden_size"),
    )


def find_fc(model: Any) -> Any:
    """Return the module named ``fc`` of a draft model, the one nearest to its root, or ``None``."""
    named = [(name, module) for name, module in model.named_modules() if name.rsplit(".", 1)[-1] == "fc"]
    return min(named, key=lambda pair: pair[0].count("."))[1] if named else None


def _features(owner: Any, *names: str) -> int | None:
    for name in names:
        value = getattr(owner, name, None)
        if isinstance(value, int):
            return value
    return None


def _ranks() -> tuple[Ranks, bool]:
    context: Any = importlib.import_module("sglang.srt.runtime_context")
    parallel = context.get_parallel()
    dp = parallel.attn_dp_rank if parallel.attn_dp_size > 1 else parallel.dp_rank
    mode = str(context.get_disagg().disaggregation_mode)
    ranks = Ranks(
        tp=parallel.tp_rank,
        dp=dp or 0,
        pp=parallel.pp_rank,
        serving_role=mode if mode in ("prefill", "decode") else "both",
    )
    emits = (
        parallel.attn_tp_rank == 0 and parallel.attn_cp_rank == 0 and parallel.pp_rank == parallel.pp_size - 1
    )
    return ranks, emits

"""What this scheduler process really loaded: workers, model runners, the draft's fc, widths and ranks.

Everything is looked up on live objects after the engine is built, never on a fixed list of classes: many
draft classes of SGLang hold the same fc test (``llama_eagle3.py``, ``kimi_k25_eagle3.py``, ...).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final

from specscope.contracts import Shape
from specscope.identity import Ranks


@dataclass(frozen=True, slots=True)
class Loaded:
    """Live objects of one scheduler; ``worker`` and what follows are ``None`` or empty without them."""

    scheduler: Any
    server_args: Any
    algorithm: str
    """Name in :data:`specscope.contracts.CONTRACTS`, or the engine's own; ``NONE``: speculation is off."""
    ranks: Ranks
    emits: bool
    """Whether this rank tells of requests and steps: one of its tensor-parallel group, the last stage."""
    worker: Any = None
    target_worker: Any = None
    target_runner: Any = None
    draft_worker: Any = None
    draft_runners: tuple[Any, ...] = ()
    fcs: tuple[Any, ...] = ()
    """The projection of each draft model that has one, see :data:`PROJECTIONS`."""
    embedding: Any = None
    """The embedding module of the (first) draft model."""
    fc_in: int | None = None
    fc_out: int | None = None
    target_hidden: int | None = None

    @property
    def eagle3(self) -> bool:
        """Say whether the draft reads aux hidden states of the target."""
        return self.algorithm == "EAGLE3"

    @property
    def speculates(self) -> bool:
        """Say whether this process verifies drafts."""
        return self.worker is not None

    @property
    def draft_runner(self) -> Any:
        """Return the model runner of the (first) draft model, ``None`` where there is none."""
        return self.draft_runners[0] if self.draft_runners else None

    @property
    def fc(self) -> Any:
        """Return the projection of the (first) draft model, ``None`` where there is none."""
        return self.fcs[0] if self.fcs else None

    @property
    def fc_takes(self) -> int | None:
        """Return how wide the hidden states must be that fc takes.

        All of its input for EAGLE-3; other drafts join them with the embedding, as wide as fc's output.
        """
        if self.eagle3 or self.fc_in is None or self.fc_out is None:
            return self.fc_in
        return self.fc_in - self.fc_out

    @property
    def target_captures(self) -> bool:
        """Say whether the target model is set to hand over aux hidden states.

        Multimodal ones set their language model (``mllama4.py``, ``kimi_k25.py``, ``gemma3_mm.py``).
        """
        model = self.target_runner.model
        owners = (model, getattr(model, "language_model", None))
        return any(bool(getattr(owner, "capture_aux_hidden_states", False)) for owner in owners)

    @property
    def map_present(self) -> bool:
        """Say whether the draft worker maps draft ids to target ids (d2t)."""
        return getattr(self.draft_worker, "hot_token_id", None) is not None

    @property
    def draft_vocab(self) -> int | None:
        """Return the size of the draft's vocabulary as its configuration states it."""
        if self.draft_runner is None:
            return None
        size = getattr(self.draft_runner.model_config.hf_config, "draft_vocab_size", None)
        return size if isinstance(size, int) else None

    @property
    def needs_map(self) -> bool:
        """Say whether draft ids must be mapped: the draft's vocabulary is not the target's."""
        size = self.draft_vocab
        return self.map_present or (size is not None and size != self.target_runner.model_config.vocab_size)

    def shape(self) -> Shape:
        """Return what the contract of the algorithm depends on, as it stands now: steps may adapt."""
        return Shape(
            steps=int(getattr(self.worker, "speculative_num_steps", None) or 0)
            if self.algorithm not in WITHOUT_STEPS
            else 1,
            layers=max(1, len(self.draft_runners)),
            fc=self.fc is not None,
            map=self.needs_map,
        )


WITHOUT_STEPS: Final = ("NGRAM", "DFLASH", "DSPARK", "UNO")
"""Algorithms that propose in one go: their number of draft steps means nothing."""


def look(scheduler: Any) -> Loaded:
    """Look at a scheduler whose workers are built.

    Raises:
        AttributeError: the engine is not built as in the version we know.
    """
    ranks, emits = _ranks()
    algorithm = scheduler.spec_algorithm
    target = scheduler.tp_worker.model_runner
    plain = Loaded(
        scheduler=scheduler,
        server_args=scheduler.server_args,
        algorithm=_name(algorithm, scheduler),
        ranks=ranks,
        emits=emits,
        target_runner=target,
    )
    worker = scheduler.model_worker
    # Only the last pipeline stage drafts and verifies; the others run a plain worker.
    if algorithm.is_none() or worker is scheduler.tp_worker:
        return plain
    draft_worker = getattr(worker, "draft_worker", None)
    runners = _draft_runners(draft_worker)
    fcs = tuple(fc for runner in runners if (fc := find_fc(runner.model)) is not None)
    fc = fcs[0] if fcs else None
    return Loaded(
        scheduler=scheduler,
        server_args=scheduler.server_args,
        algorithm=plain.algorithm,
        ranks=ranks,
        emits=emits,
        worker=worker,
        target_worker=getattr(worker, "target_worker", scheduler.tp_worker),
        target_runner=target,
        draft_worker=draft_worker,
        draft_runners=runners,
        fcs=fcs,
        embedding=find_embedding(runners[0].model) if runners else None,
        fc_in=_features(fc, "in_features", "input_size"),
        fc_out=_features(fc, "out_features", "output_size"),
        target_hidden=_features(target.model_config, "hidden_size"),
    )


def draft_ids(loaded: Loaded) -> bytes | None:
    """Return which target ids the draft can propose, as :class:`specscope.records.EngineFacts` wants them.

    Called before the engine serves: the map may lie on a device, and reading it waits.
    """
    hot = getattr(loaded.draft_worker, "hot_token_id", None)
    if hot is None:
        return None
    numpy: Any = importlib.import_module("numpy")
    vocab = int(loaded.target_runner.model_config.vocab_size)
    marks = numpy.zeros(vocab, dtype=bool)
    ids = hot.cpu().numpy()
    marks[ids[(ids >= 0) & (ids < vocab)]] = True
    return numpy.packbits(marks, bitorder="little").tobytes()


PROJECTIONS: Final = ("fc", "eh_proj", "input_proj", "pre_projection")
"""Names of the module that takes the target's hidden states: ``llama_eagle*.py``; ``deepseek_nextn.py``,
``mimo_v2_mtp.py``, ``step3p5_mtp.py``; ``mimo_mtp.py``; ``gemma4_mtp.py``."""


def find_fc(model: Any) -> Any:
    """Return the projection module of a draft model, the one nearest to its root, or ``None``."""
    return _nearest(model, PROJECTIONS)


EMBEDDINGS: Final = ("embed_tokens", "word_embeddings", "wte", "tok_embeddings")
"""Names of the module that embeds the draft's input tokens."""


def find_embedding(model: Any) -> Any:
    """Return the embedding module of a draft model, the one nearest to its root, or ``None``."""
    return _nearest(model, EMBEDDINGS)


def _nearest(model: Any, names: tuple[str, ...]) -> Any:
    named = [(name, module) for name, module in model.named_modules() if name.rsplit(".", 1)[-1] in names]
    return min(named, key=lambda pair: pair[0].count("."))[1] if named else None


def _name(algorithm: Any, scheduler: Any) -> str:
    name = str(getattr(algorithm, "name", algorithm))
    if name == "EAGLE" and getattr(scheduler.server_args, "enable_multi_layer_eagle", False):
        return "MULTI_LAYER_EAGLE"
    return name


def _draft_runners(draft_worker: Any) -> tuple[Any, ...]:
    """Model runners of the draft: several layers, one, or that of a plain worker (DFLASH, DSPARK)."""
    several = getattr(draft_worker, "draft_runners", None)
    if several:
        return tuple(several)
    for name in ("draft_runner", "model_runner"):
        runner = getattr(draft_worker, name, None)
        if runner is not None:
            return (runner,)
    return ()


def _features(owner: Any, *names: str) -> int | None:
    for name in names:
        value = getattr(owner, name, None)
        if isinstance(value, int):
            return value
    return None


def _ranks() -> tuple[Ranks, bool]:
    context: Any = importlib.import_module("sglang.srt.runtime_context")
    parallel = context.get_parallel()
    dp = parallel.attn_dp_rank if parallel.attn_dp_size > 1 else getattr(parallel, "dp_rank", 0)
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

"""Workers of algorithms that SGLang 0.5.23 does not start without a GPU: their calls, and no computing.

Each makes the calls that the named source makes, in its order, with SGLang's own input and result classes;
where the source packs or counts tokens, SGLang's own function does it here too.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from shapes_world import Target, modes, nothing, spec_info, srt, torch, utils


def uno_module(name: str) -> Any:
    """A module of UNO; ``uno_utils.py`` imports flashinfer, which there is for CUDA alone."""
    sys.modules["flashinfer"] = absent = ModuleType("flashinfer")
    absent.__dict__["top_k"] = nothing
    try:
        return srt(name)
    finally:
        del sys.modules["flashinfer"]


dflash_info: Any = srt("speculative.dflash_info")
uno: Any = srt("speculative.uno_info")


def chain_input(ids: Any, nodes: int, **more: Any) -> Any:
    """SGLang's verify input of a chain (``dflash_info.py``)."""
    flat = ids.reshape(-1)
    return dflash_info.DFlashVerifyInput(
        draft_token=flat, positions=torch.zeros_like(flat), draft_token_num=nodes, **more
    )


class DFlash:
    """The calls of ``dflash_worker_v2.py``, ``forward_batch_generation`` (2336-3014).

    Neither it nor DSPARK's worker has ``speculative_num_steps``.
    """

    topk = 1
    block = torch.tensor([[21, 22, 23, 24], [31, 32, 33, 34]])
    accepted = torch.tensor([2, 0])
    bonus = torch.tensor([99, 98])

    def __init__(self) -> None:
        """Own a draft whose fc takes three aux states."""
        self.target_worker = Target()
        model = torch.nn.Module()
        model.fc = torch.nn.Linear(384, 128, bias=False)
        config = SimpleNamespace(hf_config=SimpleNamespace(), vocab_size=1024, hidden_size=128)
        self.draft_model_runner = SimpleNamespace(model=model, model_config=config, forward=nothing)
        self.draft_worker = SimpleNamespace(model_runner=self.draft_model_runner)

    def forward_batch_generation(
        self, batch: Any, on_publish: Any = None, grammar_barrier: Any = None, pp_proxy_tensors: Any = None
    ) -> Any:
        """A prefill, or a block drafted in one forward and verified."""
        if batch.forward_mode.is_extend():
            result = self.target_worker.forward_batch_generation(batch, return_kv_loc_plan=True)
            result.new_seq_lens = batch.seq_lens
            return result
        self.draft_model_runner.forward(SimpleNamespace())
        nodes = self.block.shape[1]
        forward_batch = SimpleNamespace(spec_info=chain_input(self.block, nodes), input_ids=None)
        target = self.target_worker.forward_batch_generation(
            batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
        )
        commit = srt("speculative.dflash_worker_v2")._commit_accept
        tokens, lengths = commit(self.block, self.accepted, self.bonus)
        return utils.GenerationBatchResult(
            logits_output=target.logits_output,
            next_token_ids=tokens.reshape(-1),
            accept_lens=lengths,
            can_run_cuda_graph=True,
            speculative_num_draft_tokens=nodes,
            new_seq_lens=batch.seq_lens + lengths,
        )


class DSpark(DFlash):
    """The calls of ``dspark_worker_v2.py``, ``_forward_decode`` (961-1345), verified whole (static)."""

    def _verify(self) -> tuple[Any, dict[str, Any]]:
        return chain_input(self.block, 4), {}

    def forward_batch_generation(
        self, batch: Any, on_publish: Any = None, grammar_barrier: Any = None, pp_proxy_tensors: Any = None
    ) -> Any:
        """A prefill, or gamma drafts and their verification."""
        if batch.forward_mode.is_extend():
            result = self.target_worker.forward_batch_generation(batch)
            result.new_seq_lens = batch.seq_lens
            return result
        verify_input, more = self._verify()
        self.target_worker.forward_batch_generation(
            batch=None,
            forward_batch=SimpleNamespace(spec_info=verify_input, input_ids=verify_input.draft_token),
            is_verify=True,
        )
        commit = srt("speculative.dflash_worker_v2")._commit_accept
        tokens, lengths = commit(self.block, self.accepted, self.bonus)
        return utils.GenerationBatchResult(
            logits_output=SimpleNamespace(hidden_states=None),
            next_token_ids=tokens.reshape(-1),
            accept_lens=lengths,
            block_accept_lens=lengths,
            can_run_cuda_graph=False,
            speculative_num_draft_tokens=4,
            new_seq_lens=batch.seq_lens + lengths,
            **more,
        )


class RaggedDSpark(DSpark):
    """``dspark_verify.py``, ``_run_ragged`` (421-461): rows of different lengths, packed."""

    def _verify(self) -> tuple[Any, dict[str, Any]]:
        lengths = torch.tensor([4, 2], dtype=torch.int32)
        packed = torch.cat([row[:count] for row, count in zip(self.block, [4, 2], strict=True)])
        layout = SimpleNamespace(verify_lens=lengths)
        return chain_input(packed, 4, ragged_verify_layout=layout), {"cap_lens": lengths}


class Uno:
    """The calls of ``uno_worker_v2.py``, ``_forward_decode`` (620-770): the target drafts for itself."""

    speculative_num_steps = 1
    speculative_num_draft_tokens = 4
    topk = 1
    draft_worker = None
    candidates = torch.tensor([[22, 23, 24, 25], [32, 33, 34, 35]])
    """Clean root, then the proposals, of each row."""
    favourites = torch.tensor([[23, 24, 77, 0], [88, 0, 0, 0]])
    """The target's own choice behind each of them."""

    def __init__(self) -> None:
        """Own nothing but the target."""
        self.target_worker = Target()

    def _block(self, kind: str, ids: Any) -> Any:
        flat = ids.reshape(-1)
        info = uno.UnoForwardInput(
            spec_input_type=spec_info.SpecInputType[kind], positions=torch.zeros_like(flat), draft_token_num=4
        )
        return self.target_worker.forward_batch_generation(
            batch=None, forward_batch=SimpleNamespace(spec_info=info, input_ids=flat), is_verify=True
        )

    def forward_batch_generation(
        self, batch: Any, on_publish: Any = None, grammar_barrier: Any = None
    ) -> Any:
        """A prefill, or a draft block and a verify block, both on the target."""
        if batch.forward_mode.is_extend():
            result = self.target_worker.forward_batch_generation(batch)
            result.new_seq_lens = batch.seq_lens
            return result
        self._block("UNO_DRAFT", torch.tensor([[21, 0, 0, 0], [31, 0, 0, 0]]))
        self._block("UNO_VERIFY", self.candidates)
        worker = uno_module("speculative.uno_worker_v2").UnoWorkerV2
        output, lengths, new_lens, _ = worker._accept_and_pack(
            candidates=self.candidates, target_top1=self.favourites, committed_seq_lens=batch.seq_lens
        )
        return utils.GenerationBatchResult(
            logits_output=SimpleNamespace(hidden_states=None),
            next_token_ids=output.reshape(-1),
            accept_lens=lengths,
            speculative_num_draft_tokens=4,
            speculative_output_stride=5,
            num_non_draft_tokens_per_req=2,
            new_seq_lens=new_lens,
        )


class UnoTree(Uno):
    """``_forward_decode_tree`` (439-618): the draft block, then EAGLE's verification of a tree."""

    topk = 2
    tree = torch.tensor([[22, 23, 24, 25], [32, 33, 34, 35]])
    """Root, its children at nodes 1 and 2, and node 3 below node 2."""

    def forward_batch_generation(
        self, batch: Any, on_publish: Any = None, grammar_barrier: Any = None
    ) -> Any:
        """A prefill, or a draft block and a tree of four nodes."""
        if batch.forward_mode.is_extend():
            return super().forward_batch_generation(batch)
        self._block("UNO_DRAFT", torch.tensor([[21, 0, 0], [31, 0, 0]]))
        info = srt("speculative.eagle_info").EagleVerifyInput(
            draft_token=self.tree.reshape(-1),
            custom_mask=None,
            positions=torch.zeros(8, dtype=torch.int64),
            retrieve_index=torch.arange(8).reshape(2, 4),
            retrieve_next_token=torch.tensor([[1, -1, 3, -1]] * 2),
            retrieve_next_sibling=torch.tensor([[-1, 2, -1, -1]] * 2),
            retrieve_cum_len=None,
            spec_steps=2,
            topk=2,
            draft_token_num=4,
            capture_hidden_mode=modes.CaptureHiddenMode.FULL,
            seq_lens_sum=None,
            seq_lens_cpu=None,
        )
        self.target_worker.forward_batch_generation(
            batch=None, forward_batch=SimpleNamespace(spec_info=info, input_ids=None), is_verify=True
        )
        # Row 0 takes nodes 2 and 3 and adds 77; row 1 takes nothing and adds 88 (compacted to the front).
        packed = uno_module("speculative.uno_utils").pack_uno_tree_result(
            clean_root_tokens=torch.tensor([22, 32]),
            eagle_predict=torch.tensor([24, 25, 77, 0, 88, 0, 0, 0]),
            eagle_accept_lens=torch.tensor([3, 1], dtype=torch.int32),
            draft_width=3,
        )
        return utils.GenerationBatchResult(
            logits_output=SimpleNamespace(hidden_states=None),
            next_token_ids=packed.output_ids.reshape(-1),
            accept_lens=packed.accept_lens,
            speculative_num_draft_tokens=3,
            speculative_output_stride=4,
            num_non_draft_tokens_per_req=2,
            new_seq_lens=batch.seq_lens,
        )


class FrozenDraft:
    """``frozen_kv_mtp_worker_v2.py``, ``FrozenKVMTPDraftWorker``: its extend runs no model (654-695)."""

    hot_token_id = None
    cuda_graph_runner = None
    cuda_graph_runner_for_draft_extend = None

    def __init__(self, steps: int) -> None:
        """Draft ``steps`` deep."""
        model = torch.nn.Module()
        model.pre_projection = torch.nn.Linear(256, 128, bias=False)
        config = SimpleNamespace(hf_config=SimpleNamespace(), vocab_size=1024, hidden_size=128)
        logits = SimpleNamespace(next_token_logits=torch.zeros(2, 1024), hidden_states=torch.zeros(2, 128))

        def forward(forward_batch: Any) -> Any:
            model.pre_projection(torch.zeros(2, 256))
            return SimpleNamespace(logits_output=logits)

        self.draft_runner = SimpleNamespace(model=model, model_config=config, forward=forward)
        self.steps = steps

    def draft(self, batch: Any) -> Any:
        """The seed forward and the recurrent ones (543-647)."""
        for _ in range(self.steps):
            self.draft_runner.forward(SimpleNamespace())
        nodes = self.steps + 1
        ids = torch.tensor([[21, 22, 23, 24], [31, 32, 33, 34]])[:, :nodes]
        return srt("speculative.frozen_kv_mtp_info").FrozenKVMTPVerifyInput(
            draft_token=ids.reshape(-1),
            custom_mask=None,
            positions=torch.zeros(2 * nodes, dtype=torch.int64),
            retrieve_index=torch.arange(2 * nodes).reshape(2, nodes),
            retrieve_next_token=torch.tensor([[*range(1, nodes), -1]] * 2),
            retrieve_next_sibling=torch.full((2, nodes), -1),
            retrieve_cum_len=None,
            spec_steps=self.steps,
            topk=1,
            draft_token_num=nodes,
            capture_hidden_mode=modes.CaptureHiddenMode.FULL,
            seq_lens_sum=None,
            seq_lens_cpu=None,
        )

    def _draft_extend_for_prefill(
        self, batch: Any, target_hidden_states: Any, next_token_ids: Any, mm_input_embeds: Any = None
    ) -> None:
        pass

    def _draft_extend_for_decode(self, batch: Any, batch_result: Any) -> None:
        pass


class Frozen:
    """The calls of ``FrozenKVMTPWorkerV2.forward_batch_generation`` (762-822)."""

    topk = 1

    def __init__(self, steps: int = 3) -> None:
        """Own a draft that reads the target's KV."""
        self.target_worker = Target()
        self.draft_worker = FrozenDraft(steps)
        self.speculative_num_steps = steps

    def forward_batch_generation(
        self, batch: Any, on_publish: Any = None, grammar_barrier: Any = None
    ) -> Any:
        """A prefill with its seed, or a proposal, its verification and the next seed."""
        hidden = SimpleNamespace(hidden_states=torch.ones(6, 128))
        if batch.forward_mode.is_extend():
            result = self.target_worker.forward_batch_generation(batch, capture_hidden_mode=None)
            self.draft_worker._draft_extend_for_prefill(  # pyright: ignore[reportPrivateUsage]
                batch, hidden.hidden_states, result.next_token_ids, None
            )
            return result
        verify_input = self.draft_worker.draft(batch)
        nodes = verify_input.draft_token_num
        self.target_worker.forward_batch_generation(
            batch=None, forward_batch=SimpleNamespace(spec_info=verify_input, input_ids=None), is_verify=True
        )
        result = utils.GenerationBatchResult(
            logits_output=SimpleNamespace(hidden_states=torch.ones(8, 128)),
            next_token_ids=torch.tensor([[22, 99, 0, 0], [98, 0, 0, 0]])[:, :nodes].reshape(-1),
            accept_lens=torch.tensor([2, 1], dtype=torch.int32),
            accept_index=torch.tensor([[0, 1, -1, -1], [nodes, -1, -1, -1]])[:, :nodes],
            speculative_num_draft_tokens=nodes,
        )
        self.draft_worker._draft_extend_for_decode(batch, result)  # pyright: ignore[reportPrivateUsage]
        return result

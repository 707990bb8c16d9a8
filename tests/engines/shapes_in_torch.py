"""The adapter over SGLang's own shapes, for algorithms that SGLang 0.5.23 does not start without a GPU.

Run by ``test_sglang_shapes.py`` under the interpreter that has SGLang. Each worker below makes the calls that
the named source makes, in its order, with SGLang's own input and result classes; where the source packs or
counts tokens, SGLang's own function does it here too. What is not here is the computing between the calls.
Prints a JSON object: the traceback of each check, empty where it passed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from check_report import report
from specscope import convention as c
from specscope import expand
from specscope.engines.sglang import install, loaded
from specscope.identity import Ranks
from specscope.ledger import gaps
from specscope.recorder import Recorder
from specscope.records import Record, VerifyBatch, VerifyStep
from specscope.settings import Settings

torch: Any = importlib.import_module("torch")
SRT = "sglang.srt."


def srt(name: str) -> Any:
    """A module of SGLang."""
    return importlib.import_module(SRT + name)


def nothing(*_args: Any, **_kwargs: Any) -> Any:
    """Stands where the engine does something that is not looked at."""


def uno_module(name: str) -> Any:
    """A module of UNO; ``uno_utils.py`` imports flashinfer, which there is for CUDA alone."""
    sys.modules["flashinfer"] = absent = ModuleType("flashinfer")
    absent.__dict__["top_k"] = nothing
    try:
        return srt(name)
    finally:
        del sys.modules["flashinfer"]


spec_info: Any = srt("speculative.spec_info")
dflash_info: Any = srt("speculative.dflash_info")
uno: Any = srt("speculative.uno_info")
utils: Any = srt("managers.utils")
modes: Any = srt("model_executor.forward_batch_info")
processing: Any = srt("managers.scheduler_components.batch_result_processor")

PROMPT = [5, 6, 7]
BONUS = [[21], [31]]
"""The last token of each request, the root of what is drafted next."""


class Kept(Recorder):
    """A real recorder that keeps its records and starts no exporter."""

    def __init__(self) -> None:
        """Record at the level that has ids."""
        settings = Settings(off="test", detail=c.DETAIL_TOKENS)
        super().__init__(
            settings, role="scheduler", ranks=Ranks(), engine_name="sglang", engine_version="0.5.23"
        )
        self.kept: list[Record] = []

    def emit(self, record: Record) -> None:
        """Keep it."""
        self.kept.append(record)


class Target:
    """The target's worker (``tp_worker.py``): what it is called with is all that matters here."""

    def __init__(self) -> None:
        """Be a target of a vocabulary of 1024."""
        config = SimpleNamespace(hidden_size=128, vocab_size=1024)
        self.model_runner = SimpleNamespace(model_config=config, model=torch.nn.Module())
        self.calls: list[bool] = []

    def forward_batch_generation(
        self,
        batch: Any,
        forward_batch: Any = None,
        pp_proxy_tensors: Any = None,
        is_verify: bool = False,
        **_more: Any,
    ) -> Any:
        """Answer as the target does: the prefill with one token a request, a verify with logits only."""
        self.calls.append(is_verify)
        if is_verify:
            return utils.GenerationBatchResult(logits_output=SimpleNamespace(hidden_states=None))
        ids = torch.tensor([bonus[0] for bonus in BONUS])
        return utils.GenerationBatchResult(logits_output=SimpleNamespace(), next_token_ids=ids)


class Processor:
    """``process_batch_result_decode`` as far as it resolves tokens, which is SGLang's own function."""

    def __init__(self) -> None:
        """Have no metrics, no grammar and no adaptive steps."""
        self.metrics_reporter = SimpleNamespace(snapshot_spec_decode_metrics=nothing)
        self.model_worker = SimpleNamespace(on_verify_complete_cpu=nothing)
        self.advance_grammar_fsm = nothing

    def process_batch_result_decode(self, batch: Any, result: Any) -> None:
        """Commit what was accepted."""
        resolve = processing.SchedulerBatchResultProcessor._resolve_spec_v2_tokens
        for req, tokens in zip(batch.reqs, resolve(self, result, batch), strict=True):
            if req.finished_reason is None:
                req.output_ids.extend(tokens)


def request(rid: str, bonus: list[int]) -> Any:
    """A request as the scheduler makes it, with the fields that it and we read."""
    return SimpleNamespace(
        rid=rid,
        origin_input_ids=list(PROMPT),
        output_ids=list(bonus),
        cached_tokens=0,
        finished_len=None,
        finished_reason=None,
        is_retracted=False,
        grammar=None,
        kv=SimpleNamespace(kv_committed_len=0),
        spec_verify_ct=0,
        spec_num_correct_drafts=0,
        spec_num_block_accept_tokens=0,
        spec_num_cap_tokens=0,
        update_spec_correct_drafts_histogram=nothing,
        update_spec_cap_lens_histogram=nothing,
        finished=lambda: False,
        sampling_params=SimpleNamespace(max_new_tokens=64, temperature=0.0, top_k=1),
        time_stats=SimpleNamespace(),
    )


class Scheduler:
    """The attributes of the scheduler that the tracer looks at."""

    def __init__(self, algorithm: Any, worker: Any) -> None:
        """Serve two requests with ``worker``."""
        self.spec_algorithm = algorithm
        self.server_args = SimpleNamespace(enable_multi_layer_eagle=False, enable_torch_compile=False)
        self.model_worker = worker
        self.tp_worker = worker.target_worker
        # A class of its own: the tracer hooks it there, once.
        self.batch_result_processor = type("Processor", (Processor,), {})()
        self.output_streamer = type("Streamer", (), {"stream_output": _stream})()
        self.reqs = [self._create_generation_req(request(f"r{row}", BONUS[row])) for row in range(2)]
        self.step = 0

    def _create_generation_req(self, recv_req: Any) -> Any:
        return recv_req

    def _add_request_to_queue(self, req: Any) -> None:
        pass

    def send_abort_output(self, abort_req: Any, req: Any) -> None:
        """Never called here."""

    def batch(self, mode: Any) -> Any:
        """The batch of the next step."""
        self.step += 1
        return SimpleNamespace(
            reqs=self.reqs,
            forward_mode=mode,
            is_extend_in_batch=False,
            forward_iter=self.step,
            spec_info=None,
            has_grammar=False,
            extend_lens=[len(PROMPT)] * 2,
            prefix_lens=[0] * 2,
            seq_lens=torch.tensor([len(PROMPT)] * 2),
        )


def _stream(self: Any, reqs: Any, return_logprob: bool) -> None:
    pass


class Run:
    """One prefill and some verify steps, traced."""

    def __init__(self, algorithm: str, worker: Any, steps: int = 1, *, late: bool = False) -> None:
        """Run ``steps`` verify steps. ``late``: each is committed after the next one was launched."""
        self.recorder = Kept()
        self.scheduler = Scheduler(spec_info.SpeculativeAlgorithm[algorithm], worker)
        loaded._ranks = lambda: (Ranks(), True)  # pyright: ignore[reportPrivateUsage] - no process group here
        self.loaded = loaded.look(self.scheduler)
        path = install.start(self.loaded, self.recorder)
        assert path is not None
        for req in self.scheduler.reqs:
            self.scheduler._create_generation_req(req)  # pyright: ignore[reportPrivateUsage]
        worker.forward_batch_generation(self.scheduler.batch(modes.ForwardMode.EXTEND))
        waiting: list[tuple[Any, Any]] = []
        for _ in range(steps):
            batch = self.scheduler.batch(modes.ForwardMode.DECODE)
            waiting.append((batch, worker.forward_batch_generation(batch)))
            if len(waiting) > late:
                self._commit(*waiting.pop(0))
        for one in waiting:
            self._commit(*one)
        assert self.recorder.hook_errors == {}, self.recorder.hook_errors

    def _commit(self, batch: Any, result: Any) -> None:
        processor = self.scheduler.batch_result_processor
        processor.process_batch_result_decode(SimpleNamespace(**vars(batch)), result)

    def steps(self) -> list[VerifyStep]:
        """The verify steps as they are told."""
        odd: list[ValueError] = []
        found = [expand.step(one, odd.append) for one in self.recorder.kept if isinstance(one, VerifyBatch)]
        assert odd == [], odd
        return found

    def observed(self) -> dict[str, int]:
        """Crossings by boundary and source; the contract must be met."""
        expected, seen = self.recorder.ledger.sums()
        armed = {name: one.armed for name, one in self.recorder.ledger.armed.items()}
        assert gaps(expected, seen, armed) == []
        told: dict[str, int] = {}
        for (boundary, source, mode), count in seen.items():
            told[" ".join(part for part in (boundary, source, mode) if part)] = count
        return told


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


def dflash_block_is_a_chain_without_accept_index() -> None:
    """Drafts, path, bonus and outputs of each row; the proposal is concluded from what is verified."""
    run = Run("DFLASH", DFlash())
    (step,) = run.steps()
    assert step.drafted_nodes == step.drafted_depth == (3, 3)
    assert step.draft_tokens == ((22, 23, 24), (32, 33, 34))
    assert step.roots == (21, 31)
    assert step.accepted == (2, 0) and step.bonus == (1, 1) and step.committed == (3, 1)
    assert step.accepted_path == ((0, 1), ())
    assert step.output_ids == ((22, 23, 99), (98,)) and step.bonus_ids == (99, 98)
    assert run.observed() == {
        "draft.propose derived": 1,
        "target.verify eager": 1,
        "engine.commit eager": 1,
    }


def dflash_steps_are_told_apart_under_the_overlap_schedule() -> None:
    """Each step is committed after the next was launched (``scheduler.py``, ``event_loop_overlap``)."""
    steps = Run("DFLASH", DFlash(), steps=3, late=True).steps()
    assert [step.step for step in steps] == [2, 3, 4]
    assert [step.committed for step in steps] == [(3, 1)] * 3
    assert [step.context for step in steps] == [(4, 4), (7, 5), (10, 6)]


def a_request_that_is_over_is_in_one_more_step() -> None:
    """An overshoot row: SGLang resolves its tokens, and nobody gets them."""
    worker = DFlash()

    class Ends(Run):
        def _commit(self, batch: Any, result: Any) -> None:
            super()._commit(batch, result)
            self.scheduler.reqs[1].finished_reason = SimpleNamespace(type="length")

    first, second = Ends("DFLASH", worker, steps=2, late=True).steps()
    assert first.overshoot == (False, False) and first.committed == (3, 1)
    assert second.overshoot == (False, True) and second.committed == (3, 0)


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


def dspark_static_is_a_chain() -> None:
    """As DFLASH, with the counts that DSpark adds."""
    run = Run("DSPARK", DSpark())
    (step,) = run.steps()
    assert step.draft_tokens == ((22, 23, 24), (32, 33, 34))
    assert step.accepted == (2, 0) and step.accepted_path == ((0, 1), ())
    assert step.output_ids == ((22, 23, 99), (98,))
    assert set(run.observed()) == {"draft.propose derived", "target.verify eager", "engine.commit eager"}


def dspark_ragged_rows_are_never_read_across() -> None:
    """4 + 2 packed tokens are no two rows of 3: what was accepted is told, drafts only where right."""
    run = Run("DSPARK", RaggedDSpark())
    (step,) = run.steps()
    assert step.accepted == (2, 0) and step.committed == (3, 1)
    assert step.output_ids == ((22, 23, 99), (98,))
    assert step.draft_tokens in (None, ((22, 23, 24), (32,)))
    assert step.drafted_nodes in ((3, 3), (3, 1))
    assert set(run.observed()) == {"draft.propose derived", "target.verify eager", "engine.commit eager"}


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


def uno_root_and_correction_are_no_drafts() -> None:
    """Two tokens of a row are not drafted: the clean root and the correction."""
    run = Run("UNO", Uno())
    (step,) = run.steps()
    assert step.roots == (22, 32) and step.draft_tokens == ((23, 24, 25), (33, 34, 35))
    assert step.accepted == (2, 0) and step.bonus == (2, 2) and step.committed == (4, 2)
    assert step.accepted_path == ((0, 1), ())
    assert step.output_ids == ((22, 23, 24, 77), (32, 88)) and step.bonus_ids == (77, 88)
    assert run.observed() == {"draft.propose eager": 1, "target.verify eager": 1, "engine.commit eager": 1}


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


def uno_tree_is_read_as_a_tree() -> None:
    """Its nodes are those of the verify input, its width in the result is another."""
    (step,) = Run("UNO", UnoTree()).steps()
    assert step.parents == ((-1, -1, 1), (-1, -1, 1)) and step.drafted_depth == (2, 2)
    assert step.drafted_nodes == (3, 3) and step.draft_tokens == ((23, 24, 25), (33, 34, 35))
    assert step.accepted == (2, 0) and step.accepted_path == ((1, 2), ())
    assert step.output_ids == ((22, 24, 25, 77), (32, 88))


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


def frozen_kv_mtp_drafts_as_often_as_it_has_steps() -> None:
    """Its first forward is fed by the target inside the proposal; its draft extend runs no model."""
    run = Run("FROZEN_KV_MTP", Frozen(), steps=2)
    steps = run.steps()
    assert [step.accepted for step in steps] == [(1, 0)] * 2
    assert steps[0].draft_tokens == ((22, 23, 24), (32, 33, 34))
    seen = run.observed()
    assert seen["draft.forward self_fed eager"] == 2 * 3
    assert seen["draft.extend target_fed eager"] == 3
    assert "draft.forward target_fed eager" not in seen


def steps_that_adapt_at_the_commit_are_those_of_the_next_step() -> None:
    """SGLang changes the number of steps while it resolves a result (``on_verify_complete_cpu``)."""
    worker = Frozen(steps=1)

    class Adapts(Run):
        def _commit(self, batch: Any, result: Any) -> None:
            def adapt(*_args: Any, **_more: Any) -> None:
                worker.speculative_num_steps = worker.draft_worker.steps = 3

            self.scheduler.batch_result_processor.model_worker.on_verify_complete_cpu = adapt
            super()._commit(batch, result)

    run = Adapts("FROZEN_KV_MTP", worker, steps=2)
    assert [step.drafted_nodes for step in run.steps()] == [(1, 1), (3, 3)]
    assert run.observed()["draft.forward self_fed eager"] == 1 + 3


CHECKS: tuple[Callable[[], None], ...] = (
    dflash_block_is_a_chain_without_accept_index,
    dflash_steps_are_told_apart_under_the_overlap_schedule,
    a_request_that_is_over_is_in_one_more_step,
    dspark_static_is_a_chain,
    dspark_ragged_rows_are_never_read_across,
    uno_root_and_correction_are_no_drafts,
    uno_tree_is_read_as_a_tree,
    frozen_kv_mtp_drafts_as_often_as_it_has_steps,
    steps_that_adapt_at_the_commit_are_those_of_the_next_step,
)


if __name__ == "__main__":
    report(CHECKS)

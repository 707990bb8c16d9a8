"""SGLang around a speculative worker, as far as the tracer looks at it: target, scheduler, commit, a run.

Imported by scripts that run under the interpreter that has SGLang; its own input and result classes are used.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

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


spec_info: Any = srt("speculative.spec_info")
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

"""What the SGLang adapter costs the engine's thread: ``python benchmarks/tracer/hot_path.py`` beside SGLang.

The hooks sit on objects that call each other as SGLang 0.5.23 does in one engine step (chain of 4 drafts:
propose with 3 forwards, verify, draft extend, commit; a tree of 16 nodes likewise) and do nothing else. The
same loop runs with and without hooks in turn, and ``thread_time_ns`` of the first less the second is what
the tracer adds: wrappers, callbacks, records, the queue. A real exporter process takes records meanwhile;
those it cannot keep up with are thrown away.

*small*: logits and hidden states are so small (16 wide, vocabulary 64) that reducing them is nothing: what
is left is Python and torch's dispatch, as on a GPU, where a launch costs some more. *cpu*: 4096 wide,
vocabulary 32,000, reduced by the engine's thread itself, as this version does on a CPU.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import platform
import statistics
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

from specscope import convention as c
from specscope import recorder as recorder_module
from specscope.engines.sglang import algorithms, hooks, install
from specscope.engines.sglang.loaded import Loaded
from specscope.engines.sglang.path import Path
from specscope.engines.sglang.requests import MARK, Live, Requests
from specscope.identity import Ranks, request_uid
from specscope.recorder import Recorder
from specscope.records import EngineFacts, RequestStarted
from specscope.settings import Settings

torch: Any = importlib.import_module("torch")

STEPS = 4
SIZES = {"small": (16, 64), "cpu": (4096, 32_000)}


class Handler(BaseHTTPRequestHandler):
    """Takes everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read and answer."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Req:
    """A request, with what the adapter reads of SGLang's."""

    def __init__(self, name: str) -> None:
        self.rid = name
        self.origin_input_ids = list(range(512))
        self.output_ids: list[int] = [5]
        self.finished_len: int | None = None
        self.finished_reason: object = None
        self.is_retracted = False
        self.cached_tokens = 0


class Engine:
    """Calls what an engine step calls, and nothing else."""

    def __init__(self, batch: int, nodes: int, size: str) -> None:
        width, vocab = SIZES[size]
        torch.manual_seed(1)
        self.width = width
        self.reqs = [Req(f"r{i}") for i in range(batch)]
        topk = 1 if nodes == STEPS + 1 else 4
        self.topk = topk
        rows = batch * topk
        logits = torch.randn(rows, vocab)
        opening = logits[:batch]
        hidden = torch.randn(batch * nodes, 3 * width)
        verify = torch.randn(batch * nodes, vocab)
        carry, made = torch.randn(rows, width), torch.randn(batch * nodes, width)
        self.draft_out = SimpleNamespace(
            logits_output=SimpleNamespace(next_token_logits=logits, hidden_states=carry)
        )
        self.extend_out = SimpleNamespace(logits_output=SimpleNamespace(next_token_logits=opening))
        self.next_draft_input = SimpleNamespace(hidden_states=carry[:batch])
        links = torch.full((batch, nodes), -1)
        links[:, :STEPS] = torch.arange(1, STEPS + 1)
        self.info = SimpleNamespace(
            draft_token=torch.randint(0, vocab, (batch * nodes,)),
            draft_token_num=nodes,
            spec_steps=STEPS,
            topk=topk,
            tree_topk=topk,
            retrieve_next_token=links,
            retrieve_next_sibling=torch.full((batch, nodes), -1),
        )
        self.logits_output = SimpleNamespace(next_token_logits=verify, hidden_states=hidden)
        self.accept_lens = torch.full((batch,), 3, dtype=torch.int32)
        self.accept_index = (torch.arange(STEPS + 1) + nodes * torch.arange(batch)[:, None]).int()
        # The accepted drafts are the first two of the chain that every tree here begins with.
        self.ids = torch.roll(self.info.draft_token, -1).int()
        self.nodes = nodes
        self.step = 0
        self.mode = SimpleNamespace(is_idle=lambda: False, is_extend=lambda: False)
        outer = self

        class Target:
            model_runner = SimpleNamespace(model_config=SimpleNamespace(vocab_size=32_000))

            def forward_batch_generation(
                self,
                batch: Any,
                forward_batch: Any = None,
                pp_proxy_tensors: Any = None,
                is_verify: bool = False,
            ) -> Any:
                pack(None)
                return outer.result

        class Runner:
            model_config = SimpleNamespace(hf_config=SimpleNamespace(draft_vocab_size=None))

            def __init__(self) -> None:
                self.out = outer.draft_out

            def forward(self, forward_batch: Any) -> Any:
                target_fed = self.out is outer.extend_out
                outer.modules.embed(made if target_fed else carry)
                if target_fed:
                    outer.modules.fc(hidden)
                return self.out

        class Draft:
            hot_token_id = None

            def draft(self, batch: Any) -> Any:
                for _ in range(STEPS - 1):
                    outer.runner.forward(None)
                return outer.info

            def _draft_extend_for_prefill(self, batch: Any, target_hidden_states: Any) -> None:
                raise NotImplementedError

            def _draft_extend_for_decode(self, batch: Any, batch_result: Any) -> None:
                outer.runner.out = outer.extend_out
                outer.runner.forward(None)
                outer.runner.out = outer.draft_out

        def extend(batch: Any, result: Any) -> None:
            getattr(outer.draft, "_draft_extend_for_decode")(batch, result)  # noqa: B009 - hooked by name

        class Worker:
            speculative_num_steps = STEPS
            speculative_num_draft_tokens = nodes
            topk = self.topk

            def forward_batch_generation(self, batch: Any) -> Any:
                batch.spec_info = outer.draft.draft(batch)
                outer.target.forward_batch_generation(None, forward_batch=batch, is_verify=True)
                module.eagle_sample(outer.info, batch, outer.logits_output)
                extend(batch, outer.result)
                return outer.result

        class Processor:
            def process_batch_result_decode(self, batch: Any, result: Any) -> None:
                result.num_correct_drafts_per_req_cpu = [2] * len(batch.reqs)

        def pack(aux_hidden_states: Any) -> None:
            """As ``pack_aux_hidden_states``: hooked where it is looked up."""

        def fc(states: Any) -> Any:
            """As a forward of the fc module."""
            return made

        def embed(states: Any) -> Any:
            """As a forward of the embedding module, which gives these."""
            return states

        self.modules = SimpleNamespace(fc=fc, embed=embed)
        module = SimpleNamespace()

        def eagle_sample(verify_input: Any, batch: Any, logits_output: Any) -> Any:
            return None, outer.accept_lens, outer.accept_index

        module.eagle_sample = eagle_sample
        self.module, self.target, self.runner, self.draft, self.worker = (
            module,
            Target(),
            Runner(),
            Draft(),
            Worker(),
        )
        self.processor = Processor()
        self.new_result()

    def new_result(self) -> None:
        self.result = SimpleNamespace(
            can_run_cuda_graph=False,
            accept_lens=self.accept_lens,
            accept_index=self.accept_index,
            logits_output=self.logits_output,
            next_token_ids=self.ids,
            speculative_num_draft_tokens=self.nodes,
            speculative_output_stride=None,
            num_non_draft_tokens_per_req=1,
            num_correct_drafts_per_req_cpu=None,
            next_draft_input=self.next_draft_input,
        )

    def run(self, steps: int) -> int:
        """Return the thread's time of ``steps`` engine steps in ns."""
        spent = 0
        for _ in range(steps):
            self.step += 1
            batch = SimpleNamespace(
                forward_mode=self.mode,
                is_extend_in_batch=False,
                has_grammar=False,
                reqs=self.reqs,
                forward_iter=self.step,
                spec_info=None,
                input_ids=None,
            )
            self.new_result()
            began = time.thread_time_ns()
            result = self.worker.forward_batch_generation(batch)
            self.processor.process_batch_result_decode(batch, result)
            spent += time.thread_time_ns() - began
        return spent


def loaded(engine: Engine) -> Loaded:
    return Loaded(
        scheduler=SimpleNamespace(batch_result_processor=engine.processor),
        server_args=None,
        algorithm="EAGLE3",
        ranks=Ranks(),
        emits=True,
        worker=engine.worker,
        target_worker=engine.target,
        target_runner=SimpleNamespace(
            model=SimpleNamespace(capture_aux_hidden_states=True),
            model_config=SimpleNamespace(vocab_size=32_000),
        ),
        draft_worker=engine.draft,
        draft_runners=(engine.runner,),
        fcs=(object(),),
        fc_in=3 * engine.width,
        fc_out=engine.width,
        target_hidden=engine.width,
    )


def start(endpoint: str, engine: Engine, detail: str) -> tuple[Recorder, list[tuple[hooks.Hook, Any]]]:
    """Hook the engine; returns the recorder and what each hooked name held before."""
    every = 1 if detail == c.DETAIL_FULL else Settings().sample_every
    settings = Settings(endpoint=endpoint, detail=detail, sample_every=every, queue=1_000_000)
    recorder = recorder_module.start(
        settings, role="scheduler", ranks=Ranks(), engine_name="bench", engine_version="0"
    )
    recorder.emit(
        EngineFacts(time.monotonic_ns(), "start", "bench", "bench", "0", True, {"vocab_size": 32_000})
    )
    engine_loaded = loaded(engine)
    requests = Requests(recorder, dp=0, emits=True)
    for req in engine.reqs:
        uid = request_uid(recorder.instance, 0, req.rid, 0)
        setattr(req, MARK, Live(uid))
        now = time.monotonic_ns(), time.time_ns()
        recorder.emit(
            RequestStarted(now[0], uid, req.rid, "user", now[1], 512, 0.0, 99, None, tuple(range(512)))
        )
    path = Path(recorder, engine_loaded, requests)
    wanted = [
        hook
        if hook.attribute != "eagle_sample"
        else hooks.Hook(engine.module, "eagle_sample", hook.parameters, (), hook.before, hook.after)
        for hook in algorithms.path_hooks(engine_loaded, path)
        if hook.attribute != "pack_aux_hidden_states"
    ]

    # As forward hooks of torch's modules do.
    def fc_ran(_token: Any, made: Any, _states: Any) -> None:
        path.fc_ran(made)

    def embedded(_token: Any, made: Any, _states: Any) -> None:
        path.embedded(made)

    wanted.append(
        hooks.Hook(
            engine.modules,
            "fc",
            ("states",),
            (),
            path.fc_begins,
            fc_ran,
        )
    )
    wanted.append(hooks.Hook(engine.modules, "embed", ("states",), (), after=embedded))
    before = [(hook, getattr(hook.owner, hook.attribute)) for hook in wanted]
    _, refused = install.install(wanted, recorder)
    if refused:
        sys.exit(f"the bench's engine is not built as SGLang is: {refused}")
    return recorder, before


def measure(endpoint: str, batch: int, nodes: int, size: str, detail: str, rounds: int, steps: int) -> str:
    engine = Engine(batch, nodes, size)
    recorder, before = start(endpoint, engine, detail)
    hooked = [(hook, getattr(hook.owner, hook.attribute)) for hook, _ in before]
    on: list[float] = []
    off: list[float] = []
    for number in range(rounds):
        for traced in (True, False) if number % 2 else (False, True):
            for hook, function in hooked if traced else before:
                setattr(hook.owner, hook.attribute, function)
            gc.collect()
            (on if traced else off).append(engine.run(steps) / steps / 1e3)
            recorder.queue.clear()  # one exporter cannot keep up with a loop that does nothing else
    pairs = [a - b for a, b in zip(on, off, strict=True)]
    error = statistics.stdev(pairs) / len(pairs) ** 0.5
    middle = statistics.median(pairs)
    failed = dict(recorder.hook_errors)
    recorder.close()
    if failed:
        sys.exit(f"hooks failed: {failed}")
    shape = f"chain of {STEPS}" if nodes == STEPS + 1 else f"tree of {nodes}"
    return (
        f"| {shape} | {batch} | {detail} | {size} | {middle:.1f} | {min(pairs):.1f} "
        f"| ±{2.8 * error:.1f} | {middle / batch:.2f} | {middle / 100:.2f} % |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="pairs of parts with and without hooks")
    parser.add_argument("--steps", type=int, default=200, help="engine steps in each part")
    parser.add_argument("--quick", action="store_true", help="detail steps on the host only")
    given = parser.parse_args()
    torch.set_num_threads(1)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(
        "| drafts | batch | detail | tensors | µs an engine step, median | least | detectable "
        "| µs a sequence-step "
        "| of a 10 ms step |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for nodes in (STEPS + 1, 16):
        for batch in (1, 8, 64, 256):
            print(measure(endpoint, batch, nodes, "small", "steps", given.rounds, given.steps), flush=True)
    if given.quick:
        return
    for detail in (c.DETAIL_SUMMARY, c.DETAIL_TOKENS, c.DETAIL_FULL):
        print(measure(endpoint, 64, STEPS + 1, "small", detail, given.rounds, given.steps), flush=True)
    for batch in (1, 8, 64):
        print(
            measure(endpoint, batch, STEPS + 1, "cpu", "steps", given.rounds, max(16, given.steps // 5)),
            flush=True,
        )


if __name__ == "__main__":
    main()

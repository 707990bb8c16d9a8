"""Unmodified SGLang on the CPU with the tiny pair, and requests to it.

Standard library only. The launch options are those of engines/sglang-cpu/README.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.services import Service, fetch, free_port
from scripts.system import ROOT, SetupError, say

TINY = ROOT / "models" / "tiny"
ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",  # without it the first decode compiles C++ for 16 s
}
START_LIMIT_SECONDS = 600.0
"""16 s on an idle machine, 60 s on a busy one; 272 s seen where nine programs shared each core."""
ANSWER_LIMIT_SECONDS = 120.0
MEMORY_BYTES = 1_600_000_000
"""What one engine takes."""
IN_FLIGHT = 4
"""Requests at a time: half of --max-running-requests, so that batches differ in size."""


@dataclass(frozen=True)
class Prompt:
    """One prompt of models/tiny/prompts.json and the answer that any sound engine gives."""

    name: str
    domain: str
    ids: tuple[int, ...]
    reference: tuple[int, ...]


@dataclass(frozen=True)
class Answer:
    """What SGLang returned for one prompt, with its own counts of the speculation."""

    prompt: Prompt
    ids: tuple[int, ...]
    verify_steps: int

    @property
    def as_expected(self) -> bool:
        """Whether the text is the target's own: speculation must never change it."""
        return self.ids == self.prompt.reference


def read_prompts(path: Path = TINY / "prompts.json") -> list[Prompt]:
    """The tiny pair's prompts, domains in turn."""
    return [
        Prompt(entry["id"], entry["domain"], tuple(entry["prompt"]), tuple(entry["reference"]))
        for entry in json.loads(path.read_text(encoding="utf-8"))
    ]


def command(python: Path, draft: Path, port: int, options: Sequence[str] = ()) -> list[str]:
    """SGLang's command line for the tiny target with `draft`: an EAGLE-3 chain, four deep."""
    return [
        *(str(python), "-m", "sglang.launch_server", "--device", "cpu", "--dtype", "float32"),
        *("--model-path", str(TINY / "target"), "--host", "127.0.0.1", "--port", str(port)),
        *("--max-total-tokens", "8192", "--max-running-requests", "8", "--context-length", "1024"),
        *("--mem-fraction-static", "0.3", "--enable-metrics", "--sleep-on-idle"),
        *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(draft)),
        *("--speculative-num-steps", "4", "--speculative-eagle-topk", "1"),
        *("--speculative-num-draft-tokens", "5", *options),
    ]


class Engine(Service):
    """A running SGLang that reports to SpecScope as `name`."""

    def __init__(self, name: str, python: Path, draft: Path, endpoint: str, log: Path) -> None:
        """Start it; `ready` waits for it. Raises SetupError when it cannot be started."""
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        environment = {
            **ENVIRONMENT,
            "SPECSCOPE_ENDPOINT": endpoint,
            "SPECSCOPE_DETAIL": "full",
            "SPECSCOPE_NAME": name,
        }
        super().__init__(f"SGLang ({name})", command(python, draft, port), log, environment)
        self._round = 0
        self._instance = name

    def ready(self) -> None:
        """Wait until SGLang answers. Raises SetupError when it ends or takes too long."""
        self.wait_for(f"{self.url}/health", START_LIMIT_SECONDS)

    def send(self, prompts: Sequence[Prompt], quietly: bool = False) -> list[Answer]:
        """Send `prompts`, four at a time, and return the answers in their order.

        Raises SetupError when SGLang has ended or refuses one.
        """
        self._round += 1
        answers: list[Answer] = []
        pool = ThreadPoolExecutor(IN_FLIGHT)
        try:
            for answer in pool.map(self._ask, prompts):
                answers.append(answer)
                if not quietly and (len(answers) % 15 == 0 or len(answers) == len(prompts)):
                    say(f"  {len(answers)} of {len(prompts)} prompts answered")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # on Ctrl-C: do not send the rest first
        return answers

    def _ask(self, prompt: Prompt) -> Answer:
        body = {
            # No "_" in it: SGLang 0.5.23's own traces keep only what follows the last one.
            "rid": f"{self._instance}-{prompt.name}-{self._round}",
            "input_ids": prompt.ids,
            "sampling_params": {
                "temperature": 0,
                "max_new_tokens": len(prompt.reference),
                "ignore_eos": True,
            },
        }
        try:
            answer: dict[str, Any] = fetch(f"{self.url}/generate", body, ANSWER_LIMIT_SECONDS)
        except OSError as error:
            self.require_alive()
            raise SetupError(
                f"{self.name} did not answer prompt {prompt.name}: {error}; see {self.log}"
            ) from error
        return Answer(prompt, tuple(answer["output_ids"]), answer["meta_info"].get("spec_verify_ct", 0))

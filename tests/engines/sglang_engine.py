"""A real SGLang server with the tiny models, started as its users start it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
from tiny_prompts import TINY

ROOT = Path(__file__).resolve().parents[2]
PYTHON_VARIABLE = "SPECSCOPE_SGLANG_PYTHON"
READY = "The server is fired up and ready to roll!"
START_S = 900.0
"""An idle machine takes 20 s; with 16 other busy processes on two cores it took 5 minutes."""

CHAIN = (
    "--speculative-num-steps",
    "4",
    "--speculative-eagle-topk",
    "1",
    "--speculative-num-draft-tokens",
    "5",
)
TREE = (
    "--speculative-num-steps",
    "4",
    "--speculative-eagle-topk",
    "4",
    "--speculative-num-draft-tokens",
    "16",
)


def sglang_python() -> Path:
    """The interpreter of the environment that has SGLang; the test fails where there is none."""
    given = os.environ.get(PYTHON_VARIABLE)
    python = Path(given) if given else ROOT / ".envs" / "sglang" / "bin" / "python"
    if not python.is_file():
        pytest.fail(f"{python} does not exist: run `python3 -m scripts.sglang_env`, or set {PYTHON_VARIABLE}")
    return python


def speculation(shape: tuple[str, ...], draft: Path = TINY / "draft") -> list[str]:
    """Arguments that switch EAGLE-3 on."""
    return ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(draft), *shape]


def free_port() -> int:
    """A port that nothing has now and no connection gets: Linux gives those ports from 32768 on.

    The engine takes it only when it has loaded, and other tests connect meanwhile.
    """
    while True:
        port = secrets.choice(range(20_000, 32_000))  # other tests seed `random`
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """One server from start to end; ``environment`` is added to a clean one."""

    def __init__(self, folder: Path, arguments: list[str], environment: dict[str, str]) -> None:
        self._log = folder / "sglang.log"
        self._log.touch()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SPECSCOPE_", "OTEL_", "SGLANG_", "PYTHON"))
        }
        command = [
            str(sglang_python()), "-m", "sglang.launch_server", "--device", "cpu", "--dtype", "float32",
            "--model-path", str(TINY / "target"), "--host", "127.0.0.1", "--port", str(port),
            "--max-total-tokens", "8192", "--max-running-requests", "8", "--context-length", "1024",
            "--chunked-prefill-size", "64", "--mem-fraction-static", "0.3", "--sleep-on-idle", *arguments,
        ]  # fmt: skip
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=clean
                | {
                    "SGLANG_USE_CPU_ENGINE": "1",
                    "HF_HUB_OFFLINE": "1",
                    "OMP_NUM_THREADS": "1",
                    "TORCHDYNAMO_DISABLE": "1",
                    # Its end would take 5 s more: it waits before it dumps the stacks of processes that
                    # a signal to all of them has ended (managers/tokenizer_manager.py:3485).
                    "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
                    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
                }
                | environment,
            )

    def __enter__(self) -> Self:
        deadline = time.monotonic() + START_S
        while READY not in self.log:
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(line[:200] for line in self.log.splitlines()[-40:])
                self._end()
                raise AssertionError(f"SGLang did not start:\n{tail}")
            time.sleep(0.5)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        """SGLang's children are in its session: end all of them, which nobody else started."""
        for sent in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, sent)
            except ProcessLookupError:
                break
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                continue
        self._process.wait()

    @property
    def pid(self) -> int:
        """The main process; its children are in its session."""
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def ours(self) -> list[str]:
        """The log lines of the tracer, without their time stamp."""
        return [line[line.index("specscope:") :] for line in self.log.splitlines() if "specscope:" in line]

    def post(
        self,
        path: str,
        body: dict[str, Any],
        timeout: float = 120.0,
        more: dict[str, str] | None = None,
    ) -> Any:
        """``more`` are further headers."""
        headers = {"content-type": "application/json"} | (more or {})
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            text = answer.read()
        return json.loads(text) if text.strip() else None

    def get(self, path: str) -> int:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            answer.read()
            return answer.status

    def settle(self) -> None:
        """Return when no request is left in the scheduler, which answers before it has let go of one.

        Empties the prefix cache. An update of weights is refused, and a release of memory ends the
        scheduler, while one is left.
        """
        assert self.get("/flush_cache?timeout=60") == 200

    def generate(self, rid: str, prompt: list[int], new_tokens: int = 48, **sampling: Any) -> dict[str, Any]:
        """One greedy request that goes on to ``new_tokens``, whatever it generates."""
        settings = {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True} | sampling
        return self.post("/generate", {"rid": rid, "input_ids": prompt, "sampling_params": settings})

    def generate_all(
        self, prompts: dict[str, list[int]], at_once: int, new_tokens: int = 48
    ) -> dict[str, dict[str, Any]]:
        """The same for many, at most ``at_once`` at a time; keys are rids."""
        tokens = [new_tokens] * len(prompts)
        with ThreadPoolExecutor(at_once) as pool:
            return dict(zip(prompts, pool.map(self.generate, prompts, prompts.values(), tokens), strict=True))

    def abort_running(self, rid: str, prompt: list[int]) -> None:
        """Start a long request, and abort it when its first token has come."""
        body = {
            "rid": rid,
            "input_ids": prompt,
            "stream": True,
            "sampling_params": {"temperature": 0, "max_new_tokens": 900, "ignore_eos": True},
        }
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.url + "/generate", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.readline()
            self.post("/abort_request", {"rid": rid})
            answer.read()

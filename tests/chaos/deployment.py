"""One deployment under chaos: SGLang with a planted plugin, a gate, a receiver and a SpecScope server."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from gate import Gate
from otlp_receiver import Receiver
from serverkit.live import Live, serving
from sglang_engine import CHAIN, Server, speculation
from sglang_runs import REFERENCES
from tiny_prompts import references

PLUGIN = Path(__file__).with_name("planted_chaos.py")
SCHEDULER = "sglang::schedul"
"""What a scheduler calls itself; the kernel keeps 15 characters of it."""
END_S = 120.0
"""A deployment that was told or made to end takes seconds; on a loaded machine some more."""


@dataclass(frozen=True)
class Process:
    """One process of the machine as ``/proc`` shows it."""

    pid: int
    name: str
    session: int

    @property
    def resident_mib(self) -> float:
        """Its resident memory now."""
        return self._status("VmRSS:")

    @property
    def peak_mib(self) -> float:
        """The most that it ever had."""
        return self._status("VmHWM:")

    def _status(self, field: str) -> float:
        text = Path(f"/proc/{self.pid}/status").read_text("utf-8")
        return int(text.partition(field)[2].split()[0]) / 1024


def processes() -> list[Process]:
    """Every process that runs; those that only wait to be reaped are over."""
    found: list[Process] = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            head, _, rest = (place / "stat").read_text("utf-8", "replace").rpartition(")")
            fields = rest.split()
            if fields[0] not in "ZX":
                found.append(Process(int(place.name), head.partition("(")[2], int(fields[3])))
    return found


def eventually(condition: Callable[[], Any], what: str, seconds: float = END_S) -> Any:
    """Wait until ``condition`` is true and return it; only a fault takes ``seconds``."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)
    return found


@dataclass
class Deployment:
    """A running deployment."""

    engine: Server
    gate: Gate
    receiver: Receiver
    server: Live

    @property
    def members(self) -> list[Process]:
        """The engine's processes."""
        return [one for one in processes() if one.session == self.engine.pid]

    @property
    def scheduler(self) -> Process:
        return next(one for one in self.members if one.name == SCHEDULER)

    @property
    def exporters(self) -> list[Process]:
        """The exporter processes that send to our gate."""
        return [one for one in processes() if self._exports(one)]

    @property
    def exporter(self) -> Process:
        return eventually(lambda: self.exporters, "an exporter runs")[0]

    def _exports(self, one: Process) -> bool:
        with suppress(OSError):
            line = Path(f"/proc/{one.pid}/cmdline").read_bytes()
            environment = Path(f"/proc/{one.pid}/environ").read_bytes()
            return b"specscope.exporter" in line and self.gate.endpoint.encode() + b"\0" in environment
        return False

    def ask(self, name: str) -> list[str]:
        """Ask two references of each domain, eight at a time; the tokens must be what they are untraced."""
        prompts = {f"{name}-{number}": REFERENCES[f"ref-{number}"] for number in (0, 1, 6, 7, 12, 13)}
        answers = self.engine.generate_all(prompts, 8)
        for rid, answer in answers.items():
            one = references()[int(rid.rpartition("-")[2])]
            assert answer["output_ids"] == one.continuation, f"{rid} got other tokens"
            assert answer["meta_info"]["spec_num_correct_drafts"] == sum(one.accepted)
        return list(prompts)

    def arming(self) -> dict[tuple[str, str], str]:
        """The state of the hooks as the API gives it, by boundary and source."""
        (engine,) = self.server.get("/api/v1/engines")["items"]
        return {(line["boundary"], line["source"]): line["arming"] for line in engine["ledger"]}

    def page(self) -> str:
        """The engine's page."""
        (engine,) = self.server.get("/api/v1/engines")["items"]
        answer = self.server.client.get(f"/engines/{engine['engine_uid']}")
        assert answer.status_code == 200
        return answer.text

    @contextmanager
    def busy(self) -> Generator[None]:
        """Keep one long request under way; how it ends does not matter here, but it must end."""

        began = threading.Event()
        body = {
            "rid": "under-way",
            "input_ids": references()[0].prompt,
            "stream": True,
            "sampling_params": {"temperature": 0, "max_new_tokens": 900, "ignore_eos": True},
        }
        request = urllib.request.Request(
            self.engine.url + "/generate", json.dumps(body).encode(), {"content-type": "application/json"}
        )

        def long() -> None:
            with (
                suppress(urllib.error.URLError, HTTPException, OSError),
                urllib.request.urlopen(request, timeout=END_S) as answer,
            ):
                answer.readline()
                began.set()
                answer.read()

        thread = threading.Thread(target=long)
        thread.start()
        assert began.wait(END_S), "the first token of the long request"
        try:
            yield
        finally:
            thread.join(END_S)
            assert not thread.is_alive(), "a request hangs"

    def end(self, pid: int, number: signal.Signals) -> None:
        """Send a signal; every process of the engine must be gone, and then its exporter."""
        members = {one.pid for one in self.members}
        exporters = {one.pid for one in self.exporters}
        assert exporters
        os.kill(pid, number)
        gone = f"what {number.name} to {pid} left of"
        eventually(lambda: not members & {one.pid for one in self.members}, f"{gone} the engine")
        eventually(lambda: not exporters & {one.pid for one in self.exporters}, f"{gone} its exporter")


@contextmanager
def deployed(folder: Path, chaos: str, **environment: str) -> Generator[Deployment]:
    """Start a deployment whose engine loads the planted plugin with ``chaos``."""
    info = folder / "planted_chaos-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted_chaos\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nplanted_chaos = planted_chaos:register\n")
    (folder / PLUGIN.name).write_text(PLUGIN.read_text("utf-8"), "utf-8")
    receiver = Receiver()
    with serving(f"sqlite:///{folder / 'specscope.db'}") as server:
        gate = Gate([receiver.endpoint, server.url])
        settings = {
            "SPECSCOPE_ENDPOINT": gate.endpoint,
            "SPECSCOPE_DETAIL": "tokens",
            "PYTHONPATH": str(folder),
            "CHAOS": chaos,
        }
        try:
            with Server(folder, speculation(CHAIN), settings | environment) as engine:
                yield Deployment(engine, gate, receiver, server)
        finally:
            gate.close()
            receiver.close()

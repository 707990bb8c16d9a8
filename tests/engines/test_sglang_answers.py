"""Ways of nothing happening, told apart on real engines: one answer each, with its evidence.

*Draft silent, no speculative request, only health checks, no drafts at this batch, speculation off, hook not
installed or engine changed, records dropped, shut down, tracer silent* (architecture, "Absence is data").
"""

from __future__ import annotations

import html
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from live_answers import WAIT_S, plant, settled, specscope, traced, until
from serverkit.live import Live
from sglang_engine import CHAIN, Server, speculation
from tiny_prompts import references

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]

NO_WARMUP = "--skip-server-warmup"


def ask(server: Server, count: int, *, new_tokens: int = 48) -> None:
    """Ask for some references; their continuations must be as they should."""
    for number in range(count):
        one = references()[number % len(references())]
        answer = server.generate(f"asked-{new_tokens}-{number}", one.prompt, new_tokens)
        assert answer["output_ids"] == one.continuation[:new_tokens]


def says(live: Live, word: str, *evidence: str) -> dict[str, Any]:
    """Wait for the one answer, in the API and on the page; ``evidence`` are parts of its reason."""

    def answered(shown: dict[str, Any]) -> bool:
        return shown["state"] == word and all(part in shown["state_reason"] for part in evidence)

    shown = until(live, f"{word}: {evidence}", answered)
    for path in ("/", f"/engines/{shown['engine_uid']}"):
        page = html.unescape(live.client.get(path).text)
        assert word in page, path
        assert path == "/" or all(part in page for part in evidence)
    return shown


def test_each_silence_of_one_engine_has_its_own_answer(tmp_path: Path) -> None:
    with (
        specscope(tmp_path) as live,
        Server(tmp_path, [*speculation(CHAIN), *none_from(4, tmp_path), NO_WARMUP], traced(live)) as server,
    ):
        shown = says(live, "idle", "The tracer is alive and no request arrived", "which is not health")
        assert (shown["requests"], shown["counts"], shown["acceptance_rate"]) == ({}, None, None)

        for _ in range(3):
            assert server.get("/health_generate") == 200
        settled(live, health_check=3)
        shown = says(live, "health checks only", "No user's request arrived", "only 3 health checks")
        assert shown["requests"] == {"health_check": 3}
        assert (shown["counts"], shown["findings"]) == (None, [])
        assert "zero_acceptance" in shown["unknown"]

        ask(server, 3, new_tokens=1)
        settled(live, health_check=3, user=3)
        shown = says(live, "too little data", "No speculative request arrived", "3 were served")
        assert shown["requests"] == {"health_check": 3, "user": 3}
        assert shown["counts"] is None

        ask(server, 8)
        settled(live, health_check=3, user=11)
        shown = says(live, "healthy", "The draft helps: acceptance length", "every boundary")
        assert (shown["findings"], shown["reconciliation"]["differing"]) == ([], 0)

        shown = drafts_nothing(live, server)
        assert shown["findings"] == [], "what the engine is set to is no fault"
        says(live, "healthy", "drafted nothing because the engine is set so", "from 4 requests at once on")

        os.kill(server.pid, signal.SIGTERM)
        says(live, "ended", "The engine was shut down in order", "its tracer said so")


def none_from(requests: int, folder: Path) -> list[str]:
    """Let the engine draft nothing where so many requests are served at once."""
    table = folder / "steps.json"
    table.write_text(json.dumps({"1": {"candidate_steps": [4]}, str(requests): {"candidate_steps": [0]}}))
    # On a CPU there is no graph; SGLang 0.5.23 tries to capture one for each number of steps.
    adaptive = ["--speculative-adaptive", "--speculative-adaptive-config", str(table)]
    return [*adaptive, "--disable-cuda-graph"]


def drafts_nothing(live: Live, server: Server) -> dict[str, Any]:
    """Serve eight at once until the last ten seconds hold little else; the engine as judged by these."""
    deadline = time.monotonic() + WAIT_S
    prompts = [one.prompt for one in references()[:8]]
    shown: dict[str, Any] = {}
    for turn in range(1000):
        server.generate_all({f"full-{turn}-{n}": prompt for n, prompt in enumerate(prompts)}, 8, 400)
        (shown,) = live.get("/api/v1/engines", judge_s=10)["items"]
        if shown["state"] == "not drafting":
            break
        assert time.monotonic() < deadline, (shown["state"], shown["state_reason"])
    assert "has none from 4 requests at once on" in shown["state_reason"]
    return shown


@pytest.mark.slow
def test_speculation_off_is_said_as_that(tmp_path: Path) -> None:
    with specscope(tmp_path) as live, Server(tmp_path, [], traced(live)) as server:
        ask(server, 2)
        settled(live, warmup=1, user=2)
        shown = says(live, "speculation off", "set to serve without a draft")
        assert shown["speculation"] is False
        assert set(shown["unknown"].values()) == {"speculation is off"}
        assert {line["reason"] for line in shown["ledger"] if not line["armed"]} == {"speculation is off"}
        assert not any(line["armed"] for line in shown["ledger"])


NEVER_DRAFTS = '''
"""An SGLang plugin of the tests: the engine decodes as if it had been told to draft nothing."""


def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(
        "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2.forward_batch_generation", skip, HookType.AROUND
    )


def skip(original, self, batch, *args, **kwargs):
    configured = self.speculative_num_steps, self.speculative_num_draft_tokens
    self.speculative_num_steps, self.speculative_num_draft_tokens = 0, 1
    try:
        return original(self, batch, *args, **kwargs)
    finally:
        self.speculative_num_steps, self.speculative_num_draft_tokens = configured
'''


def test_a_draft_that_never_runs_is_found_silent(tmp_path: Path) -> None:
    """F01: the draft is loaded and the engine set to draft, and it does not."""
    environment = {"PYTHONPATH": str(plant(tmp_path, "never_drafts", NEVER_DRAFTS))}
    environment["SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND"] = "1"
    with (
        specscope(tmp_path) as live,
        Server(tmp_path, speculation(CHAIN), traced(live, **environment)) as server,
    ):
        ask(server, 4)
        settled(live, warmup=1, user=4)
        shown = says(live, "faulty", "never proposes", "seen 0 times")
        (found, *others) = shown["findings"]
        assert (found["kind"], found["fault_class"]) == ("draft_silent", "F01")
        assert found["confidence"] == "certain"
        assert others == [] and "zero_acceptance" in shown["unknown"], "nothing drafted is undefined, not 0"
        assert found["boundary"] == "draft.propose"
        counts = shown["counts"]
        assert counts["undrafted_steps"] == counts["verify_steps"] > 0
        assert (counts["drafted_depth"], shown["acceptance_rate"]) == (0, None)

        os.killpg(server.pid, signal.SIGKILL)
        shown = says(live, "tracer silent", "Nothing was received from the tracer for", "no end was told")
        assert shown["requests"] == {"warmup": 1, "user": 4}


CHANGED = '''
"""An SGLang plugin of the tests: an engine version whose worker takes its batch under another name."""


def register():
    import sys

    if "sglang.srt.managers.scheduler" not in sys.modules:
        return
    from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

    original = EAGLEWorkerV2.forward_batch_generation

    def forward_batch_generation(self, *work, **more):
        return original(self, *work, **more)

    EAGLEWorkerV2.forward_batch_generation = forward_batch_generation
'''


@pytest.mark.slow
def test_an_engine_that_was_changed_is_not_observable_and_says_why(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(plant(tmp_path, "changed", CHANGED))}
    with (
        specscope(tmp_path) as live,
        Server(tmp_path, speculation(CHAIN), traced(live, **environment)) as server,
    ):
        ask(server, 4)
        settled(live, warmup=1, user=4)
        why = "EAGLEWorkerV2.forward_batch_generation has no parameter batch in this engine version"
        shown = says(live, "not observable", "hooks are not installed in this engine", why)
        assert {line["armed"] for line in shown["ledger"]} == {False}
        assert shown["findings"] == [], "what cannot be seen is no fault"
        told = shown["reconciliation"]
        # The engine's own counters say that it verified; without ours there is nothing to compare.
        assert (told["compared"], told["differing"]) == (0, 0)
        assert why in "; ".join(told["not_compared"])
        assert why in shown["unknown"]["totals_differ"]


@pytest.mark.slow
def test_a_tracer_that_lost_its_records_says_so(tmp_path: Path) -> None:
    """A queue of one: nearly every step is pushed out by the next record; the ledger is not."""
    with (
        specscope(tmp_path) as live,
        Server(tmp_path, speculation(CHAIN), traced(live, SPECSCOPE_QUEUE="1")) as server,
    ):
        ask(server, 8)
        ran = sum(len(one.accepted) for one in references()[:8])
        until(live, f"{ran} verify steps", lambda shown: verified(shown)["expected"] >= ran)
        shown = says(live, "not observable", "The tracer dropped", "verify steps got through")
        assert sum(process["dropped"]["queue_full"] for process in processes(live)) > 50
        assert shown["findings"] == [], "what was lost is no fault"
        assert shown["reconciliation"]["differing"] == 0
        verify = verified(shown)
        assert verify["expected"] == verify["observed"] > (shown["verify_steps"] or 0)


def verified(shown: dict[str, Any]) -> dict[str, Any]:
    """The line of the ledger that counts verify steps; zeros before there is one."""
    nothing = {"expected": 0, "observed": 0}
    return next((line for line in shown["ledger"] if line["boundary"] == "target.verify"), nothing)


def processes(live: Live) -> list[dict[str, Any]]:
    """The processes of the only engine."""
    (one,) = live.get("/api/v1/engines")["items"]
    return live.get(f"/api/v1/engines/{one['engine_uid']}")["processes"]

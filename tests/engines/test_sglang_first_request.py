"""The seed's fault is named by its first request: by the server itself, and to somebody who is called."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from live_answers import settled, specscope, traced, until
from serverkit.live import Live
from serverkit.receivers import Receiver
from sglang_engine import CHAIN, Server, speculation
from specscope import convention as c
from tiny_prompts import references

from scripts.variants import write_variant

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]

MAX_STEPS = 20
"""Verify steps within which the fault must be named: the product's promise."""
NEW_TOKENS = 16
"""A verify step gives at least one, so the request has fewer steps than :data:`MAX_STEPS`."""
PATIENCE_S = 120.0
"""Promised are 5 s from the request on; docs/benchmarks.md has what was measured. Here others run too."""


def test_the_seeds_fault_is_named_within_20_verify_steps_of_the_first_request(tmp_path: Path) -> None:
    draft = write_variant("seed-fault", tmp_path / "draft")
    with (
        Receiver() as receiver,
        specscope(tmp_path, judge_s=300.0, notify=(hook(receiver),)) as live,
        Server(tmp_path, [*speculation(CHAIN, draft), "--skip-server-warmup"], traced(live)) as server,
        ThreadPoolExecutor(1) as user,
    ):
        shown = until(live, "an engine without requests", lambda shown: shown["state"] == "idle")
        assert (shown["requests"], shown["findings"], receiver.got) == ({}, [], [])

        sent = time.monotonic()
        asked = user.submit(server.generate, "first", references()[0].prompt, NEW_TOKENS)
        body = notification(receiver, sent + PATIENCE_S)
        seconds = round(time.monotonic() - sent, 2)
        assert body is not None, f"nobody was called within {seconds} s: {receiver.got}"
        asked.result()

        assert (body["rule"], body["state"], body["severity"]) == ("silent_path", "firing", "critical")
        (named,) = body["findings"]
        assert (named["kind"], named["fault_class"]) == ("fc_bypassed", "F04")
        assert named["confidence"] == "certain"
        # The prefill feeds the draft as well, so it may be named before the first verify step.
        steps = verify_steps(evidence(live))
        said = f"named after {steps} verify steps and {seconds} s"
        print(said)  # for -rP
        assert steps <= MAX_STEPS, said
        shown = settled(live, user=1)
        assert shown["requests"] == {"user": 1}
        assert steps <= shown["verify_steps"] <= MAX_STEPS
        (stored,) = [one for one in live.get("/api/v1/findings")["items"] if one["kind"] == "fc_bypassed"]
        assert stored["engine_uid"] == shown["engine_uid"] == body["engine"]["uid"]


def hook(receiver: Receiver) -> str:
    return f"webhook+http://127.0.0.1:{receiver.port}/hook"


def notification(receiver: Receiver, deadline: float) -> dict[str, Any] | None:
    """Return the notification of the rule; ``None``: there was none by ``deadline``."""
    while receiver.arrived.acquire(timeout=max(0.0, deadline - time.monotonic())):
        for got in receiver.got:
            if got.body["rule"] == "silent_path":
                return got.body
    return None


def evidence(live: Live) -> dict[str, Any]:
    """Return what was known when the rule fired, as the history of alerts keeps it."""
    (event,) = [one for one in live.store.alert_history("default", 100) if one.rule == "silent_path"]
    kept = live.store.alert_event("default", event.id)
    assert kept is not None and event.state == "firing"
    return dict(kept.evidence)


def verify_steps(known: dict[str, Any]) -> int:
    return sum(line["expected"] for line in known["ledger"] if line["boundary"] == c.TARGET_VERIFY)

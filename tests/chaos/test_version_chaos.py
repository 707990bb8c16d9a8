"""An engine whose functions and attributes have other names than the version we know."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from deployment import deployed, eventually
from specscope import convention as c

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(2400)]

EXPECTED = {
    c.AUX_CAPTURE: c.ARMING_CHANGED,
    c.DRAFT_EXTEND: c.ARMING_MISSING,
    c.DRAFT_FC: c.ARMING_MISSING,
    c.DRAFT_FORWARD: c.ARMING_MISSING,
    c.DRAFT_MAP: c.ARMING_ARMED,
    c.DRAFT_PROPOSE: c.ARMING_ARMED,
    c.TARGET_VERIFY: c.ARMING_ARMED,
    c.ENGINE_COMMIT: c.ARMING_FAILED,
}


def test_another_version_is_traced_as_far_as_it_is_known(tmp_path: Path) -> None:
    with deployed(tmp_path, "other_version") as deployment:
        asked = deployment.ask("other")
        told = deployment.receiver.settled(asked)
        assert told.arming() == EXPECTED
        reasons = told.armed()
        assert reasons[c.DRAFT_EXTEND] == (
            "EagleDraftWorker._draft_extend_for_decode does not exist in this engine version"
        )
        assert reasons[c.AUX_CAPTURE].endswith(
            "pack_aux_hidden_states has no parameter aux_hidden_states in this engine version"
        )
        assert "num_correct_drafts_per_req_cpu" in reasons[c.ENGINE_COMMIT]
        # What is armed is counted right: one proposal and one verification a step of SGLang's own count.
        expected, observed = told.ledger()
        for boundary in (c.DRAFT_PROPOSE, c.TARGET_VERIFY):
            assert observed[boundary, "", c.EAGER] == expected[boundary, ""] > 0
        # What moved is not told at all: no step, no acceptance, and no gap either.
        assert not any(one.steps for one in told.requests.values())
        assert told.metric(c.METRIC_REQUESTS, kind="user") == len(asked)

        def heard() -> dict[tuple[str, str], str]:
            found = deployment.arming()
            return found if {name: state for (name, _), state in found.items()} == EXPECTED else {}

        told_by_line: dict[tuple[str, str], str] = eventually(heard, "the server has heard it")
        lines = Counter(told_by_line.values())
        page = deployment.page()
        for state in (c.ARMING_MISSING, c.ARMING_CHANGED, c.ARMING_FAILED):
            assert page.count(f"hook {state}") == lines[state] > 0
        (engine,) = deployment.server.get("/api/v1/engines")["items"]
        assert [finding["kind"] for finding in engine["findings"]] == []
        assert engine["acceptance_length"] is None
        with deployment.busy():
            deployment.end(deployment.scheduler.pid, signal.SIGTERM)

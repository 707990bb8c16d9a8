"""Hooks that fail from the start or at random, and engines that die under them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from deployment import deployed, eventually
from specscope import convention as c
from specscope.recorder import HOOK_ERRORS

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(2400)]


def test_every_hook_fails_from_the_start_and_the_scheduler_is_killed(tmp_path: Path) -> None:
    with deployed(tmp_path, "every_hook") as deployment:
        asked = deployment.ask("broken")
        armed = deployment.receiver.wait(
            "that all hooks are disarmed", lambda t: len(t.armed()) == 8 and all(t.armed().values())
        )
        for boundary, reason in armed.armed().items():
            assert reason.endswith("disarmed itself: RuntimeError: planted"), boundary
        assert set(armed.arming().values()) == {c.ARMING_FAILED}
        assert set(armed.metrics[c.METRIC_HOOK_ERRORS].values()) == {HOOK_ERRORS}
        # No number at all rather than a wrong one.
        assert not armed.requests and armed.metric(c.METRIC_REQUESTS) == 0
        assert armed.ledger() == ({}, {})
        eventually(
            lambda: set(deployment.arming().values()) == {c.ARMING_FAILED},
            "the server has heard it",
        )
        assert {boundary for boundary, _ in deployment.arming()} == set(c.BOUNDARIES)
        page = deployment.page()
        assert page.count("hook failed") == 8
        assert "Hooks failed" in page
        assert asked == deployment.ask("broken")
        deployment.end(deployment.scheduler.pid, signal.SIGKILL)


def test_everything_fails_at_random_and_the_server_is_killed(tmp_path: Path) -> None:
    with deployed(tmp_path, "at_random") as deployment:
        for number in range(6):
            deployment.ask(f"random-{number}")
        told = deployment.receiver.wait(
            "many errors", lambda t: t.metric(c.METRIC_HOOK_ERRORS) > 100 and bool(t.requests)
        )
        failing = {dict(labels)[c.LABEL_HOOK] for labels in told.metrics[c.METRIC_HOOK_ERRORS]}
        assert len(failing) >= 8, "many hooks failed"
        # What was told in spite of all is right: no step has more accepted than drafted or committed.
        steps = [step for one in told.requests.values() for step in one.steps]
        assert steps
        for step in steps:
            assert 0 <= step.accepted <= step.drafted_depth
            assert step.committed <= step.accepted + step.bonus
        with deployment.busy():
            deployment.end(deployment.engine.pid, signal.SIGKILL)

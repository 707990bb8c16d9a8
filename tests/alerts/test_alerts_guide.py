"""The guide is a contract: what a notification holds, and how often it is tried, stands there."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

from specscope_server.alerts.delivery import MAX_ATTEMPTS, RETRY_AFTER_S
from specscope_server.alerts.payload import payload
from specscope_server.alerts.rules import RULES
from specscope_server.alerts.transition import CLEAR_FOR, ENDED_FOR, SUSPECT_FOR
from specscope_server.diagnosis.model import Finding, Number, Ruled
from specscope_server.store.model import AlertRow

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "alerts.md").read_text(encoding="utf-8")


def test_every_key_of_a_notification_is_documented() -> None:
    now = datetime.now(UTC)
    told = payload(AlertRow("r", "t", "e", "n", "ok", "", now, now), "firing", "default", [], "")
    nested = [f.name for kind in (Finding, Number, Ruled) for f in fields(kind)]
    for name in (*told, *told["engine"], *nested):
        assert f"`{name}`" in GUIDE, name


def test_rules_and_their_findings_are_documented() -> None:
    for rule in RULES:
        for name in (rule.name, *rule.kinds):
            assert f"`{name}`" in GUIDE


def test_retries_and_durations_are_documented() -> None:
    *most, last = RETRY_AFTER_S
    assert f"{', '.join(map(str, most))} and {last} seconds" in GUIDE
    assert f"After {MAX_ATTEMPTS} attempts (about {sum(RETRY_AFTER_S) // 60} minutes)" in GUIDE
    assert {d.total_seconds() for d in (SUSPECT_FOR, CLEAR_FOR, ENDED_FOR)} == {60}

"""The guide is a contract: what a notification holds, and how often it is tried, stands there."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

from specscope_server.alerts.alertmanager import LASTS, REFRESH_S
from specscope_server.alerts.catalogue import BUILT_IN
from specscope_server.alerts.delivery import MAX_ATTEMPTS, RETRY_AFTER_S
from specscope_server.alerts.payload import payload
from specscope_server.alerts.rules import FIELDS, WATCHES, AlertRule
from specscope_server.diagnosis.model import Finding, Number, Ruled
from specscope_server.store.model import AlertRow

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "alerts.md").read_text(encoding="utf-8")


def test_every_key_of_a_notification_is_documented() -> None:
    now = datetime.now(UTC)
    row = AlertRow("r", "t", "e", "n", "ok", "", now, now)
    told = payload(row, previous="firing", workspace="default", findings=[], base_url="")
    nested = [f.name for kind in (Finding, Number, Ruled) for f in fields(kind)]
    for name in (*told, *told["engine"], *nested):
        assert f"`{name}`" in GUIDE, name


def test_rules_and_their_findings_are_documented() -> None:
    for rule in BUILT_IN:
        for name in (rule.name, *rule.kinds):
            assert f"`{name}`" in GUIDE, name
        assert rule.title in GUIDE, rule.title
    for word in (*FIELDS, *WATCHES):
        assert f"`{word}`" in GUIDE, word


def test_retries_and_durations_are_documented() -> None:
    *most, last = RETRY_AFTER_S
    assert f"{', '.join(map(str, most))} and {last} seconds" in GUIDE
    assert f"After {MAX_ATTEMPTS} attempts (about {sum(RETRY_AFTER_S) // 60} minutes)" in GUIDE
    usual = AlertRule("r", "R")
    assert f"| `suspected_for_s` | {usual.suspected_for_s:g} |" in GUIDE
    assert f"| `recovery_s` | {usual.recovery_s:g} |" in GUIDE
    assert f"every {REFRESH_S:g} s" in GUIDE
    assert f"{LASTS.total_seconds() / 60:g} minutes" in GUIDE

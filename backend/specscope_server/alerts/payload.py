"""What a notification says: one JSON object, documented in ``docs/guide/alerts.md``."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from specscope_server.alerts.rules import FIRING, OK
from specscope_server.diagnosis import Finding
from specscope_server.diagnosis.model import INFO
from specscope_server.store.model import AlertRow

VERSION: Final = 1


def payload(
    row: AlertRow,
    *,
    previous: str,
    workspace: str,
    findings: Sequence[Finding],
    base_url: str,
    consequences: Sequence[str] = (),
    reminder: bool = False,
) -> dict[str, Any]:
    """Return the notification of a state change, or a reminder of a firing that lasts.

    ``id`` depends on the change (or the reminder) alone, so that a repeated delivery carries the same one.
    ``consequences`` are titles of rules that fire for the same reason and are not told by themselves.
    """
    page = f"{base_url}/engines/{row.engine_uid}"
    parts = (workspace, row.engine_uid, row.rule, row.state, row.since.isoformat())
    if reminder and row.told_at is not None:
        parts = (*parts, row.told_at.isoformat())
    change = "\n".join(parts)
    return {
        "version": VERSION,
        "id": hashlib.sha256(change.encode()).hexdigest()[:32],
        "rule": row.rule,
        "title": row.title,
        "severity": row.severity,
        "state": row.state,
        "previous": previous,
        "reason": row.reason,
        "since": row.since.isoformat(),
        "workspace": workspace,
        "engine": {"uid": row.engine_uid, "name": row.engine, "url": page},
        "findings": [_finding(f, base_url) for f in findings],
        "consequences": list(consequences),
        "reminder": reminder,
        "test": False,
    }


def trial_payload(workspace: str, base_url: str, now: datetime) -> dict[str, Any]:
    """Return a notification that says of itself that it is a test, in the form of all others."""
    row = AlertRow(
        rule="test",
        title="Test",
        engine_uid="",
        engine="no engine",
        state=FIRING,
        reason="This is a test of SpecScope's notifications: nothing is wrong, and there is nothing to do.",
        since=now,
        evaluated=now,
        severity=INFO,
    )
    told = payload(row, previous=OK, workspace=workspace, findings=(), base_url=base_url)
    told["engine"]["url"] = f"{base_url}/alerts"
    return told | {"test": True}


def _finding(found: Finding, base_url: str) -> dict[str, Any]:
    told = asdict(found)
    for number in told["numbers"]:
        number["link"] = f"{base_url}{number['link']}" if number["link"] else ""
        number["value"], number["expected"] = _told(number["value"]), _told(number["expected"])
    return told


def _told(value: Any) -> Any:
    """Return a value as JSON has it: what is not finite as a text, as the API does."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def headline(body: dict[str, Any]) -> str:
    """Return the title of a notification for people."""
    if body.get("test"):
        return "SpecScope: a test, nothing is wrong"
    what = {FIRING: "firing", OK: "recovered"}.get(body["state"], "ended without recovery")
    if body.get("reminder"):
        what = "still firing"
    return f"SpecScope: {body['title']} {what} on {body['engine']['name']}"


def text(body: dict[str, Any]) -> str:
    """Return the body of a notification for people: reason, what to check and to fix, where to look."""
    parts = [str(body["reason"])]
    for found in body["findings"]:
        if found["sentence"] != body["reason"]:
            parts.append(f"{found['title']}: {found['sentence']}")
        parts.append(f"Next check: {found['next_check']}")
        parts.append(f"Fix: {found['fix']}")
    if body.get("consequences"):
        parts.append(f"Follows from it, and is not told by itself: {', '.join(body['consequences'])}")
    parts.append(f"See {body['engine']['url']}")
    return "\n\n".join(parts)

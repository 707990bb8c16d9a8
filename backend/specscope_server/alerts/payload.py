"""What a notification says: one JSON object, documented in ``docs/guide/alerts.md``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from specscope_server.alerts.rules import FIRING, OK
from specscope_server.diagnosis import Finding
from specscope_server.store.model import AlertRow

VERSION: Final = 1


def payload(
    row: AlertRow, previous: str, workspace: str, findings: Sequence[Finding], base_url: str
) -> dict[str, Any]:
    """Return the notification of a state change.

    ``id`` depends on the change alone, so that a repeated delivery carries the same one.
    """
    page = f"{base_url}/engines/{row.engine_uid}"
    change = "\n".join((workspace, row.engine_uid, row.rule, row.state, row.since.isoformat()))
    return {
        "version": VERSION,
        "id": hashlib.sha256(change.encode()).hexdigest()[:32],
        "rule": row.rule,
        "title": row.title,
        "state": row.state,
        "previous": previous,
        "reason": row.reason,
        "since": row.since.isoformat(),
        "workspace": workspace,
        "engine": {"uid": row.engine_uid, "name": row.engine, "url": page},
        "findings": [_finding(f, base_url) for f in findings],
    }


def _finding(found: Finding, base_url: str) -> dict[str, Any]:
    told = asdict(found)
    for number in told["numbers"]:
        number["link"] = f"{base_url}{number['link']}" if number["link"] else ""
    return told


def headline(body: dict[str, Any]) -> str:
    """Return the title of a notification for people."""
    what = {FIRING: "firing", OK: "recovered"}.get(body["state"], "ended without recovery")
    return f"SpecScope: {body['title']} {what} on {body['engine']['name']}"


def text(body: dict[str, Any]) -> str:
    """Return the body of a notification for people: reason, what to check and to fix, where to look."""
    parts = [str(body["reason"])]
    for found in body["findings"]:
        if found["sentence"] != body["reason"]:
            parts.append(f"{found['title']}: {found['sentence']}")
        parts.append(f"Next check: {found['next_check']}")
        parts.append(f"Fix: {found['fix']}")
    parts.append(f"See {body['engine']['url']}")
    return "\n\n".join(parts)

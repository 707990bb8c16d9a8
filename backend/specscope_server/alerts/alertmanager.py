"""Alerts for a Prometheus Alertmanager: its API v2, which wants what fires told again and again.

An alert that it does not hear of ends by itself. So every notification carries when it would, and what fires
is told anew each minute for as long as it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from specscope_server.alerts.payload import headline
from specscope_server.alerts.rules import FIRING
from specscope_server.store.model import AlertRow

PATH: Final = "/api/v2/alerts"
REFRESH_S: Final = 60.0
LASTS: Final = timedelta(minutes=5)
"""Until an Alertmanager takes a firing alert for ended: five refreshes."""


def url_of(base: str) -> str:
    """Return where alerts are posted, of the URL of an Alertmanager with or without the path of its API."""
    parts = urlsplit(base)
    path = parts.path.rstrip("/")
    return urlunsplit(parts._replace(path=path if path.endswith(PATH) else f"{path}{PATH}", fragment=""))


def of_notification(body: Mapping[str, Any], now: datetime) -> list[dict[str, Any]]:
    """Return a notification as the alerts that an Alertmanager takes."""
    found: list[dict[str, Any]] = list(body["findings"])
    annotations = {
        "summary": headline(dict(body)),
        "description": str(body["reason"]),
        "next_check": "\n".join(one["next_check"] for one in found if one["next_check"]),
        "fix": "\n".join(one["fix"] for one in found if one["fix"]),
        "consequences": ", ".join(body["consequences"]),
    }
    engine = body["engine"]
    return [
        _alert(
            _labels(body["rule"], body["severity"], body["workspace"], engine["uid"], engine["name"]),
            {name: text for name, text in annotations.items() if text},
            engine["url"],
            # A test lasts as long as it takes to arrive at a person, and ends by itself.
            starts=str(body["since"]),
            ends=now + LASTS if body["state"] == FIRING else now,
        )
    ]


def of_states(rows: Sequence[AlertRow], workspace: str, base_url: str, now: datetime) -> list[dict[str, Any]]:
    """Return what fires and was told, as told again.

    Also what was silenced since: that it is not heard of would be taken for its end.
    """
    return [
        _alert(
            _labels(row.rule, row.severity, workspace, row.engine_uid, row.engine),
            {"summary": f"SpecScope: {row.title} firing on {row.engine}", "description": row.reason}
            | ({"quiet": row.quiet} if row.quiet else {}),
            f"{base_url}/engines/{row.engine_uid}",
            starts=row.since.isoformat(),
            ends=now + LASTS,
        )
        for row in rows
        if row.state == FIRING and row.told == FIRING
    ]


def _labels(rule: str, severity: str, workspace: str, engine_uid: str, engine: str) -> dict[str, str]:
    told = {
        "alertname": f"specscope_{rule}",
        "rule": rule,
        "severity": severity,
        "workspace": workspace,
        "engine_uid": engine_uid,
        "engine": engine,
        "service": "specscope",
    }
    # An empty label is none, and an Alertmanager refuses some.
    return {name: text for name, text in told.items() if text}


def _alert(
    labels: dict[str, str], annotations: dict[str, str], page: str, *, starts: str, ends: datetime
) -> dict[str, Any]:
    return {
        "labels": labels,
        "annotations": annotations,
        "generatorURL": page,
        "startsAt": starts,
        "endsAt": ends.isoformat(),
    }

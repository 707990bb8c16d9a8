"""View model of the alerts page: rule states, what changed, what was sent, and all findings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from specscope_server.alerts.quiet import active
from specscope_server.alerts.rules import FIRING
from specscope_server.store.model import AlertEvent, AlertRow, DeliveryRow
from specscope_server.store.port import Reads
from specscope_server.web.engine_states import FindingView, finding_view

SHOWN: Final = 100
FAILED: Final = "failed"
TONES: Final = {"firing": "bad", "ok": "ok", "no data": "lost"}
DELIVERY_TONES: Final = {"delivered": "ok", "failed": "bad", "pending": "off"}


@dataclass(frozen=True, slots=True)
class AlertsPage:
    """The whole page: ``rules`` that fire or are about to, ``quiet`` ones, ``dead`` notifications."""

    rules: tuple[AlertRow, ...]
    quiet: tuple[AlertRow, ...]
    history: tuple[AlertEvent, ...]
    dead: tuple[DeliveryRow, ...]
    silences: int
    deliveries: tuple[DeliveryRow, ...]
    findings: tuple[FindingView, ...]
    tally: dict[str, int]
    tones: dict[str, str]
    delivery_tones: dict[str, str]


def build(store: Reads, workspace: str, now: datetime) -> AlertsPage:
    """Read the store and return the page."""
    rules = store.alerts(workspace)
    sent = store.deliveries(workspace, SHOWN)
    return AlertsPage(
        tuple(row for row in rules if row.state == FIRING or row.pending == FIRING),
        tuple(row for row in rules if row.state != FIRING and row.pending != FIRING),
        tuple(store.alert_history(workspace, SHOWN)),
        tuple(row for row in sent if row.status == FAILED),
        len(active(store.silences(workspace), now)),
        tuple(row for row in sent if row.status != FAILED),
        tuple(finding_view(f) for f in store.findings(workspace, active=False)),
        dict(Counter(rule.state for rule in rules)),
        TONES,
        DELIVERY_TONES,
    )

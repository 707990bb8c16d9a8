"""View model of the alerts page: rule states, what changed, what was sent, and all findings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from specscope_server.store.model import AlertRow, DeliveryRow
from specscope_server.store.port import Reads
from specscope_server.web.engine_states import FindingView, finding_view

SHOWN: Final = 100
TONES: Final = {"firing": "bad", "ok": "ok", "no data": "lost"}
DELIVERY_TONES: Final = {"delivered": "ok", "failed": "bad", "pending": "off"}


@dataclass(frozen=True, slots=True)
class AlertsPage:
    """The whole page."""

    rules: tuple[AlertRow, ...]
    history: tuple[AlertRow, ...]
    deliveries: tuple[DeliveryRow, ...]
    findings: tuple[FindingView, ...]
    tally: dict[str, int]
    tones: dict[str, str]
    delivery_tones: dict[str, str]


def build(store: Reads, workspace: str) -> AlertsPage:
    """Read the store and return the page."""
    rules = store.alerts(workspace)
    return AlertsPage(
        tuple(rules),
        tuple(store.alert_history(workspace, SHOWN)),
        tuple(store.deliveries(workspace, SHOWN)),
        tuple(finding_view(f) for f in store.findings(workspace, active=False)),
        dict(Counter(rule.state for rule in rules)),
        TONES,
        DELIVERY_TONES,
    )

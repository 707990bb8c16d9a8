"""What an evaluation reads once a workspace: rules, silences, states, and the engines rules choose from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from specscope_server.alerts.catalogue import effective
from specscope_server.alerts.judge import Setting
from specscope_server.alerts.quiet import active
from specscope_server.store.model import AlertRow, AlertSubject
from specscope_server.store.port import Store

DEFAULT_WINDOW_S: Final = 300.0
"""Window of a rule that names no other: it is that of the state on pages, whatever the server judges by."""


class Settings:
    """Of one evaluation; each workspace is read once."""

    def __init__(self, store: Store, labels: Sequence[str], base_url: str, now: datetime) -> None:
        """Read from ``store`` as of ``now``; ``labels`` are the addresses, ``base_url`` precedes links."""
        self._store, self._labels, self._base_url, self._now = store, tuple(labels), base_url, now
        self._subjects: dict[str, dict[str, AlertSubject]] = {}

    def of(self, workspace: str) -> Setting:
        """Return what holds in a workspace now."""
        with self._store.snapshot() as reads:
            rules = effective(reads.alert_rules(workspace))
            silences = tuple(active(reads.silences(workspace), self._now))
            self._subjects[workspace] = {one.engine_uid: one for one in reads.alert_subjects(workspace)}
        return Setting(rules, silences, self._labels, self._base_url)

    def states(self, workspace: str, engines: Sequence[str]) -> dict[str, dict[str, AlertRow]]:
        """Return stored states of some engines by engine and rule."""
        found: dict[str, dict[str, AlertRow]] = {}
        for row in self._store.alerts(workspace, engines) if engines else ():
            found.setdefault(row.engine_uid, {})[row.rule] = row
        return found

    def subject(self, workspace: str, engine_uid: str, name: str) -> AlertSubject:
        """Return an engine as rules choose it; one that was first heard just now by its name alone."""
        known = self._subjects.get(workspace, {}).get(engine_uid)
        return known or AlertSubject(workspace, engine_uid, name, "", "", None)

    def gone(self, workspace: str, row: AlertRow) -> AlertSubject:
        """Return an engine that has not been heard for long, from a state of it."""
        return AlertSubject(workspace, row.engine_uid, row.engine, "", "", None)

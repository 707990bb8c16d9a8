"""View models of the pages of rules, silences, single alerts and changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from specscope_server.alerts.catalogue import BUILT_IN, built_in, effective
from specscope_server.alerts.rules import SEVERITIES, WATCHES, AlertRule
from specscope_server.alerts.silencing import SilenceError
from specscope_server.diagnosis import registry
from specscope_server.store.model import AlertEvent, AlertRow, DeliveryRow, RuleRow, SilenceRow
from specscope_server.store.port import Reads
from specscope_server.web.alerts import DELIVERY_TONES, SHOWN, TONES

NUMBERS: Final[Mapping[str, tuple[str, str]]] = {
    "window_s": ("Window (s)", "seconds of evidence that it looks at"),
    "min_steps": ("Least verify steps", "with fewer in the window there is no data"),
    "for_s": ("For (s)", "must hold so long to fire"),
    "suspected_for_s": ("For, if only suspected (s)", "where nothing of it is certain or tested"),
    "recovery_s": ("Recovery (s)", "must be excluded so long to end"),
    "threshold": ("Threshold", "ingest lag: seconds; tracer dropping: records a window"),
    "repeat_s": ("Remind every (s)", "0: once is enough"),
}
"""Number fields of a rule: label and what it is."""
TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "engine": ("Engines", "name or uid, * and ? match; empty: all"),
    "model": ("Models", "likewise"),
    "environment": ("Environments", "likewise"),
}
HOURS: Final = (1, 4, 12, 24, 72, 168)


@dataclass(frozen=True, slots=True)
class RuleLine:
    """One rule of the list."""

    rule: AlertRule
    built_in: bool
    changed: bool


def rules(stored: Sequence[RuleRow]) -> list[RuleLine]:
    """Return the page of all rules."""
    names = {row.name for row in stored}
    return [RuleLine(rule, built_in(rule.name) is not None, rule.name in names) for rule in effective(stored)]


@dataclass(frozen=True, slots=True)
class RulePage:
    """The form of one rule."""

    rule: AlertRule
    built_in: bool
    changed: bool
    said: str
    error: str
    kinds: tuple[str, ...]
    watches: tuple[str, ...] = WATCHES
    severities: tuple[str, ...] = SEVERITIES

    @property
    def numbers(self) -> Mapping[str, tuple[str, str]]:
        """Return the number fields: label and what each is."""
        return NUMBERS

    @property
    def texts(self) -> Mapping[str, tuple[str, str]]:
        """Return the patterns: label and what each is."""
        return TEXTS

    def number(self, name: str) -> str:
        """Return the value of a number field."""
        return f"{getattr(self.rule, name):g}"


def rule(found: AlertRule, stored: Sequence[RuleRow], said: str, error: str = "") -> RulePage:
    """Return the page of a rule; ``error`` is why it was not saved."""
    named = (kind for one in BUILT_IN for kind in one.kinds)
    kinds = dict.fromkeys((*(one.kind for one in registry.RULES), *named, *found.kinds))
    known = any(row.name == found.name for row in stored)
    text = "Saved. It holds from the next evaluation on." if said == "saved" else ""
    return RulePage(found, built_in(found.name) is not None, known, text, error, tuple(kinds))


def rule_fields(form: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the fields of a rule's form, as far as they are numbers where they must be."""
    told: dict[str, Any] = {
        name: form[name][0] for name in ("title", "severity", "watches", *TEXTS) if name in form
    }
    for name in NUMBERS:
        if name in form:
            told[name] = _number(form[name][0])
    if told.get("watches") == WATCHES[0]:
        told["kinds"] = form.get("kinds", [])
    elif "watches" in told:
        told["kinds"] = []
    # A box that is not ticked is not sent.
    return told | {name: name in form for name in ("enabled", "certain_only")}


def _number(text: str) -> float | str:
    try:
        found = float(text)
    except ValueError:
        return text
    return int(found) if math.isfinite(found) and found == int(found) else found


@dataclass(frozen=True, slots=True)
class SilencesPage:
    """Silences that hold or are over, and the form of a new one as it was asked for."""

    now: tuple[SilenceRow, ...]
    over: tuple[SilenceRow, ...]
    asked: Mapping[str, str]
    error: str
    hours: tuple[int, ...] = HOURS


def silences(
    stored: Sequence[SilenceRow], now: datetime, asked: Mapping[str, str], error: str = ""
) -> SilencesPage:
    """Return the page of silences."""
    given = {name: asked.get(name, "") for name in ("rule", "engine", "hours", "author", "comment")}
    return SilencesPage(
        tuple(one for one in stored if one.ends > now),
        tuple(one for one in stored if one.ends <= now)[:SHOWN],
        given,
        error,
    )


def hours(text: str) -> float:
    """Return the length of a silence.

    Raises:
        SilenceError: it is no number over 0.
    """
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 24 * 366:
        raise SilenceError("hours: a number over 0, and at most 8784 (a year)")
    return found


@dataclass(frozen=True, slots=True)
class AlertPage:
    """One rule on one engine, what became of it and who was told."""

    row: AlertRow
    changes: tuple[AlertEvent, ...]
    deliveries: tuple[DeliveryRow, ...]
    rule_known: bool
    tones: Mapping[str, str]
    delivery_tones: Mapping[str, str]


def one(reads: Reads, workspace: str, engine_uid: str, rule_name: str) -> AlertPage | None:
    """Return the page of a rule on an engine, ``None`` where it never was evaluated."""
    row = next(
        (a for a in reads.alerts(workspace) if (a.engine_uid, a.rule) == (engine_uid, rule_name)), None
    )
    if row is None:
        return None
    mine = (engine_uid, rule_name)
    changes = (c for c in reads.alert_history(workspace, 1000) if (c.engine_uid, c.rule) == mine)
    sent = (d for d in reads.deliveries(workspace, 1000) if (d.engine_uid, d.rule) == mine)
    known = any(found.name == rule_name for found in effective(reads.alert_rules(workspace)))
    return AlertPage(row, tuple(changes)[:SHOWN], tuple(sent)[:SHOWN], known, TONES, DELIVERY_TONES)


@dataclass(frozen=True, slots=True)
class ChangePage:
    """One change with its frozen evidence; ``numbers`` are those around the findings."""

    event: AlertEvent
    numbers: tuple[tuple[str, str], ...]
    findings: tuple[Mapping[str, Any], ...]
    ledger: tuple[Mapping[str, Any], ...]
    unknown: Mapping[str, str]
    others: tuple[str, ...]
    tones: Mapping[str, str]


def change(event: AlertEvent) -> ChangePage:
    """Return the page of a change."""
    told = event.evidence
    length = told.get("acceptance_length")
    shown = (
        ("State of the engine", told.get("state", "")),
        ("Window", f"{told['window_s']:g} s" if "window_s" in told else ""),
        ("Verify steps", "not told" if told.get("verify_steps") is None else f"{told['verify_steps']:,}"),
        ("Acceptance length", "undefined" if length is None else f"{length:.2f}"),
    )
    return ChangePage(
        event,
        tuple((name, text) for name, text in shown if text) if told else (),
        tuple(told.get("findings", ())),
        tuple(told.get("ledger", ())),
        told.get("unknown", {}),
        tuple(told.get("others", ())),
        TONES,
    )

"""All rules on one engine: readings, next states, who is told; pure but for the clock it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from specscope_server.alerts.frozen import frozen
from specscope_server.alerts.payload import payload
from specscope_server.alerts.quiet import FOLLOWS, Notice, consequences, decide, silenced_by
from specscope_server.alerts.reading import Judged, Reading, read
from specscope_server.alerts.rules import FIRING, NO_DATA, AlertRule
from specscope_server.alerts.transition import ended, step
from specscope_server.diagnosis import Diagnosis, Evidence
from specscope_server.store.model import AlertRow, AlertSubject, SilenceRow
from specscope_server.store.port import NewDelivery

REFRESH: Final = timedelta(seconds=10)
"""How old what is stored of an unchanged state may get: its reason moves with every number."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What people set in a workspace as of now, and where to notices go.

    ``silences`` are those that hold; ``rules`` also those that are off.
    """

    rules: tuple[AlertRule, ...]
    silences: tuple[SilenceRow, ...]
    labels: tuple[str, ...] = ()
    base_url: str = ""


@dataclass(slots=True)
class Outcome:
    """What is to be stored of an evaluation, in one transaction."""

    rows: list[AlertRow] = field(default_factory=list[AlertRow])
    deliveries: list[NewDelivery] = field(default_factory=list[NewDelivery])
    evidence: dict[tuple[str, str], Mapping[str, Any]] = field(
        default_factory=dict[tuple[str, str], Mapping[str, Any]]
    )

    def add(self, other: Outcome) -> None:
        """Take in what another one has."""
        self.rows += other.rows
        self.deliveries += other.deliveries
        self.evidence |= other.evidence


@dataclass(frozen=True, slots=True)
class Seen:
    """An engine with its evidence and diagnosis by window, in seconds."""

    subject: AlertSubject
    windows: Mapping[float, tuple[Evidence, Diagnosis]]

    def of(self, window_s: float) -> Judged:
        """Return it as a rule of a window sees it."""
        return Judged(self.subject, *self.windows[window_s])


def judge(setting: Setting, seen: Seen, before: Mapping[str, AlertRow], now: datetime) -> Outcome:
    """Return what one evaluation of an engine changes; ``before`` are its stored states by rule."""
    subject = seen.subject
    mine = [rule for rule in setting.rules if rule.applies(subject)]
    readings: dict[str, Reading] = {}
    rows: dict[str, AlertRow] = {}
    for rule in mine:
        stored = before.get(rule.name)
        reading = read(rule, setting.rules, seen.of(rule.window_s), stored.memo if stored is not None else {})
        readings[rule.name] = reading
        rows[rule.name] = step(rule, subject.engine_uid, subject.name, reading, stored, now)
    firing = {
        name: readings[name].findings
        for name, row in rows.items()
        if row.state == FIRING and readings[name].state == FIRING
    }
    follows = consequences(firing, {rule.name: rule.title for rule in mine})
    outcome = Outcome()
    for rule in mine:
        stored = before.get(rule.name)
        reading = readings[rule.name]
        silence = silenced_by(setting.silences, rule.name, subject)
        root = _still_follows(rule.name, follows, reading, stored)
        notice = decide(rule, rows[rule.name], root, silence, now)
        _take(outcome, setting, seen, rule, reading, stored, notice, follows)
    for name, stored in before.items():
        if name not in rows and (stored.state != NO_DATA or stored.pending):
            off = any(rule.name == name for rule in setting.rules)
            why = "the rule is off for this engine" if off else "there is no such rule any more"
            outcome.add(end(setting, subject, stored, why, now))
    return outcome


def _still_follows(name: str, follows: Mapping[str, str], reading: Reading, stored: AlertRow | None) -> str:
    """Return the title of the rule that a rule follows from, or did when it last was seen to fire."""
    if reading.state == FIRING or stored is None:
        return follows.get(name, "")
    return stored.quiet.partition(FOLLOWS)[2]


def _take(
    outcome: Outcome,
    setting: Setting,
    seen: Seen,
    rule: AlertRule,
    reading: Reading,
    stored: AlertRow | None,
    notice: Notice,
    follows: Mapping[str, str],
) -> None:
    """Add a rule's row where it is news or old, its evidence where the state changed, and its notices."""
    row = notice.row
    changed = stored is None or row.state != stored.state
    if not _worth_storing(row, stored):
        return
    outcome.rows.append(row)
    if changed and (row.state == FIRING or stored is not None):
        judged = seen.of(rule.window_s)
        outcome.evidence[row.engine_uid, row.rule] = frozen(judged.evidence, judged.said, reading.findings)
    if notice.notify:
        also = [title for name, title in _titles(setting) if name in follows and follows[name] == rule.title]
        told = payload(
            row,
            previous=stored.state if stored is not None else NO_DATA,
            workspace=seen.subject.workspace,
            findings=reading.findings if row.state == FIRING else (),
            base_url=setting.base_url,
            consequences=also,
            reminder=notice.reminder,
        )
        outcome.deliveries += _addressed(setting, row, told)


def _worth_storing(row: AlertRow, stored: AlertRow | None) -> bool:
    """Say whether a row says more than the stored one: more than another number in its reason, or later."""
    if stored is None or abs(row.evaluated - stored.evaluated) >= REFRESH:
        return True
    same = replace(stored, engine=row.engine, reason=row.reason, evaluated=row.evaluated)
    return row != same


def _titles(setting: Setting) -> list[tuple[str, str]]:
    return [(rule.name, rule.title) for rule in setting.rules]


def _addressed(setting: Setting, row: AlertRow, told: Mapping[str, Any]) -> list[NewDelivery]:
    return [NewDelivery(row.rule, row.engine_uid, row.state, label, told) for label in setting.labels]


def end(setting: Setting, subject: AlertSubject, stored: AlertRow, reason: str, now: datetime) -> Outcome:
    """Return what ends a state of which nothing will be heard any more; whoever was told of it hears that."""
    row = ended(stored, reason, now)
    outcome = Outcome([replace(row, told="", told_at=None)])
    if stored.told == FIRING:
        told = payload(
            row, previous=stored.state, workspace=subject.workspace, findings=(), base_url=setting.base_url
        )
        outcome.deliveries += _addressed(setting, row, told)
    return outcome

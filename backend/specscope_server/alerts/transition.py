"""From readings to states: when a change counts, so that one odd moment neither fires nor recovers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from specscope_server.alerts.reading import Reading
from specscope_server.alerts.rules import FIRING, NO_DATA, AlertRule
from specscope_server.store.model import AlertRow

LAPSE: Final = timedelta(seconds=120)
"""A change that waits starts anew where nobody looked for so long; a restart takes less."""
HELD: Final = "Still firing, as nothing new is known"


def step(
    rule: AlertRule, engine_uid: str, engine: str, reading: Reading, before: AlertRow | None, now: datetime
) -> AlertRow:
    """Return the rule's next state on one engine; who is told is decided elsewhere.

    ``before`` is the stored state, ``None`` at first. A pause (idle, too little data, ...) does not end a
    firing: no data is no recovery.
    """
    was = before.state if before is not None else NO_DATA
    wait = _wait(rule, was, reading)
    pending, since = "", None
    state = was
    if reading.state != was and wait is not None:
        since = _waiting_since(before, reading, now)
        if now - since >= wait:
            state, since = reading.state, None
        else:
            pending = reading.state
    changed = before is None or state != before.state
    row = AlertRow(
        rule=rule.name,
        title=rule.title,
        engine_uid=engine_uid,
        engine=engine,
        state=state,
        reason=_reason(state, reading, before, since),
        since=now if before is None or changed else before.since,
        evaluated=now,
        severity=rule.severity,
        pending=pending,
        pending_since=since,
        memo=reading.memo,
    )
    if before is None:
        return row
    row = replace(row, told=before.told, told_at=before.told_at)
    if changed:
        return row
    return replace(
        row, acknowledged=before.acknowledged, acknowledged_by=before.acknowledged_by, note=before.note
    )


def _waiting_since(before: AlertRow | None, reading: Reading, now: datetime) -> datetime:
    if (
        before is None
        or before.pending != reading.state
        or before.pending_since is None
        # Of a clock that was ahead and was set right.
        or before.pending_since > now
        or now - before.evaluated > LAPSE
    ):
        return now
    return before.pending_since


def _wait(rule: AlertRule, was: str, reading: Reading) -> timedelta | None:
    """Return how long ``reading`` must hold to change the state, ``None``: it never does."""
    if reading.state == FIRING:
        return timedelta(seconds=rule.for_s if reading.sure else max(rule.for_s, rule.suspected_for_s))
    if was != FIRING:
        return timedelta(0)
    if reading.state == NO_DATA and not reading.ended:
        return None
    return timedelta(seconds=rule.recovery_s)


def _reason(state: str, reading: Reading, before: AlertRow | None, since: datetime | None) -> str:
    if state == reading.state:
        return reading.reason
    clock = f"{since:%H:%M:%S} UTC" if since is not None else "now"
    if state == FIRING:
        if reading.state == NO_DATA:
            return f"{HELD}: {reading.reason}"
        return f"Recovering: the evidence has excluded it since {clock}."
    what = "Seen" if reading.sure else "Suspected"
    return f"{what} since {clock}, fires if it holds: {reading.reason}"


def ended(row: AlertRow, reason: str, now: datetime) -> AlertRow:
    """Return the state of a rule that is not evaluated on an engine any more, and why."""
    return replace(
        row,
        state=NO_DATA,
        reason=reason,
        since=row.since if row.state == NO_DATA else now,
        evaluated=now,
        pending="",
        pending_since=None,
        quiet="",
        memo={},
    )

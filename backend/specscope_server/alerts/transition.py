"""From readings to states: when a change counts, so that one odd moment neither fires nor recovers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from specscope_server.alerts.rules import FIRING, NO_DATA, AlertRule, Reading
from specscope_server.store.model import AlertRow

SUSPECT_FOR: Final = timedelta(seconds=60)
"""A suspicion fires once it has held this long; what is certain, or tested, fires at once."""
CLEAR_FOR: Final = timedelta(seconds=60)
"""A firing rule recovers once the evidence has excluded its findings for this long."""
ENDED_FOR: Final = timedelta(seconds=60)
"""A firing rule whose engine cannot be judged any more (tracer silent, ...) ends after this long."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A change that waits for its duration: to which state, since when."""

    state: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Step:
    """The row to store, a change that is still waiting, and whether anybody is told."""

    row: AlertRow
    pending: Pending | None
    notify: bool


def step(
    rule: AlertRule,
    engine_uid: str,
    engine: str,
    reading: Reading,
    before: AlertRow | None,
    pending: Pending | None,
    now: datetime,
) -> Step:
    """Return the rule's next state on one engine.

    ``before`` is the stored state, ``None`` at first. A change is told when it starts or ends a firing.
    A pause (idle, too little data, ...) does not end a firing: no data is no recovery.
    """
    was = before.state if before is not None else NO_DATA
    wait = _wait(was, reading)
    if reading.state == was or wait is None:
        state, waiting = was, None
    else:
        if pending is None or pending.state != reading.state:
            pending = Pending(reading.state, now)
        due = now - pending.since >= wait
        state, waiting = (reading.state, None) if due else (was, pending)
    changed = before is None or state != before.state
    row = AlertRow(
        rule=rule.name,
        title=rule.title,
        engine_uid=engine_uid,
        engine=engine,
        state=state,
        reason=_reason(state, reading, before, waiting),
        since=now if before is None or changed else before.since,
        evaluated=now,
    )
    return Step(row, waiting, notify=state != was and FIRING in (state, was))


def _wait(was: str, reading: Reading) -> timedelta | None:
    """Return how long ``reading`` must hold to change the state, ``None``: it never does."""
    if reading.state == FIRING:
        return timedelta(0) if reading.sure else SUSPECT_FOR
    if was != FIRING:
        return timedelta(0)
    if reading.state == NO_DATA:
        return ENDED_FOR if reading.ended else None
    return CLEAR_FOR


def _reason(state: str, reading: Reading, before: AlertRow | None, waiting: Pending | None) -> str:
    if state == reading.state:
        return reading.reason
    if state == FIRING:
        if reading.state == NO_DATA:
            return f"{HELD}: {reading.reason}"
        return f"Recovering: the evidence has excluded it since {_clock(waiting)}."
    return f"Suspected since {_clock(waiting)}, fires if it holds: {reading.reason}"


HELD: Final = "Still firing, as nothing new is known"


def _clock(waiting: Pending | None) -> str:
    return f"{waiting.since:%H:%M:%S} UTC" if waiting is not None else "now"


def forgotten(row: AlertRow, now: datetime) -> AlertRow:
    """Return the state of a rule on an engine that has not been heard for so long that none looks at it."""
    reason = "tracer silent: nothing was heard of this engine for a day"
    return replace(
        row, state=NO_DATA, reason=reason, since=row.since if row.state == NO_DATA else now, evaluated=now
    )

"""Who is told of a state, and why nobody is: silences, and faults that another rule names already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from specscope_server.alerts.patterns import matches
from specscope_server.alerts.rules import FIRING, AlertRule
from specscope_server.diagnosis import Finding
from specscope_server.store.model import AlertRow, AlertSubject, SilenceRow

FOLLOWS: Final = "follows from: "


@dataclass(frozen=True, slots=True)
class Notice:
    """A row as it is stored, and whether somebody is told of it now: of a change, or reminded of a firing."""

    row: AlertRow
    notify: bool = False
    reminder: bool = False


def active(silences: Iterable[SilenceRow], now: datetime) -> list[SilenceRow]:
    """Return the silences that hold now."""
    return [one for one in silences if one.starts <= now < one.ends]


def silenced_by(silences: Iterable[SilenceRow], rule: str, subject: AlertSubject) -> SilenceRow | None:
    """Return the first silence that covers a rule on an engine."""
    for one in silences:
        names = (subject.name, subject.engine_uid)
        if matches(rule, one.rule) and any(matches(name, one.engine) for name in names):
            return one
    return None


def consequences(firing: Mapping[str, Sequence[Finding]], titles: Mapping[str, str]) -> dict[str, str]:
    """Return rules whose findings all follow from what another firing rule names, and the title of that.

    ``firing`` has the findings of every rule that fires on one engine; a finding names its root itself.
    """
    owner = {f.kind: rule for rule, found in firing.items() for f in found}
    follows: dict[str, str] = {}
    for rule, found in firing.items():
        roots = {owner.get(f.root, rule) for f in found}
        if found and rule not in roots:
            follows[rule] = titles[min(roots)]
    return follows


def decide(rule: AlertRule, row: AlertRow, follows: str, silence: SilenceRow | None, now: datetime) -> Notice:
    """Return a row with what is told of it noted, and whether that happens now.

    A firing is told once, when nothing keeps it quiet; then its end is told as well, also in a silence, so
    that nobody waits for it. What was never told has no end that anybody has to hear of.
    """
    if row.state != FIRING:
        return Notice(replace(row, told="", told_at=None, quiet=""), notify=row.told == FIRING)
    quiet = ""
    if silence is not None:
        by = f" by {silence.author}" if silence.author else ""
        quiet = f"silenced{by} until {silence.ends:%Y-%m-%d %H:%M} UTC"
    elif follows:
        quiet = f"{FOLLOWS}{follows}"
    if row.told != FIRING:
        if quiet:
            return Notice(replace(row, quiet=quiet))
        return Notice(replace(row, told=FIRING, told_at=now, quiet=""), notify=True)
    row = replace(row, quiet=quiet)
    due = (
        rule.repeat_s > 0
        and not quiet
        and row.acknowledged is None
        and row.told_at is not None
        # Also when a clock was ahead that was set right since.
        and abs(now - row.told_at) >= timedelta(seconds=rule.repeat_s)
    )
    return Notice(replace(row, told_at=now), notify=True, reminder=True) if due else Notice(row)

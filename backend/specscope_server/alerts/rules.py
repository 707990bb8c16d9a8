"""The rules: which findings make an alert, and what one diagnosis says of a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specscope_server.diagnosis import Diagnosis, draft_silent, fc_bypassed, zero_acceptance
from specscope_server.diagnosis.model import SUSPECTED
from specscope_server.diagnosis.state import NOT_OBSERVABLE, OFF, SILENT, STARTING

FIRING: Final = "firing"
OK: Final = "ok"
NO_DATA: Final = "no data"

ENDED_WORDS: Final = (SILENT, OFF, NOT_OBSERVABLE, STARTING)
"""States in which nothing can be learnt of an engine for good or until it changes; other silences (idle,
health checks only, too little data) are pauses."""


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A rule fires while any finding of its ``kinds`` holds."""

    name: str
    title: str
    kinds: tuple[str, ...]


RULES: Final = (
    AlertRule("silent_path", "Silent path", (draft_silent.KIND, fc_bypassed.KIND)),
    AlertRule("zero_acceptance", "Zero acceptance", (zero_acceptance.KIND,)),
)
"""On by default, for every engine."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one diagnosis says of a rule: a state and why.

    ``sure`` is False while all that speaks for firing is suspected. ``ended`` is True where no data is
    more than a pause.
    """

    state: str
    reason: str
    sure: bool = True
    ended: bool = False


def read(rule: AlertRule, diagnosis: Diagnosis) -> Reading:
    """Return what ``diagnosis`` says of ``rule``. Only positive evidence reads ``ok``."""
    state = diagnosis.state
    if state.word in ENDED_WORDS:
        return Reading(NO_DATA, f"{state.word}: {state.reason}", ended=True)
    found = [f for f in diagnosis.findings if f.kind in rule.kinds]
    if found:
        sure = any(f.confidence != SUSPECTED for f in found)
        return Reading(FIRING, found[0].sentence, sure=sure)
    unknown = [diagnosis.unknown[kind] for kind in rule.kinds if kind in diagnosis.unknown]
    if unknown:
        return Reading(NO_DATA, f"{state.word}: {'; '.join(dict.fromkeys(unknown))}")
    return Reading(OK, "The evidence excludes it.")

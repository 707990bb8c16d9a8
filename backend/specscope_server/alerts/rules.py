"""What a rule is: what it watches, on which engines, and when it counts. Built-in ones: ``catalogue.py``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, cast

from specscope_server.alerts.patterns import matches
from specscope_server.diagnosis.model import CRITICAL, INFO, SUSPECTED, WARNING, Finding
from specscope_server.store.model import AlertSubject

FIRING: Final = "firing"
OK: Final = "ok"
NO_DATA: Final = "no data"

FINDINGS: Final = "findings"
OTHER_FAULTS: Final = "other faults"
TRACER_SILENT: Final = "tracer silent"
TRACER_DROPPING: Final = "tracer dropping"
INGEST_LAG: Final = "ingest lag"
WATCHES: Final = (FINDINGS, OTHER_FAULTS, TRACER_SILENT, TRACER_DROPPING, INGEST_LAG)
SEVERITIES: Final = (CRITICAL, WARNING, INFO)
DAY_S: Final = 86_400.0
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TEXT_CHARS: Final = 128
_KINDS: Final = 64


class RuleError(ValueError):
    """A rule that makes no sense; the message names the field and what it may be."""


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One rule, evaluated on every engine of its workspace that its patterns choose.

    ``watches`` is one of :data:`WATCHES`; ``kinds`` are the kinds of finding of ``findings``. ``engine``
    (name or uid), ``model`` and ``environment`` are patterns with ``*`` and ``?``; empty: all. Times are
    seconds: ``window_s`` of evidence, ``for_s`` that what fires must hold (``suspected_for_s`` where all of
    it is suspected), ``recovery_s`` that it must be excluded. With fewer verify steps than ``min_steps`` in
    the window there is no data. ``threshold`` is the seconds of delay that are too many (ingest lag) or the
    records that may be dropped in a window. ``repeat_s``: whoever was told is reminded after so long; 0:
    never.
    """

    name: str
    title: str
    watches: str = FINDINGS
    kinds: tuple[str, ...] = ()
    severity: str = WARNING
    enabled: bool = True
    engine: str = ""
    model: str = ""
    environment: str = ""
    window_s: float = 300.0
    min_steps: int = 0
    for_s: float = 0.0
    suspected_for_s: float = 60.0
    recovery_s: float = 60.0
    certain_only: bool = False
    threshold: float = 0.0
    repeat_s: float = 0.0

    def covers(self, finding: Finding) -> bool:
        """Say whether a finding makes this rule fire; what other rules leave is not known here."""
        if self.certain_only and finding.confidence == SUSPECTED:
            return False
        return self.watches == FINDINGS and finding.kind in self.kinds

    def applies(self, subject: AlertSubject) -> bool:
        """Say whether it is evaluated on an engine."""
        return self.enabled and (
            any(matches(name, self.engine) for name in (subject.name, subject.engine_uid))
            and matches(subject.model, self.model)
            and matches(subject.environment, self.environment)
        )

    @property
    def body(self) -> dict[str, Any]:
        """Return the rule as JSON, without its name."""
        return {name: value for name, value in asdict(self).items() if name != "name"} | {
            "kinds": list(self.kinds)
        }


def changed(rule: AlertRule, told: Mapping[str, Any]) -> AlertRule:
    """Return ``rule`` with the fields that are told.

    Raises:
        RuleError: a field is unknown or makes no sense.
    """
    if not NAME.fullmatch(rule.name):
        raise RuleError(
            f"name {rule.name[:70]!r}: use up to 64 lower-case letters, digits and _, a letter first"
        )
    unknown = sorted(set(told) - set(_CHECKS))
    if unknown:
        raise RuleError(f"unknown field {', '.join(unknown)[:200]}; there are {', '.join(sorted(_CHECKS))}")
    made = replace(rule, **{name: _CHECKS[name](name, value) for name, value in told.items()})
    if made.watches == FINDINGS and not made.kinds:
        raise RuleError("kinds: name at least one kind of finding, e.g. zero_acceptance")
    if made.watches != FINDINGS and made.kinds:
        raise RuleError(f"kinds: a rule that watches {made.watches!r} has none")
    if made.watches == INGEST_LAG and made.threshold <= 0:
        raise RuleError("threshold: ingest lag takes the seconds of delay that are too many, over 0")
    return made


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > _TEXT_CHARS or not (value.isprintable() or not value):
        raise RuleError(f"{name}: a text of up to {_TEXT_CHARS} printable characters")
    return value.strip()


def _title(name: str, value: object) -> str:
    text = _text(name, value)
    if not text:
        raise RuleError(f"{name}: must not be empty")
    return text


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise RuleError(f"{name}: true or false")
    return value


def _one_of(*words: str) -> Callable[[str, object], str]:
    def check(name: str, value: object) -> str:
        if value not in words:
            raise RuleError(f"{name}: one of {', '.join(words)}")
        return cast(str, value)

    return check


def _between(low: float, high: float, *, whole: bool = False) -> Callable[[str, object], float]:
    def check(name: str, value: object) -> float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if (
            not number
            or not low <= cast(float, value) <= high
            or (whole and value != int(cast(float, value)))
        ):
            kind = "a whole number" if whole else "a number"
            raise RuleError(f"{name}: {kind} from {low:g} to {high:g}")
        return int(cast(float, value)) if whole else float(cast(float, value))

    return check


def _repeat(name: str, value: object) -> float:
    found = _between(0, 30 * DAY_S)(name, value)
    if 0 < found < 300:
        raise RuleError(f"{name}: 0 (never) or at least 300 s")
    return found


def _kinds(name: str, value: object) -> tuple[str, ...]:
    items = cast("list[object]", value) if isinstance(value, (list, tuple)) else [None]
    found = tuple(dict.fromkeys(item for item in items if isinstance(item, str) and NAME.fullmatch(item)))
    if len(found) != len(items) or len(found) > _KINDS:
        raise RuleError(f"{name}: up to {_KINDS} different kinds of finding, e.g. zero_acceptance")
    return found


_CHECKS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    "title": _title,
    "watches": _one_of(*WATCHES),
    "kinds": _kinds,
    "severity": _one_of(*SEVERITIES),
    "enabled": _flag,
    "engine": _text,
    "model": _text,
    "environment": _text,
    "window_s": _between(60, DAY_S),
    "min_steps": _between(0, 10**9, whole=True),
    "for_s": _between(0, DAY_S),
    "suspected_for_s": _between(0, DAY_S),
    "recovery_s": _between(0, DAY_S),
    "certain_only": _flag,
    "threshold": _between(0, 10**9),
    "repeat_s": _repeat,
}
FIELDS: Final = tuple(field.name for field in fields(AlertRule) if field.name in _CHECKS)
"""What may be set of a rule, in the order that forms show it."""

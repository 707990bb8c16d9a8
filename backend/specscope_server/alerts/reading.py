"""What one evaluation says of a rule on an engine: firing, ok, or no data and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from specscope_server.alerts.rules import (
    FINDINGS,
    FIRING,
    INGEST_LAG,
    NO_DATA,
    OK,
    OTHER_FAULTS,
    TRACER_DROPPING,
    AlertRule,
)
from specscope_server.diagnosis import Diagnosis, Evidence, Finding, facts
from specscope_server.diagnosis.model import SUSPECTED
from specscope_server.diagnosis.registry import KINDS
from specscope_server.diagnosis.state import ENDED, NOT_OBSERVABLE, OFF, SILENT, STARTING
from specscope_server.store.model import AlertSubject

GONE_WORDS: Final = (SILENT, ENDED)
"""States in which the tracer tells nothing any more."""
ENDED_WORDS: Final = (*GONE_WORDS, OFF, NOT_OBSERVABLE, STARTING)
"""States in which nothing can be learnt of an engine for good or until it changes; other silences (idle,
health checks only, too little data) are pauses."""
EXCLUDED: Final = "The evidence excludes it."
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Judged:
    """One engine as of one evaluation: who it is, the evidence of a window, and what was found in it."""

    subject: AlertSubject
    evidence: Evidence
    said: Diagnosis


@dataclass(frozen=True, slots=True)
class Reading:
    """What one diagnosis says of a rule: a state and why.

    ``sure`` is False while all that speaks for firing is suspected. ``ended`` is True where no data is
    more than a pause. ``findings`` are those that make it fire; ``memo`` is what the rule wants to remember.
    """

    state: str
    reason: str
    sure: bool = True
    ended: bool = False
    findings: tuple[Finding, ...] = ()
    memo: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read(rule: AlertRule, others: Sequence[AlertRule], judged: Judged, memo: Mapping[str, Any]) -> Reading:
    """Return what an evaluation says of ``rule``. Only positive evidence reads ``ok``.

    ``others`` are all rules of the workspace, also those that are off; ``memo`` is what this one remembered
    the last time.
    """
    if rule.watches == FINDINGS:
        found = tuple(f for f in judged.said.findings if rule.covers(f))
        return _of_findings(rule, judged, found, rule.kinds, {})
    if rule.watches == OTHER_FAULTS:
        return _other_faults(rule, others, judged, memo)
    if rule.watches == INGEST_LAG:
        return _lag(rule, judged)
    if rule.watches == TRACER_DROPPING:
        return _dropping(rule, judged, memo)
    return _silent(judged)


def _of_findings(
    rule: AlertRule, judged: Judged, found: tuple[Finding, ...], kinds: Sequence[str], memo: Mapping[str, Any]
) -> Reading:
    state, evidence = judged.said.state, judged.evidence
    if state.word in ENDED_WORDS:
        return Reading(NO_DATA, f"{state.word}: {state.reason}", ended=True, memo=memo)
    steps = evidence.counts.steps if evidence.counts is not None else 0
    if steps < rule.min_steps:
        return Reading(
            NO_DATA,
            f"too little data: {steps} verify steps in {evidence.window_s:g} s, and this rule wants"
            f" {rule.min_steps}",
            memo=memo,
        )
    if found:
        sure = any(f.confidence != SUSPECTED for f in found)
        return Reading(FIRING, found[0].sentence, sure=sure, findings=found, memo=memo)
    unknown = [judged.said.unknown[kind] for kind in kinds if kind in judged.said.unknown]
    if unknown:
        return Reading(NO_DATA, f"{state.word}: {'; '.join(dict.fromkeys(unknown))}", memo=memo)
    unheard = [kind for kind in kinds if kind not in KINDS]
    if unheard:
        return Reading(
            NO_DATA,
            f"this server looks for no finding of the kind {', '.join(unheard)}: of another version, or"
            " misspelt; the kinds there are stand on the rule's page",
            ended=True,
            memo=memo,
        )
    return Reading(OK, EXCLUDED, memo=memo)


def _other_faults(
    rule: AlertRule, others: Sequence[AlertRule], judged: Judged, memo: Mapping[str, Any]
) -> Reading:
    """Read the rule for faults that no other rule names; it remembers which ones it fired for."""
    named = {kind for other in others if other.watches == FINDINGS for kind in other.kinds}
    found = tuple(
        f
        for f in judged.said.findings
        if f.fault_class and f.kind not in named and not (rule.certain_only and f.confidence == SUSPECTED)
    )
    if found:
        memo = {"kinds": [f.kind for f in found]}
    fired: list[str] = list(memo.get("kinds", ()))
    reading = _of_findings(rule, judged, found, fired, memo)
    if reading.state != OK:
        return reading
    unknown = sorted(kind for kind in judged.said.unknown if kind not in named)
    if not unknown:
        return reading
    more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
    told = f"No other fault is found; not known: {', '.join(unknown[:_NAMED])}{more}."
    return Reading(OK, told, memo=memo)


def _silent(judged: Judged) -> Reading:
    state, silence = judged.said.state, facts.silence_s(judged.evidence)
    if state.word == SILENT:
        return Reading(FIRING, state.reason)
    if state.word == ENDED:
        return Reading(NO_DATA, f"{state.word}: {state.reason}", ended=True)
    if silence is None:
        return Reading(NO_DATA, f"{state.word}: {state.reason}")
    return Reading(OK, "The tracer is heard.")


def _dropping(rule: AlertRule, judged: Judged, memo: Mapping[str, Any]) -> Reading:
    """Read the tracer's own counter: it only grows, so when it grew is remembered.

    What had been dropped before the first look happened nobody knows when: it does not fire.
    """
    evidence, total = judged.evidence, sum(judged.evidence.dropped.values())
    before = memo.get("total")
    # What a clock noted that was ahead happened by now.
    grew: list[list[float]] = [[min(at, evidence.now), count] for at, count in memo.get("grew", ())]
    if before is not None and total > before:
        grew.append([evidence.now, total - before])
    grew = [one for one in grew if one[0] > evidence.now - rule.window_s][-_GROWTHS:]
    memo = {"total": total, "grew": grew}
    lost = int(sum(count for _, count in grew))
    if lost > rule.threshold:
        reasons = ", ".join(f"{count} {why}" for why, count in sorted(evidence.dropped.items()) if count)
        return Reading(
            FIRING,
            f"The tracer dropped {lost} records in the last {rule.window_s:g} s ({reasons} since its start):"
            " what is missing here proves nothing.",
            memo=memo,
        )
    if judged.said.state.word in GONE_WORDS:
        state = judged.said.state
        return Reading(NO_DATA, f"{state.word}: {state.reason}", ended=True, memo=memo)
    if not lost:
        return Reading(OK, f"Nothing was dropped in the last {rule.window_s:g} s.", memo=memo)
    return Reading(
        OK, f"{lost} records were dropped in the last {rule.window_s:g} s, no more than may be.", memo=memo
    )


_GROWTHS: Final = 200


def _lag(rule: AlertRule, judged: Judged) -> Reading:
    delay = judged.subject.delay_s
    state = judged.said.state
    if state.word in GONE_WORDS:
        return Reading(NO_DATA, f"{state.word}: {state.reason}", ended=True)
    if delay is None:
        return Reading(NO_DATA, "nothing arrived in the last minute")
    if delay > rule.threshold:
        return Reading(
            FIRING,
            f"The newest that this engine told had waited {delay:.0f} s when it arrived (over"
            f" {rule.threshold:g} s is too much): what is shown and judged of it is as old. Its network or"
            " this server is too slow.",
        )
    return Reading(OK, f"What arrives had waited {delay:.1f} s.")

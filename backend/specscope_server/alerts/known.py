"""What an evaluator remembers of an engine it judged, and whether that still holds without reading again.

None of it has to survive a restart: everything that must be remembered is in the store, and a new evaluator
reads every engine once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from specscope_server.alerts.judge import REFRESH, Seen, Setting
from specscope_server.alerts.rules import INGEST_LAG
from specscope_server.diagnosis import Diagnosis, Evidence, facts
from specscope_server.diagnosis.model import Reconciliation
from specscope_server.diagnosis.step_evidence import StepEvidence
from specscope_server.store.model import AlertSubject, Heard

AGES: Final = timedelta(seconds=10)
"""How old evidence may get of an engine that told nothing new while its window still holds something: sums
leave a window by buckets of 10 s."""
OLD: Final = timedelta(seconds=60)
"""Likewise where only minutes of before are left, or where its tracer is silent."""
Silence = tuple[bool, bool]
"""Whether the tracer is silent, and whether for so long that the engine is taken for ended."""


@dataclass(frozen=True, slots=True)
class Known:
    """An engine as it was judged last.

    ``seen`` has of its evidence only what a rule reads when it is judged again; ``every`` is how often it
    must be read again though it told nothing, ``None``: never. ``waits``: a change waits for its duration.
    """

    told: int
    read: datetime
    judged: datetime
    seen: Seen
    every: timedelta | None
    silence: Silence
    waits: bool
    setting: Setting

    @property
    def evidence(self) -> Evidence:
        """Return what is kept of the evidence of any window: they agree in all but what the window holds."""
        return next(iter(self.seen.windows.values()))[0]

    def holds(self, heard: Heard, windows: Collection[float], now: datetime) -> bool:
        """Say whether what was read of it is what would be read now, but for what is too young to tell."""
        return (
            heard.told == self.told
            and self.seen.windows.keys() >= set(windows)
            and silence_of(self.evidence, heard, now) == self.silence
        )

    def is_old(self, now: datetime) -> bool:
        """Say whether it must be read again as time has passed, or a clock that was ahead was set right."""
        return self.every is not None and not _within(self.every, self.read, now)

    def is_settled(self, setting: Setting, subject: AlertSubject, now: datetime) -> bool:
        """Say whether judging it again would come to the same, but for how long that holds by now."""
        return not self.waits and self.setting is setting and _same(setting, self.seen.subject, subject)

    def must_say_so(self, now: datetime) -> bool:
        """Say whether it is time to note that what is stored of it still holds."""
        return not _within(REFRESH, self.judged, now)


def _within(length: timedelta, since: datetime, now: datetime) -> bool:
    return timedelta(0) <= now - since < length


def _same(setting: Setting, before: AlertSubject, now: AlertSubject) -> bool:
    """Say whether rules choose and read an engine as before: its delay matters by thresholds alone."""
    if replace(before, delay_s=None) != replace(now, delay_s=None):
        return False
    late = [rule.threshold for rule in setting.rules if rule.watches == INGEST_LAG]
    return _lags(before, late) == _lags(now, late)


def _lags(subject: AlertSubject, thresholds: Collection[float]) -> tuple[bool, ...] | None:
    delay = subject.delay_s
    return None if delay is None else tuple(delay > threshold for threshold in thresholds)


def silence_of(evidence: Evidence, heard: Heard, now: datetime) -> Silence:
    """Return what an engine's silence means now, given when it was heard last."""
    silence_s = (now - heard.last_received).total_seconds()
    if silence_s <= facts.SILENT_MIN_S:
        return False, False
    later = replace(evidence, now=now.timestamp(), last_received=heard.last_received.timestamp())
    return facts.tracer_silent(later), facts.gone(later)


def every(read: Sequence[Evidence], silent: bool) -> timedelta | None:
    """Return how often an engine that tells nothing must be read again for what leaves its windows."""
    if any(_holds_something(evidence) for evidence in read):
        return AGES
    return OLD if silent or any(evidence.history or evidence.events for evidence in read) else None


def _holds_something(evidence: Evidence) -> bool:
    return (
        evidence.counts is not None
        or bool(evidence.window_requests)
        or bool(evidence.example_requests)
        or bool(evidence.extends or evidence.places or evidence.hidden or evidence.slices)
        or bool(evidence.steps.steps)
        or evidence.reconciliation != Reconciliation(0)
        or any(line.expected or line.observed_total for line in evidence.window)
    )


def lightened(
    windows: Mapping[float, tuple[Evidence, Diagnosis]],
) -> dict[float, tuple[Evidence, Diagnosis]]:
    """Return what was read without what is large and only a diagnosis reads; one stays one."""
    small = {id(evidence): light(evidence) for evidence, _ in windows.values()}
    return {window_s: (small[id(evidence)], said) for window_s, (evidence, said) in windows.items()}


def light(evidence: Evidence) -> Evidence:
    """Return evidence without what is large and only a diagnosis reads."""
    return replace(
        evidence,
        config={},
        since_start=(),
        extends=(),
        reconciliation=Reconciliation(0),
        ranks=(),
        hidden=(),
        steps=StepEvidence(),
        slices=(),
        history=(),
        events=(),
        reference=(),
        places=(),
        times=(),
        workload_expectations=(),
    )


def at(seen: Seen, subject: AlertSubject, heard: Heard, now: datetime) -> Seen:
    """Return what was seen of an engine as of now: nothing has changed but the time and its last sign."""
    moved = {"now": now.timestamp(), "last_received": heard.last_received.timestamp()}
    made: dict[int, Evidence] = {}
    windows: dict[float, tuple[Evidence, Diagnosis]] = {}
    for window_s, (evidence, said) in seen.windows.items():
        if id(evidence) not in made:
            made[id(evidence)] = replace(evidence, **moved)
        windows[window_s] = made[id(evidence)], said
    return Seen(subject, windows)

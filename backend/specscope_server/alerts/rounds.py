"""Rounds over all engines, each no dearer than what was told since the last one.

An engine is read and diagnosed when it told something new, when it fell silent, and every ten seconds while
something may leave its window. What was found is judged again without reading while a change waits for its
duration, when rules or silences changed, and every ten seconds, so that what is stored of it stays fresh.

Where more is due than fits into :data:`BUDGET_S` the rest waits for the next round, and whoever was read
longest ago comes first; but engines on which something is undecided come before those with a verdict, so that
a fleet that serves well delays nobody's alarm.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from specscope_server.alerts import known
from specscope_server.alerts.judge import REFRESH, Outcome, Seen, Setting, end, judge
from specscope_server.alerts.known import Known
from specscope_server.alerts.rules import NO_DATA
from specscope_server.alerts.settings import DEFAULT_WINDOW_S, Settings
from specscope_server.diagnosis import Diagnosis, Evidence, diagnose
from specscope_server.diagnosis.state import FAULTY, HEALTHY, SUSPECT
from specscope_server.store.model import AlertRow, Heard
from specscope_server.store.port import Store, Unavailable

DEFAULT_WORKSPACE: Final = "default"
FORGOTTEN: Final = "tracer silent: nothing was heard of this engine for a day"
AT_ONCE: Final = 50
"""Engines that are judged between two writes: what is found on one is told before all are through."""
BUDGET_S: Final = 5.0
"""Wall time after which a round begins no further batch."""
CROWDED: Final = (
    f"more is told than can be judged in {BUDGET_S:g} s, so engines take turns; how long they wait is"
    " specscope_alerts_oldest_evaluation_timestamp_seconds"
)
URGENT: Final = timedelta(seconds=60)
"""By how much longer an engine whose verdict is open counts as waiting: nobody waits for ever behind it."""
SETTLED_WORDS: Final = frozenset({HEALTHY, FAULTY, SUSPECT})
"""States that more of the same traffic only confirms."""
SINCE: Final = timedelta(minutes=15)
"""Marks of engines count what is not much older; what is told of earlier times comes to light as it ages."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be done with one engine: judge it, and before that maybe read it."""

    heard: Heard
    read: bool
    known: Known | None
    urgent: bool

    @property
    def order(self) -> datetime:
        """Return what comes first: who was never judged, then by when one was read."""
        if self.known is None:
            return datetime.min.replace(tzinfo=UTC)
        return self.known.read - (URGENT if self.urgent else timedelta(0))


class Rounds:
    """Judges the engines of a store. Not thread-safe but for :meth:`forget`."""

    def __init__(
        self,
        store: Store,
        labels: Sequence[str],
        window_s: float,
        base_url: str,
        say: Callable[[str, str], bool],
        budget_s: float = BUDGET_S,
    ) -> None:
        """Judge those of ``store`` by windows of ``window_s``; ``say`` logs a trouble once (what, which)."""
        self._budget_s = budget_s
        self._store, self._labels, self._window_s, self._base_url = store, tuple(labels), window_s, base_url
        self._say = say
        self._known: dict[str, Known] = {}
        self._forget = threading.Event()
        self._settings: dict[str, Setting] = {}
        self._since: datetime | None = None
        self._last: datetime | None = None
        self._due_since: dict[str, datetime] = {}
        self.lag_s = 0.0
        """Longest wait of an engine, in seconds, from when it was seen to be due: until it was judged in the
        last round, or until the end of that where it still waits."""
        self.waiting = 0
        """Engines that the last round left for the next."""

    def forget(self) -> None:
        """Read every engine anew in the next round: another server may have judged them meanwhile.

        From any thread, also while a round runs: what that one still comes to know is forgotten too.
        """
        self._forget.set()

    def run(self, now: datetime) -> None:
        """Judge all engines as of ``now``.

        Raises:
            StoreError: the database cannot serve; what is not stored is judged again in the next round.
        """
        began = time.monotonic()
        if self._forget.is_set():
            self._forget.clear()
            self._known.clear()
        heard = self._heard(now)
        settings = Settings(self._store, self._labels, self._base_url, now)
        by_workspace: dict[str, list[Heard]] = {DEFAULT_WORKSPACE: []}
        for one in heard:
            by_workspace.setdefault(one.workspace, []).append(one)
        elapsed, self._last = None if self._last is None else now - self._last, now
        due: list[tuple[str, _Work]] = []
        of_workspace: dict[str, Setting] = {}
        for workspace, engines in sorted(by_workspace.items()):
            setting = settings.of(workspace)
            if setting == self._settings.get(workspace):
                setting = self._settings[workspace]
            self._settings[workspace] = setting
            of_workspace[workspace] = setting
            due += [(workspace, work) for work in self._due(settings, setting, engines, elapsed, now)]
            self._close(workspace, settings, setting, {one.engine_uid for one in engines}, now)
        for uid in self._known.keys() - {one.engine_uid for one in heard}:
            del self._known[uid]
        self._judge_due(settings, of_workspace, due, began, now)

    def _judge_due(
        self,
        settings: Settings,
        of_workspace: Mapping[str, Setting],
        due: list[tuple[str, _Work]],
        began: float,
        now: datetime,
    ) -> None:
        """Judge what is due, as much of it as the round has time for, and note who waits since when."""
        due.sort(key=lambda one: (one[1].order, one[1].heard.engine_uid))
        since = {uid: self._due_since.get(uid, now) for uid in (work.heard.engine_uid for _, work in due)}
        lag, done = timedelta(0), 0
        while done < len(due) and (not done or time.monotonic() - began < self._budget_s):
            batch = due[done : done + AT_ONCE]
            for workspace in dict.fromkeys(workspace for workspace, _ in batch):
                works = [work for of, work in batch if of == workspace]
                self._judge(workspace, settings, of_workspace[workspace], works, now)
            done += len(batch)
            spent = timedelta(seconds=time.monotonic() - began)
            lag = max(lag, *(now + spent - since[work.heard.engine_uid] for _, work in batch))
        left = [work.heard.engine_uid for _, work in due[done:]]
        spent = timedelta(seconds=time.monotonic() - began)
        self._due_since = {uid: since[uid] for uid in left}
        self.waiting = len(left)
        self._say("evaluation of all engines in one round", CROWDED if left else "")
        self.lag_s = max([lag, *(now + spent - since[uid] for uid in left)]).total_seconds()

    def _heard(self, now: datetime) -> list[Heard]:
        """Return the engines that were heard, with marks that can be held against those that are known."""
        if self._since is None:
            self._since = now - SINCE
        if -SINCE < now - self._since < 2 * SINCE:
            return self._store.heard(self._since)
        with self._store.snapshot() as reads:
            before = {one.engine_uid: one.told for one in reads.heard(self._since)}
            self._since = now - SINCE
            heard = reads.heard(self._since)
        for one in heard:
            engine = self._known.get(one.engine_uid)
            if engine is not None and engine.told == before.get(one.engine_uid):
                self._known[one.engine_uid] = replace(engine, told=one.told)
        return heard

    def _windows(self, settings: Settings, setting: Setting, heard: Heard) -> set[float]:
        """Return the windows, in seconds, that an engine must be seen in."""
        subject = settings.subject(heard.workspace, heard.engine_uid, "")
        windows = {rule.window_s for rule in setting.rules if rule.applies(subject)}
        return windows | {self._window_s, DEFAULT_WINDOW_S}

    def _due(
        self,
        settings: Settings,
        setting: Setting,
        engines: Sequence[Heard],
        elapsed: timedelta | None,
        now: datetime,
    ) -> list[_Work]:
        """Return what has to be done now: all that may have changed, and a share of what only grew old."""
        due: list[_Work] = []
        old: list[tuple[datetime, _Work]] = []
        for heard in engines:
            engine = self._known.get(heard.engine_uid)
            if engine is None or not engine.holds(heard, self._windows(settings, setting, heard), now):
                due.append(_Work(heard, True, engine, urgent=_is_open(engine, heard, now)))
                continue
            subject = settings.subject(heard.workspace, heard.engine_uid, engine.seen.subject.name)
            if not engine.is_settled(setting, subject, now):
                due.append(_Work(heard, engine.is_old(now), engine, urgent=True))
            elif engine.is_old(now):
                old.append((engine.read, _Work(heard, True, engine, urgent=False)))
            elif engine.must_say_so(now):
                old.append((engine.judged, _Work(heard, False, engine, urgent=False)))
        # Engines that were read in one round would all grow old in one: so they come apart.
        share = 1.0 if elapsed is None else 1.25 * (elapsed / REFRESH)
        old.sort(key=lambda one: one[0])
        return due + [work for _, work in old[: max(AT_ONCE, math.ceil(len(engines) * share))]]

    def _judge(
        self, workspace: str, settings: Settings, setting: Setting, batch: Sequence[_Work], now: datetime
    ) -> None:
        """Judge some engines and store what comes of it; only then is it known."""
        states = settings.states(workspace, [work.heard.engine_uid for work in batch])
        outcome = Outcome()
        judged: dict[str, Known] = {}
        for work in batch:
            uid = work.heard.engine_uid
            try:
                engine = self._engine(work, settings, setting, states.get(uid, {}), outcome, now)
            except Unavailable:
                raise
            except Exception as error:  # one odd engine must not silence the others
                self._known.pop(uid, None)
                if self._say(f"engine {uid}", f"{type(error).__name__}: {error}"):
                    log.exception("engine %s cannot be evaluated", uid)
            else:
                self._say(f"engine {uid}", "")
                if engine is not None:
                    judged[uid] = engine
        self._put(outcome)
        self._known |= judged

    def _engine(
        self,
        work: _Work,
        settings: Settings,
        setting: Setting,
        before: Mapping[str, AlertRow],
        outcome: Outcome,
        now: datetime,
    ) -> Known | None:
        """Judge one engine into ``outcome``; ``None``: it is gone from the store."""
        heard, engine = work.heard, work.known
        if work.read or engine is None:
            windows = self._read(heard, self._windows(settings, setting, heard), now)
            if windows is None:
                return None
            evidence, said = windows[self._window_s]
            subject = settings.subject(heard.workspace, heard.engine_uid, evidence.name)
            seen, silence = Seen(subject, windows), known.silence_of(evidence, heard, now)
            read, every = now, known.every([one for one, _ in windows.values()], any(silence))
        else:
            subject = settings.subject(heard.workspace, heard.engine_uid, engine.seen.subject.name)
            seen, silence = known.at(engine.seen, subject, heard, now), engine.silence
            read, every = engine.read, engine.every
            said = seen.windows[self._window_s][1]
        had = engine is None or bool(engine.seen.windows[self._window_s][1].findings)
        if said.findings or had:
            self._store.replace_findings(heard.engine_uid, said.findings, now)
        told = judge(setting, seen, before, now)
        outcome.add(told)
        after = {**before, **{row.rule: row for row in told.rows}}
        return Known(
            told=heard.told,
            read=read,
            judged=now,
            seen=Seen(subject, known.lightened(seen.windows)),
            every=every,
            silence=silence,
            waits=any(row.pending for row in after.values()),
            setting=setting,
        )

    def _read(
        self, heard: Heard, windows: Collection[float], now: datetime
    ) -> dict[float, tuple[Evidence, Diagnosis]] | None:
        """Return evidence and diagnosis by window; ``None``: it is gone from the store."""
        found: dict[float, tuple[Evidence, Diagnosis]] = {}
        # What a rule reads of the usual window is that of the state on pages, whatever the server judges by.
        for window_s in {self._window_s if one == DEFAULT_WINDOW_S else one for one in windows}:
            evidence = self._store.evidence(heard.workspace, heard.engine_uid, now, window_s)
            if evidence is None:
                return None
            found[window_s] = evidence, diagnose(evidence)
        found[DEFAULT_WINDOW_S] = found[self._window_s]
        return found

    def _close(
        self, workspace: str, settings: Settings, setting: Setting, heard: Collection[str], now: datetime
    ) -> None:
        """End the states of engines that have not been heard for a day."""
        gone = [uid for uid in self._store.alerted(workspace) if uid not in heard]
        outcome = Outcome()
        for uid, states in sorted(settings.states(workspace, gone).items()):
            # While a server runs findings are closed after an hour; this one ended while none did.
            self._store.replace_findings(uid, (), now)
            for row in states.values():
                if row.state != NO_DATA:
                    outcome.add(end(setting, settings.gone(workspace, row), row, FORGOTTEN, now))
        self._put(outcome)

    def _put(self, outcome: Outcome) -> None:
        if outcome.rows:
            self._store.set_alerts(outcome.rows, outcome.deliveries, outcome.evidence)


def _is_open(engine: Known | None, heard: Heard, now: datetime) -> bool:
    """Say whether more traffic, or its silence, may still turn what is known of an engine."""
    if engine is None or engine.waits or known.silence_of(engine.evidence, heard, now) != engine.silence:
        return True
    return any(said.state.word not in SETTLED_WORDS for _, said in engine.seen.windows.values())

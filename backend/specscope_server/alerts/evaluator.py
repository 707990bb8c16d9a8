"""The loop over all engines: evidence, diagnosis, findings, rule states, notifications.

Everything it must remember is in the store, also what waits for its duration, so a restart loses no state and
repeats no notification. Of all servers (and their workers)
that share a database one evaluates and delivers: the one that holds the lease, which another takes over
when that one is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from specscope_server.alerts.alertmanager import REFRESH_S
from specscope_server.alerts.delivery import Deliverer, utc_now
from specscope_server.alerts.judge import Outcome, Seen, Setting, end, judge
from specscope_server.alerts.refresh import Refresher
from specscope_server.alerts.rules import NO_DATA
from specscope_server.alerts.settings import DEFAULT_WINDOW_S, Settings
from specscope_server.alerts.targets import parse_target
from specscope_server.diagnosis import diagnose
from specscope_server.store.model import AlertRow
from specscope_server.store.port import Store, StoreError, Unavailable

WINDOW_S: Final = 300.0
INTERVAL_S: Final = 2.0
DELIVER_EVERY_S: Final = 1.0
DEFAULT_WORKSPACE: Final = "default"
FORGOTTEN: Final = "tracer silent: nothing was heard of this engine for a day"
LEASE: Final = "evaluator"

log = logging.getLogger(__name__)


class Evaluator:
    """Evaluates every engine each ``interval_s`` and delivers what changed."""

    def __init__(
        self,
        store: Store,
        targets: Sequence[str] = (),
        *,
        secret: bytes = b"",
        interval_s: float = INTERVAL_S,
        window_s: float = WINDOW_S,
        base_url: str = "",
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Watch the engines of ``store``; ``targets`` are URLs as :func:`parse_target` takes them.

        ``base_url`` (e.g. ``http://host:4318``) precedes the links in notifications; ``secret`` signs
        those to webhooks.

        Raises:
            TargetError: nothing can be sent to one of the targets.
        """
        parsed = {target.label: target for target in (parse_target(url, secret) for url in targets)}
        self.labels = tuple(parsed)
        self.targets = tuple(parsed.values())
        self.deliverer = Deliverer(store, self.targets, clock)
        self.refresher = Refresher(store, self.targets, base_url, clock)
        self._store = store
        self._lease = store.lease(LEASE)
        self.leads = False
        """Whether this server evaluated last: no other one does meanwhile."""
        self._interval_s = interval_s
        self._window_s = window_s
        self._base_url = base_url.rstrip("/")
        self._clock = clock
        self._without_findings: set[str] = set()
        self._trouble: dict[str, str] = {}
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._stopped.set()

    async def run(self) -> None:
        """Evaluate and deliver until :meth:`stop`; no error of an engine or of the store ends it."""
        self._stopped.clear()
        try:
            await asyncio.gather(
                self._repeat("evaluation", self._evaluate_alone, self._interval_s),
                self._repeat("delivery", self._deliver_alone, DELIVER_EVERY_S),
                self._repeat("refreshing Alertmanagers", self._refresh_alone, REFRESH_S),
            )
            await self._guarded("delivery", self.deliverer.drain)
        finally:
            self.deliverer.close()
            await asyncio.to_thread(self._lease.release)
            self._stopped.set()

    async def stop(self) -> None:
        """Stop :meth:`run` and wait for it: what is being written or sent is finished."""
        self._stopping.set()
        await self._stopped.wait()

    async def evaluate(self) -> None:
        """Evaluate every engine once.

        Raises:
            StoreError: the database cannot serve; nothing was changed that is not stored.
        """
        await asyncio.to_thread(self.evaluate_now)

    async def _evaluate_alone(self) -> None:
        """Evaluate while no other server does."""
        if await self._has_lease():
            await self.evaluate()

    async def _deliver_alone(self) -> None:
        """Deliver while no other server does."""
        if await self._has_lease():
            await self.deliverer.deliver_due()

    async def _refresh_alone(self) -> None:
        """Tell Alertmanagers what still fires, while no other server does."""
        if self.refresher.targets and await self._has_lease():
            await self.refresher.refresh()

    async def _has_lease(self) -> bool:
        leads = False
        try:
            leads = await asyncio.to_thread(self._lease.hold)
        finally:
            if leads != self.leads:
                log.info("this server %s alerts", "now evaluates" if leads else "no longer evaluates")
            self.leads = leads
        return leads

    async def _repeat(self, what: str, work: Callable[[], Awaitable[None]], every_s: float) -> None:
        while not self._stopping.is_set():
            await self._guarded(what, work)
            try:
                await asyncio.wait_for(self._stopping.wait(), every_s)
            except TimeoutError:
                continue

    async def _guarded(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except StoreError as error:
            self._say(what, f"the store cannot serve: {error}")
        except Exception as error:  # the loop outlives any fault of ours
            if self._say(what, f"{type(error).__name__}: {error}"):
                log.exception("%s failed", what)
        else:
            self._say(what, "")

    def _say(self, what: str, trouble: str) -> bool:
        """Log a trouble once, and its end once; return whether it is new."""
        before = self._trouble.get(what, "")
        self._trouble[what] = trouble
        if trouble == before:
            return False
        if trouble:
            log.warning("%s: %s", what, trouble)
        else:
            log.info("%s works again", what)
        return True

    # Everything below runs in one worker thread at a time.

    def evaluate_now(self) -> None:
        """Evaluate every engine once, in the calling thread. Raises as :meth:`evaluate`."""
        engines = self._store.engine_uids()
        now = self._clock()
        settings = Settings(self._store, self.labels, self._base_url, now)
        by_workspace: dict[str, list[str]] = {DEFAULT_WORKSPACE: []}
        for workspace, uid in engines:
            by_workspace.setdefault(workspace, []).append(uid)
        outcome = Outcome()
        for workspace, uids in sorted(by_workspace.items()):
            setting, before = settings.of(workspace), settings.states(workspace)
            for uid in uids:
                try:
                    outcome.add(self._engine(workspace, uid, setting, settings, before.pop(uid, {}), now))
                except Unavailable:
                    raise
                except Exception as error:  # one odd engine must not silence the others
                    if self._say(f"engine {uid}", f"{type(error).__name__}: {error}"):
                        log.exception("engine %s cannot be evaluated", uid)
                else:
                    self._say(f"engine {uid}", "")
            # Whoever is left has not been heard for a day.
            for uid, states in sorted(before.items()):
                open_states = [row for row in states.values() if row.state != NO_DATA]
                if open_states:
                    # While a server runs findings are closed after an hour; this one ended while none did.
                    self._store.replace_findings(uid, (), now)
                for row in open_states:
                    outcome.add(end(setting, settings.gone(workspace, row), row, FORGOTTEN, now))
        if outcome.rows:
            self._store.set_alerts(outcome.rows, outcome.deliveries, outcome.evidence)

    def _engine(
        self,
        workspace: str,
        uid: str,
        setting: Setting,
        settings: Settings,
        before: Mapping[str, AlertRow],
        now: datetime,
    ) -> Outcome:
        evidence = self._store.evidence(workspace, uid, now, self._window_s)
        if evidence is None:
            return Outcome()
        said = diagnose(evidence)
        if said.findings or uid not in self._without_findings:
            self._store.replace_findings(uid, said.findings, now)
            (self._without_findings.discard if said.findings else self._without_findings.add)(uid)
        subject = settings.subject(workspace, uid, evidence.name)
        windows = {self._window_s: (evidence, said), DEFAULT_WINDOW_S: (evidence, said)}
        for window_s in {rule.window_s for rule in setting.rules if rule.applies(subject)} - set(windows):
            of_rule = self._store.evidence(workspace, uid, now, window_s)
            if of_rule is None:
                return Outcome()
            windows[window_s] = (of_rule, diagnose(of_rule))
        return judge(setting, Seen(subject, windows), before, now)

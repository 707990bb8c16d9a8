"""The loop over all engines: evidence, diagnosis, findings, rule states, notifications.

Everything it must remember is in the store, so a restart loses no state and repeats no notification; only
a change that was still waiting for its duration starts to wait again. Of all servers (and their workers)
that share a database one evaluates and delivers: the one that holds the lease, which another takes over
when that one is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

from specscope_server.alerts.delivery import Deliverer, utc_now
from specscope_server.alerts.payload import payload
from specscope_server.alerts.rules import NO_DATA, RULES, read
from specscope_server.alerts.targets import parse_target
from specscope_server.alerts.transition import Pending, forgotten, step
from specscope_server.diagnosis import diagnose
from specscope_server.store.model import AlertRow
from specscope_server.store.port import NewDelivery, Store, StoreError, Unavailable

WINDOW_S: Final = 300.0
INTERVAL_S: Final = 2.0
DELIVER_EVERY_S: Final = 1.0
DEFAULT_WORKSPACE: Final = "default"
LEASE: Final = "evaluator"

log = logging.getLogger(__name__)


class Evaluator:
    """Evaluates every engine each ``interval_s`` and delivers what changed."""

    def __init__(
        self,
        store: Store,
        targets: Sequence[str] = (),
        *,
        interval_s: float = INTERVAL_S,
        window_s: float = WINDOW_S,
        base_url: str = "",
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Watch the engines of ``store``; ``targets`` are URLs as :func:`parse_target` takes them.

        ``base_url`` (e.g. ``http://host:4318``) precedes the links in notifications.

        Raises:
            TargetError: nothing can be sent to one of the targets.
        """
        parsed = {target.label: target for target in map(parse_target, targets)}
        self.labels = tuple(parsed)
        self.deliverer = Deliverer(store, tuple(parsed.values()), clock)
        self._store = store
        self._lease = store.lease(LEASE)
        self.leads = False
        """Whether this server evaluated last: no other one does meanwhile."""
        self._interval_s = interval_s
        self._window_s = window_s
        self._base_url = base_url.rstrip("/")
        self._clock = clock
        self._pending: dict[tuple[str, str], Pending] = {}
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

    async def _has_lease(self) -> bool:
        leads = False
        try:
            leads = await asyncio.to_thread(self._lease.hold)
        finally:
            if leads != self.leads:
                log.info("this server %s alerts", "now evaluates" if leads else "no longer evaluates")
                # What waited for its duration here may be long over: it is the other server's to say.
                self._pending = {}
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
        workspaces = {DEFAULT_WORKSPACE, *(workspace for workspace, _ in engines)}
        before = {
            (row.rule, row.engine_uid): row
            for workspace in sorted(workspaces)
            for row in self._store.alerts(workspace)
        }
        rows: list[AlertRow] = []
        deliveries: list[NewDelivery] = []
        pending: dict[tuple[str, str], Pending] = {}
        for workspace, uid in engines:
            mine = {rule.name: before.get((rule.name, uid)) for rule in RULES}
            try:
                self._engine(workspace, uid, mine, now, rows, deliveries, pending)
            except Unavailable:
                raise
            except Exception as error:  # one odd engine must not silence the others
                if self._say(f"engine {uid}", f"{type(error).__name__}: {error}"):
                    log.exception("engine %s cannot be evaluated", uid)
            else:
                self._say(f"engine {uid}", "")
        heard = {uid for _, uid in engines}
        gone = [row for row in before.values() if row.engine_uid not in heard and row.state != NO_DATA]
        for uid in sorted({row.engine_uid for row in gone}):
            # While this server ran its findings were closed after an hour; this one ended while it did not.
            self._store.replace_findings(uid, (), now)
        rows += [forgotten(row, now) for row in gone]
        if rows:
            self._store.set_alerts(rows, deliveries)
        # Only once it is stored: an evaluation that was not must be repeated in full.
        self._pending = pending

    def _engine(
        self,
        workspace: str,
        uid: str,
        before: dict[str, AlertRow | None],
        now: datetime,
        rows: list[AlertRow],
        deliveries: list[NewDelivery],
        pending: dict[tuple[str, str], Pending],
    ) -> None:
        evidence = self._store.evidence(workspace, uid, now, self._window_s)
        if evidence is None:
            return
        said = diagnose(evidence)
        if said.findings or uid not in self._without_findings:
            self._store.replace_findings(uid, said.findings, now)
            (self._without_findings.discard if said.findings else self._without_findings.add)(uid)
        for rule in RULES:
            row = before[rule.name]
            key = (rule.name, uid)
            found = step(rule, uid, evidence.name, read(rule, said), row, self._pending.get(key), now)
            rows.append(found.row)
            if found.pending is not None:
                pending[key] = found.pending
            if found.notify:
                findings = [f for f in said.findings if f.kind in rule.kinds]
                told = payload(found.row, row.state if row else NO_DATA, workspace, findings, self._base_url)
                deliveries += [
                    NewDelivery(rule.name, uid, found.row.state, label, told) for label in self.labels
                ]

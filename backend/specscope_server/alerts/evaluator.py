"""The loop over all engines: evidence, diagnosis, findings, rule states, notifications.

Everything it must remember is in the store, also what waits for its duration, so a restart loses no state and
repeats no notification. Of all servers (and their workers)
that share a database one evaluates and delivers: the one that holds the lease, which another takes over
when that one is gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

from specscope_server.alerts.alertmanager import REFRESH_S
from specscope_server.alerts.delivery import Deliverer, utc_now
from specscope_server.alerts.refresh import Refresher
from specscope_server.alerts.rounds import BUDGET_S, Rounds
from specscope_server.alerts.targets import parse_target
from specscope_server.store.port import Store, StoreError

WINDOW_S: Final = 300.0
INTERVAL_S: Final = 2.0
"""Pause between two rounds at most."""
PAUSE_S: Final = 0.5
"""And at least, but for a shorter interval."""
PAUSES: Final = 10
"""A pause is this many times as long as the round before it: few engines are judged twice a second, and no
fleet has judging take more than a tenth of a core before the interval is reached."""
DELIVER_EVERY_S: Final = 1.0
LEASE: Final = "evaluator"

log = logging.getLogger(__name__)


class Evaluator:
    """Evaluates every engine each ``interval_s`` or more often, and delivers what changed."""

    def __init__(
        self,
        store: Store,
        targets: Sequence[str] = (),
        *,
        secret: bytes = b"",
        interval_s: float = INTERVAL_S,
        window_s: float = WINDOW_S,
        budget_s: float = BUDGET_S,
        base_url: str = "",
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Watch the engines of ``store``; ``targets`` are URLs as :func:`parse_target` takes them.

        ``base_url`` (e.g. ``http://host:4318``) precedes the links in notifications; ``secret`` signs
        those to webhooks. A round takes ``budget_s`` of wall time and a batch more at most: the rest waits
        for the next.

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
        self._clock = clock
        self._rounds = Rounds(store, self.labels, window_s, base_url.rstrip("/"), self._say, budget_s)
        self._trouble: dict[str, str] = {}
        self._judged = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._stopped.set()

    async def run(self) -> None:
        """Evaluate and deliver until :meth:`stop`; no error of an engine or of the store ends it."""
        self._stopped.clear()
        try:
            await asyncio.gather(
                self._repeat("evaluation", self._evaluate_alone, self._interval_s, eager=True),
                self._repeat("delivery", self._deliver_alone, DELIVER_EVERY_S, sooner=self._judged),
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
        self._judged.set()
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
            self._judged.set()

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
                self._rounds.forget()
            self.leads = leads
        return leads

    async def _repeat(
        self,
        what: str,
        work: Callable[[], Awaitable[None]],
        every_s: float,
        *,
        sooner: asyncio.Event | None = None,
        eager: bool = False,
    ) -> None:
        """Work each ``every_s`` until the stop, also once ``sooner`` is set; ``eager``: oftener if quick."""
        wake = self._stopping if sooner is None else sooner
        while not self._stopping.is_set():
            began = time.monotonic()
            await self._guarded(what, work)
            took = time.monotonic() - began
            pause = min(every_s, max(PAUSE_S, PAUSES * took)) if eager else every_s
            try:
                await asyncio.wait_for(wake.wait(), pause)
            except TimeoutError:
                continue
            if sooner is not None:
                sooner.clear()

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

    def evaluate_now(self) -> None:
        """Evaluate every engine once, in this thread; not twice at once. Raises as :meth:`evaluate`."""
        self._rounds.run(self._clock())

"""Delivery of queued notifications: in order for each alert and address, retried, then given up visibly.

At least once: should the server die between a delivery and noting it, the same message goes out again
with the same ``Idempotency-Key``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from specscope_server.alerts.send import send
from specscope_server.alerts.targets import Target
from specscope_server.store.model import DeliveryRow
from specscope_server.store.port import Store

RETRY_AFTER_S: Final = (2, 5, 15, 60, 180, 600, 1800)
"""Seconds from an attempt to the next; after the eighth (about 44 minutes in) the message has failed."""
MAX_ATTEMPTS: Final = len(RETRY_AFTER_S) + 1
BATCH: Final = 500
"""Messages to one address that are taken up at once."""
AT_ONCE: Final = 4
"""Messages on their way to one address at the same time."""
DRAIN_S: Final = 5.0
"""How long a stop waits for answers; what has none by then is sent again after the next start."""

log = logging.getLogger(__name__)

Key = tuple[str, str, str]
"""(address, rule, engine): messages of one key are delivered in the order of their state changes."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of an attempt, until the store has noted it."""

    error: str
    next_attempt: datetime | None


def utc_now() -> datetime:
    """Return the time now, with its zone."""
    return datetime.now(UTC)


class Deliverer:
    """Sends what is due. Not thread-safe: one task drives it."""

    def __init__(
        self, store: Store, targets: Sequence[Target], clock: Callable[[], datetime] = utc_now
    ) -> None:
        """Deliver to ``targets``; a queued message for any other address fails at once, and says why."""
        self._store = store
        self._targets = {target.label: target for target in targets}
        self._clock = clock
        self._slots = {label: asyncio.Semaphore(AT_ONCE) for label in self._targets}
        # As many for each address: one that hangs takes no thread from another.
        blocking = sum(not target.kind for target in self._targets.values())
        self._threads = ThreadPoolExecutor(AT_ONCE * max(blocking, 1), thread_name_prefix="apprise")
        self._sending: dict[Key, asyncio.Task[None]] = {}
        self._unsettled: dict[int, _Outcome] = {}

    async def deliver_due(self) -> None:
        """Start sending what is due, without waiting for the answers.

        Raises:
            StoreError: the database cannot serve; what was sent meanwhile is remembered and noted later.
        """
        await self._settle_all()
        now = self._clock()
        due = await asyncio.to_thread(self._store.due_deliveries, now, BATCH)
        for row in sorted(due, key=lambda row: row.id):
            key = (row.target, row.rule, row.engine_uid)
            # The store tells the first of a key alone, also while that is on its way.
            if key not in self._sending and row.id not in self._unsettled:
                self._sending[key] = asyncio.create_task(self._attempt(key, row))

    async def drain(self) -> None:
        """Wait, but not for long, until what is being sent has been answered, and note it.

        Raises:
            StoreError: the database cannot serve.
        """
        if self._sending:
            _, late = await asyncio.wait(self._sending.values(), timeout=DRAIN_S)
            for task in late:
                task.cancel()
        await self._settle_all()

    def close(self) -> None:
        """Let go of the threads; idempotent."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _attempt(self, key: Key, row: DeliveryRow) -> None:
        try:
            target = self._targets.get(row.target)
            if target is None:
                error = f"this server does not notify {row.target} any more: start it with its --notify again"
                outcome = _Outcome(error, None)
            else:
                outcome = self._outcome(row, await self._send(target, row))
            self._unsettled[row.id] = outcome
        finally:
            del self._sending[key]

    async def _send(self, target: Target, row: DeliveryRow) -> str:
        try:
            async with self._slots[target.label]:
                return await send(target, row.payload, self._threads)
        except Exception as error:  # a fault of ours must cost one attempt, not the loop
            log.exception("notification %d could not be sent to %s", row.id, target.label)
            return type(error).__name__

    def _outcome(self, row: DeliveryRow, error: str) -> _Outcome:
        attempts = row.attempts + 1
        if not error:
            return _Outcome("", None)
        if attempts >= MAX_ATTEMPTS:
            log.warning("notification %d to %s given up: %s", row.id, row.target, error)
            return _Outcome(error, None)
        return _Outcome(error, self._clock() + timedelta(seconds=RETRY_AFTER_S[attempts - 1]))

    async def _settle_all(self) -> None:
        for delivery_id, outcome in list(self._unsettled.items()):
            await asyncio.to_thread(
                self._store.settle_delivery,
                delivery_id,
                error=outcome.error,
                next_attempt=outcome.next_attempt,
            )
            del self._unsettled[delivery_id]

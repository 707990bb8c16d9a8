"""The task that keeps a server's database within its ages and size: one server's of all that share it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from specscope_server.store import schema
from specscope_server.store.port import Pruned, Store, StoreError

LEASE: Final = "housekeeping"
SIZE_EVERY_S: Final = 60.0
"""Between looks at the size of the database; at 4 MB/s it grows by a quarter of a GiB meanwhile."""
AGES_EVERY_S: Final = 600.0
"""Between rounds over all ages; partitions are made days ahead, so that one missed is none."""
_CHUNKS: Final = schema.step_chunk.name
_SHARE: Final = 4
"""Of the time, at most one part in so many is spent deleting."""

log = logging.getLogger(__name__)


def deleted_rows(registry: CollectorRegistry) -> Counter:
    """Return the counter of what housekeeping deleted, by table."""
    return Counter(
        "specscope_housekeeping_deleted_rows",
        "Rows deleted as too old or beyond the size of the database.",
        ("table",),
        registry=registry,
    )


class Housekeeper:
    """Keeps house while it holds the lease. One task drives it."""

    def __init__(
        self,
        store: Store,
        *,
        size_every_s: float = SIZE_EVERY_S,
        ages_every_s: float = AGES_EVERY_S,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        registry: CollectorRegistry | None = None,
    ) -> None:
        """Keep house in ``store``; ``registry`` tells how many rows that deleted."""
        self._store = store
        self._lease = store.lease(LEASE)
        self._size_every_s, self._ages_every_s = size_every_s, ages_every_s
        self._clock = clock
        self._stopping = asyncio.Event()
        self._trouble = ""
        self._deleted = deleted_rows(registry or CollectorRegistry())

    async def run(self) -> None:
        """Keep house until :meth:`stop`; no error of the store ends it."""
        ages_due = 0.0
        try:
            while not self._stopping.is_set():
                if await self._guarded(time.monotonic() >= ages_due):
                    ages_due = time.monotonic() + self._ages_every_s
                await self._wait(self._size_every_s)
        finally:
            await asyncio.to_thread(self._lease.release)

    def stop(self) -> None:
        """Let :meth:`run` end after the step that it is at."""
        self._stopping.set()

    async def _guarded(self, ages: bool) -> bool:
        """Do a round; say whether the ages need no other one soon."""
        try:
            if not await asyncio.to_thread(self._lease.hold):
                return False
            now = self._clock()
            await self._steps(self._store.prune(now) if ages else self._store.shrink(now))
        except StoreError as error:
            self._say(str(error))
            return False
        except Exception as error:  # the task outlives any fault of ours
            log.exception("housekeeping failed")
            self._say(f"{type(error).__name__}: {error}")
            return True
        self._say("")
        return ages

    async def _steps(self, steps: Iterator[Pruned]) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            done = await asyncio.to_thread(next, steps, None)
            if done is None:
                return
            # A partition for each day would make a series for each day.
            table = _CHUNKS if done.table.startswith(_CHUNKS) else done.table
            self._deleted.labels(table).inc(done.rows)
            await self._wait(_SHARE * (time.monotonic() - began))

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _say(self, trouble: str) -> None:
        """Log a trouble once, and its end once."""
        if trouble != self._trouble:
            if trouble:
                log.warning("housekeeping: %s", trouble)
            else:
                log.info("housekeeping works again")
        self._trouble = trouble

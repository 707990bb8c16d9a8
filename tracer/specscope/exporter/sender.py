"""The sending thread: a queue bounded in bytes, the only retry loop, and one line a state change."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from itertools import islice
from typing import Final

from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.trace import ReadableSpan

from specscope.exporter.link import Answer, Link
from specscope.exporter.spans import size_of

_logger = logging.getLogger("specscope.exporter")

BATCH_SPANS: Final = 512
BATCH_BYTES: Final = 2 << 20
"""Estimated bytes in one request, well under receivers' usual limit of 4 MiB."""
GATHER_S: Final = 0.1
"""Wait after the first span for others to go along."""
FIRST_BACKOFF_S: Final = 0.25
MAX_BACKOFF_S: Final = 5.0

BUFFER_FULL: Final = "buffer_full"
REJECTED: Final = "rejected"


@dataclass(frozen=True, slots=True)
class _Item:
    number: int
    size: int
    span: ReadableSpan
    settles: int
    """Newest record that has all its data in this item or before."""


class Sender:
    """Owns the link. Spans are delivered in order; metrics overtake them, for only the newest count."""

    def __init__(self, link: Link, buffer_bytes: int) -> None:
        """Keep at most about ``buffer_bytes`` of spans; :meth:`start` starts the thread."""
        self._link = link
        self._limit = buffer_bytes
        self._items: deque[_Item] = deque()
        self._bytes = 0
        self._next = 0
        self._metrics: MetricsData | None = None
        self._changed = threading.Condition()
        self._stop_at: float | None = None
        self._settled = self._settling = 0
        self._failing_since = 0.0
        self._complained = False
        self.dropped: Counter[str] = Counter()
        """Spans lost here, by reason."""
        self.failures = 0
        """Attempts that did not arrive."""
        self.reachable = True
        """The last attempt arrived, or there was none yet."""
        self._thread = threading.Thread(target=self._run, name="specscope-sender", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def settled(self) -> int:
        """Return the newest record up to which everything has arrived or is counted as dropped."""
        with self._changed:
            return self._settling if not self._items else self._settled

    def put(self, span: ReadableSpan) -> None:
        """Queue a span; when the buffer is full the oldest is dropped and counted."""
        size = size_of(span.attributes or {})  # pyright: ignore[reportArgumentType] - our own values
        with self._changed:
            self._items.append(_Item(self._next, size, span, self._settling))
            self._next += 1
            self._bytes += size
            while self._bytes > self._limit and len(self._items) > 1:
                self._pop()
                self.dropped[BUFFER_FULL] += 1
            self._changed.notify()

    def put_metrics(self, data: MetricsData) -> None:
        """Queue metrics in place of older ones: they are cumulative."""
        with self._changed:
            self._metrics = data
            self._changed.notify()

    def settle(self, record: int) -> None:
        """Note that all data of the records up to ``record`` has been queued."""
        with self._changed:
            self._settling = record

    def stop(self, patience_s: float) -> None:
        """End once everything is delivered, or after ``patience_s`` seconds; does not wait for it."""
        deadline = time.monotonic() + patience_s
        self._link.until(deadline)
        with self._changed:
            self._stop_at = deadline
            self._changed.notify()

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the end after :meth:`stop`; say whether the thread still runs."""
        self._thread.join(seconds)
        return self._thread.is_alive()

    @property
    def left(self) -> int:
        """Return how many spans are queued."""
        return len(self._items)

    def _pop(self) -> _Item:
        item = self._items.popleft()
        self._bytes -= item.size
        self._settled = item.settles
        return item

    def _run(self) -> None:
        backoff = 0.0
        while True:
            with self._changed:
                if not self._items and self._metrics is None:
                    if self._stop_at is not None:
                        return
                    self._changed.wait()
                if backoff or (self._stop_at is None and self._bytes < BATCH_BYTES):
                    self._wait(backoff or GATHER_S)
                if self._stop_at is not None and time.monotonic() >= self._stop_at:
                    return
            try:
                arrived = self._round()
            except Exception as error:  # noqa: BLE001 - the thread must outlive what nobody foresaw
                arrived = False
                self.failures += 1
                if not self._complained:
                    self._complained = True
                    _logger.warning("specscope exporter: sender: %s: %s", type(error).__name__, error)
            if arrived:
                backoff = 0.0
            else:
                # Jitter: the processes of a deployment must not come back all at once.
                doubled = max(FIRST_BACKOFF_S, min(backoff * 2, MAX_BACKOFF_S))
                backoff = doubled * random.uniform(0.8, 1.0)

    def _wait(self, seconds: float) -> None:
        """Wait, whatever is queued meanwhile; a stop shortens the wait to what a last try needs."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._stop_at is not None:
                left = min(left, FIRST_BACKOFF_S, max(0.0, self._stop_at - time.monotonic()))
                if left > 0:
                    self._changed.wait(left)
                return
            self._changed.wait(left)

    def _round(self) -> bool:
        """Send the metrics and one batch; say whether all of it arrived (or never will)."""
        with self._changed:
            data, self._metrics = self._metrics, None
            batch = self._batch()
        if data is not None:
            answer = self._link.send_metrics(data)
            # What only the metrics' side of a receiver refuses must not hold up the spans, nor come again:
            # the next heartbeat tells more.
            if not answer.answered:
                self._note(answer)
                with self._changed:
                    self._metrics = self._metrics or data
                return False
            self.failures += not answer.taken
        return not batch or self._deliver(batch)

    def _batch(self) -> list[_Item]:
        batch: list[_Item] = []
        size = 0
        for item in islice(self._items, BATCH_SPANS):
            size += item.size
            if batch and size > BATCH_BYTES:
                break
            batch.append(item)
        return batch

    def _deliver(self, batch: list[_Item]) -> bool:
        answer = self._link.send_spans([item.span for item in batch])
        self._note(answer)
        if answer.rejected and len(batch) > 1:
            # One bad or large span must not take its neighbours along.
            half = len(batch) // 2
            return self._deliver(batch[:half]) and self._deliver(batch[half:])
        if not answer.taken and not answer.rejected:
            return False
        with self._changed:
            # The oldest may have been dropped for room while this batch was under way.
            while self._items and self._items[0].number <= batch[-1].number:
                self._pop()
            self.dropped[REJECTED] += len(batch) if answer.rejected else answer.refused_spans
        return True

    def _note(self, answer: Answer) -> None:
        """Count a failure, and say so when the receiver went away or came back."""
        self.failures += not answer.taken
        reachable = answer.taken or answer.rejected
        if reachable == self.reachable:
            return
        self.reachable = reachable
        if reachable:
            away = time.monotonic() - self._failing_since
            _logger.warning("specscope exporter: %s reachable again after %.0f s", self._link.place, away)
        else:
            self._failing_since = time.monotonic()
            _logger.warning(
                "specscope exporter: receiver unreachable at %s: %s; up to %d MiB are kept",
                self._link.place,
                answer.why,
                self._limit >> 20,
            )

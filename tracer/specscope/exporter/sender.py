"""The sending thread: the only retry loop, and one line a state change.

A failed attempt is the receiver's fault until there is evidence that it is the batch's. No answer at all
says nothing of the batch: it is kept and tried again for as long as the buffer has room. An answer of
400, 413 or 422 is about the batch. Any other error is tried again; after :data:`STRIKES` of them for the
same batch the next batch is tried (:mod:`.division`), and only if that one is taken the first was to blame.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.trace import ReadableSpan

from specscope.exporter.backlog import BATCH_BYTES, Backlog, Item
from specscope.exporter.division import Outcome, divide
from specscope.exporter.link import Answer, Link

_logger = logging.getLogger("specscope.exporter")

MIN_BATCH_BYTES: Final = 64 << 10
"""A receiver that finds less than this too large is not asked for less."""
GATHER_S: Final = 0.1
"""Wait after the first span for others to go along."""
FIRST_BACKOFF_S: Final = 0.25
MAX_BACKOFF_S: Final = 5.0
STRIKES: Final = 4
"""Errors answered to one batch, within about 4 s, before the next batch is tried."""
QUIET_S: Final = 60.0
"""Lines about a receiver that comes and goes are at least this far apart."""

BUFFER_FULL: Final = "buffer_full"
REJECTED: Final = "rejected"
RECEIVER_ERROR: Final = "receiver_error"


class Sender:
    """Owns the link. Spans are delivered in order where nothing fails; metrics overtake them, for only the
    newest count.
    """

    def __init__(self, link: Link, buffer_bytes: int) -> None:
        """Keep at most about ``buffer_bytes`` of spans; :meth:`start` starts the thread."""
        self._link = link
        self._backlog = Backlog(buffer_bytes)
        self._metrics: MetricsData | None = None
        self._metrics_from = 0.0
        self._changed = threading.Condition()
        self._stop_at: float | None = None
        self._batch_bytes = self._most_bytes = BATCH_BYTES
        self._struck: list[Item] = []
        self._strikes = 0
        self._divides = True
        self._failing_since = self._quiet_until = 0.0
        self._told_away = self._complained = False
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
            return self._backlog.settled

    def put(self, span: ReadableSpan) -> None:
        """Queue a span; when the buffer is full the oldest is dropped and counted."""
        with self._changed:
            gone = self._backlog.put(span)
            if gone:
                self.dropped[BUFFER_FULL] += gone
            self._changed.notify()

    def put_metrics(self, data: MetricsData) -> None:
        """Queue metrics in place of older ones: they are cumulative."""
        with self._changed:
            self._metrics = data
            self._changed.notify()

    def settle(self, record: int) -> None:
        """Note that all data of the records up to ``record`` has been queued."""
        with self._changed:
            self._backlog.settling = record

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
        return len(self._backlog)

    # --- the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        backoff = asked = 0.0
        while True:
            with self._changed:
                if not self._backlog and not self._metrics_due():
                    if self._stop_at is not None:
                        return
                    held = self._metrics is not None
                    self._changed.wait(max(0.0, self._metrics_from - time.monotonic()) if held else None)
                if backoff or asked:
                    self._wait(max(backoff, asked))
                elif self._stop_at is None and self._backlog.bytes < self._batch_bytes:
                    self._wait(GATHER_S)
                if self._over():
                    return
            asked = 0.0
            try:
                failed = self._round()
            except Exception as error:  # noqa: BLE001 - the thread must outlive what nobody foresaw
                failed = Answer(type(error).__name__)
                self.failures += 1
                if not self._complained:
                    self._complained = True
                    _logger.warning("specscope exporter: sender: %s: %s", type(error).__name__, error)
            if failed is None:
                backoff = 0.0
            else:
                # Jitter: the processes of a deployment must not come back all at once.
                doubled = max(FIRST_BACKOFF_S, min(backoff * 2, MAX_BACKOFF_S))
                backoff, asked = doubled * random.uniform(0.8, 1.0), failed.retry_after_s

    def _metrics_due(self) -> bool:
        """Say whether there are metrics to send now; the last ones wait for nothing."""
        due = self._stop_at is not None or time.monotonic() >= self._metrics_from
        return due and self._metrics is not None

    def _over(self) -> bool:
        return self._stop_at is not None and time.monotonic() >= self._stop_at

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

    def _round(self) -> Answer | None:
        """Send the metrics and one batch; return the answer to wait after, ``None`` to go on at once."""
        with self._changed:
            data = None
            if self._metrics_due():
                data, self._metrics = self._metrics, None
        if data is not None:
            answer = self._link.send_metrics(data)
            # What only the metrics' side of a receiver refuses must not hold up the spans, nor come again:
            # the next heartbeat tells more.
            if not answer.answered:
                self._note(answer)
                with self._changed:
                    self._metrics = self._metrics or data
                return answer
            self._metrics_from = time.monotonic() + answer.retry_after_s
            self.failures += not answer.taken
        with self._changed:
            # What was struck is tried again as it was: only then do the strikes speak of one batch.
            self._struck = [item for item in self._struck if item in self._backlog]
            batch = self._struck or self._backlog.batch(self._batch_bytes)
        return self._deliver(batch) if batch else None

    def _deliver(self, batch: list[Item]) -> Answer | None:
        answer = self._send(batch)
        self._note(answer)
        if answer.taken:
            self._strike_off()
            self._divides = True
            self._batch_bytes = min(self._most_bytes, self._batch_bytes * 2)
            return None
        if (answer.too_large or answer.slow) and len(batch) > 1 and self._batch_bytes > MIN_BATCH_BYTES:
            self._strike_off()
            size = sum(item.size for item in batch)
            self._batch_bytes = max(MIN_BATCH_BYTES, min(size, self._batch_bytes) // 2)
            if answer.too_large:
                self._most_bytes = self._batch_bytes
                return None
        if answer.rejected:
            self._strike_off()
            return self._divide(batch, answer)
        if not answer.answered:
            return answer
        self._struck = batch
        self._strikes += 1
        if self._strikes < STRIKES or not self._takes_others(batch):
            return answer
        self._strike_off()
        return self._divide(batch, answer)

    def _strike_off(self) -> None:
        self._struck, self._strikes = [], 0

    def _takes_others(self, batch: Sequence[Item]) -> bool:
        """Say whether the receiver takes what stands behind ``batch``: then the batch is to blame."""
        with self._changed:
            other = self._backlog.batch(self._batch_bytes, behind=batch)
        if not other:
            return False
        answer = self._send(other)
        self._note(answer)
        return answer.taken

    def _divide(self, batch: list[Item], answer: Answer) -> Answer | None:
        """Find the spans of a batch that cannot be delivered, and drop only these."""
        # A receiver that takes nothing at all is not asked again and again for the parts.
        if self._divides:
            found = divide(self._send, batch, answer, self._over)
        else:
            found = Outcome(*((batch, []) if answer.rejected else ([], batch)), answer)
        self._divides = len(found.rejected) + len(found.failed) < len(batch)
        lost = {REJECTED: found.rejected, RECEIVER_ERROR: found.failed}
        if found.failed and not found.works and not self._takes_others(batch):
            lost.pop(RECEIVER_ERROR)  # it fails at everything by now
        with self._changed:
            for reason, items in lost.items():
                # The oldest may have been dropped for room meanwhile.
                if gone := self._backlog.remove(items):
                    self.dropped[reason] += gone
        stays = any(item in self._backlog for item in batch)
        return found.last if stays else None

    def _send(self, items: Sequence[Item]) -> Answer:
        """Send once; what is taken leaves the backlog."""
        answer = self._link.send_spans([item.span for item in items])
        self.failures += not answer.taken
        if answer.taken:
            with self._changed:
                self._backlog.remove(items)
                if answer.refused_spans:
                    self.dropped[REJECTED] += answer.refused_spans
        return answer

    def _note(self, answer: Answer) -> None:
        """Say so when the receiver goes away or comes back; not often, for the log is the engine's."""
        reachable = answer.taken or answer.rejected
        if reachable == self.reachable:
            return
        self.reachable = reachable
        now = time.monotonic()
        if not reachable:
            self._failing_since = now
            if now >= self._quiet_until:
                self._told_away, self._quiet_until = True, now + QUIET_S
                _logger.warning(
                    "specscope exporter: receiver unreachable at %s: %s; up to %d MiB are kept",
                    self._link.place,
                    answer.why,
                    self._backlog.limit >> 20,
                )
        elif self._told_away:
            self._told_away = False
            away = now - self._failing_since
            _logger.warning("specscope exporter: %s reachable again after %.0f s", self._link.place, away)

"""The drain thread: queue to exporter, and a heartbeat each second, outside the engine thread."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, Final

from specscope import frames
from specscope.clock import Anchor
from specscope.helper import Helper, Keeper
from specscope.records import (
    EngineFacts,
    Record,
    RequestFinished,
    RequestStarted,
    to_tuple,
    without_prompt,
)

if TYPE_CHECKING:
    from specscope.recorder import Recorder

_logger = logging.getLogger("specscope")

PERIOD_S: Final = 0.2
"""A wake-up takes 0.1 to 0.3 ms of CPU before the first record: with 20 a second that was over half of what
the pump took. An engine that is killed loses the records of one period."""
BEAT_S: Final = 1.0
BATCH: Final = 64
"""Records in one frame: the GIL is let go between frames. 32 steps of 256 requests with trees of 16 nodes
are 3 MiB and take 2 ms."""
LIVE: Final = 4096
"""Running requests whose start is told again to a new exporter."""

QUEUE_FULL: Final = "queue_full"
EXPORTER_LOST: Final = "exporter_lost"
EXPORTER_DEAD: Final = "exporter_dead"
NOT_PLAIN: Final = "not_plain"
RANK_STEPS_FULL: Final = "rank_steps_full"


class Pump:
    """Moves the records of one recorder to its exporter."""

    def __init__(self, recorder: Recorder) -> None:
        """Belong to ``recorder``; :meth:`start` starts the thread."""
        self._recorder = recorder
        self._keeper = Keeper()
        self._woken = threading.Event()
        self._stopping = False
        self._patience_s = 0.0
        self._in_order = True
        self._drained = 0
        self._dropped: Counter[str] = Counter()
        self.engine: tuple[int, Any] | None = recorder.engine
        """Number and tuple of the last engine record; told again to each exporter."""
        self._live: OrderedDict[str, Any] = OrderedDict()
        self._complained = False
        self.cpu_ns = 0
        """CPU time of the thread, in ns: what it may have held the GIL for, at most."""
        self._thread = threading.Thread(target=self._run, name="specscope-pump", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Do not wait for the end of the period."""
        self._woken.set()

    def stop(self, timeout_s: float, *, in_order: bool = True) -> None:
        """Hand over everything, say goodbye and end; waits at most ``timeout_s`` seconds.

        ``in_order`` says whether the engine shuts down as it was told to, or fails.
        """
        self._patience_s, self._in_order = timeout_s, in_order
        self._stopping = True
        self._woken.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s + 0.2)

    def abandon(self) -> None:
        """In a forked child: close our copy of the parent's connection."""
        if self._keeper.helper is not None:
            self._keeper.helper.close()

    @property
    def ack(self) -> frames.Ack | None:
        """Return what the exporter said last; it is asked with each heartbeat."""
        helper = self._keeper.helper
        return None if helper is None else helper.ack

    def dropped(self) -> dict[str, int]:
        """Return the engine process' dropped records by reason."""
        emitted = self._recorder.emitted  # read before the queue, see Recorder.emit
        overflown = emitted - self._drained - len(self._recorder.queue)
        self._dropped[QUEUE_FULL] = max(self._dropped[QUEUE_FULL], overflown)
        self._dropped[EXPORTER_LOST] = self._keeper.lost
        if self._recorder.ranks is not None:
            self._dropped[RANK_STEPS_FULL] = self._recorder.ranks.lost()
        return {reason: count for reason, count in self._dropped.items() if count}

    def _run(self) -> None:
        next_beat = 0.0
        while True:
            stopping = self._stopping
            try:
                self._connect()
                self._drain(everything=stopping, until=next_beat)
                beat = stopping or time.monotonic() >= next_beat
                self._tell_ranks(everything=beat)
                if beat:
                    next_beat = time.monotonic() + BEAT_S
                    self._beat()
                if stopping:
                    self._goodbye()
            except Exception as error:  # noqa: BLE001 - the engine's process must not see it
                if not self._complained:
                    self._complained = True
                    _logger.warning("specscope: pump: %s: %s", type(error).__name__, error)
            self.cpu_ns = time.thread_time_ns()
            if stopping:
                return
            if len(self._recorder.queue) < BATCH:
                self._woken.wait(PERIOD_S)
            self._woken.clear()

    def _connect(self) -> None:
        keeper = self._keeper
        if not keeper.wanted():
            return
        hello = dataclasses.replace(
            self._recorder.hello(),
            dropped=keeper.dropped,
            export_failures=keeper.export_failures,
        )
        helper = keeper.start(hello)
        if helper is not None:
            if self.engine is not None:
                # A record like others: the exporter counts it among those it has settled.
                self._send(frames.pack(frames.ENGINE, self.engine), 1)
            live = list(self._live.values())
            for at in range(0, len(live), BATCH):
                self._send(frames.pack(frames.RESUMED, live[at : at + BATCH]))

    def _send(self, frame: bytes, records: int = 0) -> None:
        helper = self._keeper.helper
        if helper is None:  # it died under this batch
            self._keeper.lost += records
            return
        helper.written += records
        try:
            helper.send(frame)
        except OSError as error:
            self._keeper.died(error)

    def _drain(self, *, everything: bool, until: float) -> None:
        """Hand over what is queued; only what there is time for until the next beat, unless ``everything``.

        An engine that is always faster than its exporter must still be heard to live, and to lose records.
        """
        queue = self._recorder.queue
        if self._keeper.gave_up:
            count = len(queue)
            for _ in range(count):
                queue.popleft()
            self._drained += count
            self._dropped[EXPORTER_DEAD] += count
            return
        while queue and self._keeper.helper is not None:
            batch: list[Record] = []
            while queue and len(batch) < BATCH:
                # The engine thread may push the last one out of a full queue between test and pop.
                try:
                    batch.append(queue.popleft())
                except IndexError:
                    break
            self._drained += len(batch)
            self._pass_on(batch)
            if not everything and (len(batch) < BATCH or time.monotonic() >= until):
                return

    def _tell_ranks(self, *, everything: bool) -> None:
        """Send the checksums of verify steps; without an exporter they wait, bounded."""
        ranks = self._recorder.ranks
        while ranks is not None and self._keeper.helper is not None:
            record = ranks.take(everything=everything)
            if record is None:
                return
            self._marshalled(frames.RECORDS, [to_tuple(record)], 1)

    def _pass_on(self, batch: list[Record]) -> None:
        values: list[Any] = []
        for record in batch:
            value = to_tuple(record)
            if isinstance(record, EngineFacts):
                self._flush(values)
                values = []
                self.engine = (0 if self.engine is None else self.engine[0] + 1, value)
                self._marshalled(frames.ENGINE, self.engine, 1)
                continue
            if isinstance(record, RequestStarted):
                # Without the prompt: a restarted exporter needs who it is, not what was asked.
                self._live[record.uid] = without_prompt(value)
                if len(self._live) > LIVE:
                    self._live.popitem(last=False)
            elif isinstance(record, RequestFinished):
                self._live.pop(record.uid, None)
            values.append(value)
        self._flush(values)

    def _flush(self, values: list[Any]) -> None:
        if values and not self._marshalled(frames.RECORDS, values, len(values)) and len(values) > 1:
            for value in values:
                self._marshalled(frames.RECORDS, [value], 1)

    def _marshalled(self, kind: str, payload: Any, records: int) -> bool:
        try:
            frame = frames.pack(kind, payload)
        except ValueError:  # an adapter let a tensor or a numpy number through
            self._dropped[NOT_PLAIN] += records == 1
            return False
        self._send(frame, records)
        return True

    def _beat(self) -> None:
        recorder, helper = self._recorder, self._keeper.helper
        if helper is None:
            return
        try:
            helper.poll()
        except OSError as error:
            self._keeper.died(error)
            return
        ledger = recorder.ledger
        expected, observed = ledger.sums()
        self._send(
            frames.pack(
                frames.BEAT,
                frames.Beat(
                    anchor=Anchor.now(),
                    expected=dict(expected),
                    observed=dict(observed),
                    armed={name: (a.state, a.reason) for name, a in list(ledger.armed.items())},
                    requests=dict(ledger.requests),
                    dropped=self.dropped(),
                    queued=len(recorder.queue),
                    hook_errors=dict(recorder.hook_errors),
                    engine_thread_ns=recorder.engine_thread_ns,
                    missed=dict(recorder.missed),
                    pass_times=dict(recorder.pass_times.sums),
                ),
            )
        )

    def _goodbye(self) -> None:
        helper: Helper | None = self._keeper.helper
        if helper is not None:
            helper.say_goodbye(self._patience_s, in_order=self._in_order)
            self._keeper.helper = None

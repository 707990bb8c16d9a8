"""The engine side: takes records on the engine thread and hands them to the exporter process.

The engine thread appends to a bounded queue and nothing else. One daemon thread a process moves records
to the exporter (:mod:`specscope.pump`), started at once by :func:`start` and again, on the first record,
in a forked child.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import time
import weakref
from collections import Counter, deque
from multiprocessing import util as multiprocessing_util
from typing import Any, Final

from specscope import frames, identity
from specscope.clock import Anchor
from specscope.ledger import Ledger
from specscope.pass_times import PassTimes
from specscope.pump import Pump
from specscope.ranks import RankHashes
from specscope.records import Record
from specscope.settings import Settings

_logger = logging.getLogger("specscope")

HOOK_ERRORS: Final = 3
"""Errors of one hook after which it must disarm itself."""
CLOSE_S: Final = 2.0
"""Seconds that :meth:`Recorder.close` waits for the exporter to deliver the last records."""

_live: weakref.WeakSet[Recorder] = weakref.WeakSet()


class Recorder:
    """What an adapter holds: queue, ledger and counters of one engine process.

    ``emit``, ``hook_failed`` and ``add_engine_time`` never raise and never block. ``ledger`` is changed by
    the engine thread only; ``instance`` goes into the request uids.
    """

    def __init__(
        self, settings: Settings, *, role: str, ranks: identity.Ranks, engine_name: str, engine_version: str
    ) -> None:
        """Take the settings; use :func:`start`."""
        self.settings = settings
        self.instance = settings.instance or identity.new_instance()
        self.ledger = Ledger()
        self.engine: tuple[int, Any] | None = None
        """In a forked child: the engine record that its parent told last."""
        self.ranks: RankHashes | None = None
        """Where each verify step is added, ``None`` where this rank has no others to be compared with."""
        self.pass_times = PassTimes()
        """Where each pass of the engine is noted."""
        self._who = (role, ranks, engine_name, engine_version)
        self._reset()

    def _reset(self) -> None:
        """Become the recorder of the process that runs this."""
        self.pid = os.getpid()
        self.start_ns = time.time_ns()
        role, ranks, *_ = self._who
        self.process = identity.process_uid(self.instance, role, ranks, self.pid, self.start_ns)
        self.queue: deque[Record] = deque(maxlen=self.settings.queue)
        self.emitted = 0
        self.hook_errors: Counter[str] = Counter()
        self.engine_thread_ns = 0
        self.missed: Counter[str] = Counter()
        self.pass_times.clear()
        self.closed = bool(self.settings.off)
        self._wake_at = self.settings.queue // 2
        self._pump: Pump | None = None

    def hello(self) -> frames.Hello:
        """Return who this process is."""
        role, ranks, engine_name, engine_version = self._who
        return frames.Hello(
            settings=self.settings,
            instance=self.instance,
            process=self.process,
            pid=self.pid,
            start_ns=self.start_ns,
            role=role,
            ranks=ranks,
            engine_name=engine_name,
            engine_version=engine_version,
            anchor=Anchor.now(),
        )

    def compare_ranks(self, size: int) -> None:
        """Be one of ``size`` ranks that must agree on every step; one has nobody to agree with."""
        self.ranks = RankHashes(size) if size > 1 else None

    def emit(self, record: Record) -> None:
        """Queue a record; when the queue is full the oldest is dropped and counted."""
        if self.closed:
            return
        # Counted after the append: what the pump computes as dropped is then never too high.
        self.queue.append(record)
        self.emitted += 1
        if self._pump is None:
            self._start()
        elif len(self.queue) >= self._wake_at:
            self._pump.wake()

    def hook_failed(self, hook: str, error: BaseException) -> bool:
        """Count an error of ``hook``; ``True`` when it has failed often enough to disarm itself."""
        self.hook_errors[hook] += 1
        if self.hook_errors[hook] == 1:
            with contextlib.suppress(Exception):
                _logger.warning("specscope: hook %s failed: %s: %s", hook, type(error).__name__, error)
        return self.hook_errors[hook] >= HOOK_ERRORS

    def add_engine_time(self, ns: int) -> None:
        """Count time that the tracer took from the engine thread, in ns."""
        self.engine_thread_ns += ns

    @property
    def exporter_pid(self) -> int | None:
        """Return the process id of the exporter, once it has answered."""
        ack = None if self._pump is None else self._pump.ack
        return None if ack is None else ack.pid

    def dropped(self) -> dict[str, int]:
        """Return the records dropped so far, by reason."""
        return {} if self._pump is None else self._pump.dropped()

    def _start(self) -> None:
        try:
            self._pump = Pump(self)
            self._pump.start()
        except Exception as error:  # noqa: BLE001 - no thread to be had: trace nothing, harm nothing
            self.closed = True
            with contextlib.suppress(Exception):
                _logger.warning("specscope: tracing is off: %s: %s", type(error).__name__, error)

    def close(self, *, in_order: bool = True) -> None:
        """Hand over what is queued, wait at most :data:`CLOSE_S` for its delivery, and stop. Idempotent.

        ``in_order`` is told: an engine that was shut down is not one that failed.
        """
        if self.closed:
            return
        self.closed = True
        if self._pump is not None and self.pid == os.getpid():
            self._pump.stop(CLOSE_S, in_order=in_order)

    def forked(self) -> None:
        """In a forked child: drop what belongs to the parent and become a process of its own."""
        if self._pump is not None:
            self.engine = self._pump.engine
            self._pump.abandon()
        if self.ranks is not None:
            self.compare_ranks(self.ranks.size)
        self._reset()


def start(
    settings: Settings, *, role: str, ranks: identity.Ranks, engine_name: str, engine_version: str
) -> Recorder:
    """Start recording in this process; never raises. With ``settings.off`` the recorder does nothing."""
    recorder = Recorder(
        settings, role=role, ranks=ranks, engine_name=engine_name, engine_version=engine_version
    )
    if not recorder.closed:
        _live.add(recorder)
        recorder._start()  # pyright: ignore[reportPrivateUsage] - heartbeats come also from an idle engine
        atexit.register(recorder.close)
        # A child of multiprocessing leaves by os._exit: its own finalizers run, atexit's do not.
        multiprocessing_util.Finalize(None, recorder.close, exitpriority=100)
    return recorder


def _after_fork() -> None:
    for recorder in _live:
        recorder.forked()


os.register_at_fork(after_in_child=_after_fork)

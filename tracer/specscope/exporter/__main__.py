"""``python -m specscope.exporter``: the exporter process of one engine process.

Its standard input is a socket to the engine process (:mod:`specscope.helper`), over which records come in
and acknowledgements go back. It ends when the engine hangs up or is gone, and everything is delivered or
:data:`PATIENCE_S` is over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from specscope.frames import Hello, Reader

TICK_S: Final = 0.2
METRICS_S: Final = 1.0
PATIENCE_S: Final = 20.0
"""Seconds that the exporter goes on trying to deliver after the engine has gone."""

NICE: Final = 5
"""Where processors are scarce the engine goes first; our buffers are bounded and say what they dropped."""

_logger = logging.getLogger("specscope.exporter")


def _detach() -> None:
    """Leave the engine's process tree, before anything is imported: engines kill their children."""
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # They mean the engine; when it goes, its end of the socket closes.
        signal.signal(number, signal.SIG_IGN)


def _log_to_stderr() -> None:
    """Only our own lines, one a state change: the engine's output is not ours to fill."""
    logging.raiseExceptions = False
    logging.getLogger().addHandler(logging.NullHandler())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    _logger.addHandler(handler)
    _logger.propagate = False


def _started_ticks(pid: int) -> str | None:
    """Return when a process started, in kernel ticks; ``None``: it is gone, or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


class Session:
    """One engine process' exporter, from its hello to its end."""

    def __init__(self, hello: Hello, connection: socket.socket) -> None:
        """Connect the parts."""
        from specscope.exporter.link import Link
        from specscope.exporter.pipeline import Pipeline
        from specscope.exporter.sender import Sender

        self._hello = hello
        self._connection = connection
        self._sender = Sender(Link(hello.settings), hello.settings.buffer_mb << 20)
        self._pipeline = Pipeline(hello, self._sender.put)
        self._engine_started = _started_ticks(hello.pid)
        self._next_metrics = 0.0
        self.said_goodbye = False
        """No record follows."""
        self._ended_ns: int | None = None
        """Wall clock when the engine said that it ends in order; ``None``: it has not."""
        self._sender.start()

    def handle(self, kind: str, payload: Any) -> None:
        """Take one frame."""
        from specscope import frames
        from specscope.records import EngineFacts, RequestStarted, from_tuple

        if kind == frames.RECORDS:
            now = time.monotonic_ns()
            for values in payload:
                try:
                    record = from_tuple(values)
                except ValueError as error:
                    self._pipeline.broken("record", error)
                else:
                    self._pipeline.take(record, now)
        elif kind == frames.ENGINE:
            record = from_tuple(payload[1])
            self._pipeline.taken += 1
            if isinstance(record, EngineFacts):
                self._pipeline.engine(record, payload[0])
        elif kind == frames.RESUMED:
            for values in payload:
                record = from_tuple(values)
                if isinstance(record, RequestStarted):
                    self._pipeline.resume(record, time.monotonic_ns())
        elif kind == frames.BEAT:
            self._pipeline.take_beat(frames.beat(payload))
        elif kind == frames.BYE:
            self.said_goodbye = True
            self._ended_ns = time.time_ns() if payload else None

    def engine_is_gone(self) -> bool:
        """Say whether the engine process has ended: a child that it forked may hold the socket open."""
        return self._engine_started is not None and _started_ticks(self._hello.pid) != self._engine_started

    def tick(self, *, last: bool = False) -> None:
        """Send what is due and acknowledge what is done."""
        self._sender.settle(self._pipeline.tick(time.monotonic_ns(), last=last))
        if last or time.monotonic() >= self._next_metrics:
            self._next_metrics = time.monotonic() + METRICS_S
            self._send_metrics()
        self.acknowledge()

    def _dropped(self) -> dict[str, int]:
        own = self._sender.dropped + self._pipeline.dropped
        return {r: own[r] + self._hello.dropped.get(r, 0) for r in {*own, *self._hello.dropped}}

    def _failures(self) -> int:
        return self._hello.export_failures + self._sender.failures

    def _send_metrics(self) -> None:
        from specscope.exporter import metrics

        beat, facts = self._pipeline.beat, self._pipeline.facts
        if beat is None:
            return
        data = metrics.build(
            self._pipeline.spans.resource,
            self._hello.start_ns,
            time.time_ns(),
            beat,
            speculation=None if facts is None else facts.speculation,
            dropped=self._dropped(),
            export_failures=self._failures(),
            ended_ns=self._ended_ns,
        )
        self._sender.put_metrics(data)

    def acknowledge(self, *, done: bool = False) -> None:
        """Tell the engine process how far we are; it may be gone, or not be reading."""
        from specscope import frames

        ack = frames.Ack(
            os.getpid(), self._sender.settled, self._dropped(), self._failures(), self._sender.reachable, done
        )
        # An acknowledgement is far smaller than the socket's buffer: it goes whole or not at all.
        with contextlib.suppress(OSError):
            self._connection.send(frames.pack(frames.ACK, ack), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def finish(self) -> None:
        """Send all that is left, for at most :data:`PATIENCE_S` seconds."""
        self.tick(last=True)
        self._sender.stop(PATIENCE_S)
        while self._sender.wait(0.1):
            self.acknowledge()
        left = self._sender.left
        if left:
            _logger.warning("specscope exporter: %d spans could not be delivered", left)
        self.acknowledge(done=not left)


def _read_hello(connection: socket.socket, reader: Reader) -> tuple[Hello | None, list[tuple[str, Any]]]:
    """Return the hello and the frames that came with it; no hello when the engine is gone already."""
    from specscope import frames

    while data := connection.recv(1 << 16):
        received = list(reader.feed(data))
        if received:
            kind, payload = received[0]
            return (frames.hello(payload) if kind == frames.HELLO else None), received[1:]
    return None, []


def _receive(connection: socket.socket) -> bytes:
    """Return what came, nothing at the end."""
    for _ in range(2):
        try:
            return connection.recv(1 << 18)
        except ConnectionError:
            # An engine that was killed with our acknowledgements unread: its last records still wait.
            continue
    return b""


def _serve(connection: socket.socket) -> None:
    from specscope.frames import Reader

    reader = Reader()
    hello, waiting = _read_hello(connection, reader)
    if hello is None:
        return
    session = Session(hello, connection)
    for kind, payload in waiting:
        session.handle(kind, payload)
    session.acknowledge()
    next_tick = time.monotonic() + TICK_S
    while not session.said_goodbye:
        readable, _, _ = select.select([connection], [], [], max(0.0, next_tick - time.monotonic()))
        if readable:
            data = _receive(connection)
            if not data:
                break
            for kind, payload in reader.feed(data):
                session.handle(kind, payload)
        elif session.engine_is_gone():
            break
        if time.monotonic() >= next_tick:
            next_tick = time.monotonic() + TICK_S
            session.tick()
    session.finish()


def main() -> None:
    """Run the exporter over standard input."""
    _detach()
    os.nice(NICE)
    _log_to_stderr()
    with socket.socket(fileno=os.dup(0)) as connection:
        connection.setblocking(True)
        try:
            _serve(connection)
        except Exception as error:  # noqa: BLE001 - one line, not a traceback into the engine's output
            _logger.warning("specscope exporter: ended: %s: %s", type(error).__name__, error)
            sys.exit(1)


if __name__ == "__main__":
    main()

"""Starts and watches the exporter process, which encodes and sends outside the engine's GIL.

The exporter is ``python -m specscope.exporter``. It detaches itself at once (own session, own parent), so
that neither a signal to the engine's process group nor an engine that kills its children takes the last
records along; it ends by itself when the engine is gone and everything is sent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import specscope
from specscope import frames

_logger = logging.getLogger("specscope")

RESTARTS: Final = 5
"""Exporters started in a row, each dying young, before the tracer gives up for :data:`GIVEN_UP_S`."""
GIVEN_UP_S: Final = 300.0
"""Seconds until one more try: what killed the exporters (no memory, no process to be had) may have passed."""
START_S: Final = 30.0
"""Seconds that an exporter may take to detach itself; it does so before it imports anything."""
_YOUNG_S: Final = 60.0
_FIRST_BACKOFF_S: Final = 0.25
_MAX_BACKOFF_S: Final = 8.0
_SEND_BUFFER: Final = 1 << 20

# The engine's OpenTelemetry variables must not change our exporter, and its libraries' variables have no
# business in a process that loads none of them (LD_PRELOAD: allocators and OpenMP shims).
_STRIPPED: Final = (
    "OTEL_", "CUDA", "NVIDIA_", "NCCL_", "TORCH", "PYTORCH_", "TRITON_", "SGLANG_", "SGL_", "VLLM_",
    "LD_PRELOAD", "PYTHONSTARTUP", "PYTHONWARNINGS", "PYTHONFAULTHANDLER", "PYTHONINSPECT",
)  # fmt: skip
_ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the exporter's environment: the engine's, without what would change or slow the exporter."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_STRIPPED)}
    kept.update(dict.fromkeys(_ONE_THREAD, "1"))
    # OpenTelemetry's auto-instrumentation enters through PYTHONPATH and would trace our own exports.
    paths = [
        p for p in environ.get("PYTHONPATH", "").split(os.pathsep) if p and "auto_instrumentation" not in p
    ]
    root = str(Path(specscope.__file__).parent.parent)
    if root in sys.path and root not in paths and not root.endswith(("site-packages", "dist-packages")):
        paths.append(root)
    kept.pop("PYTHONPATH", None)
    if paths:
        kept["PYTHONPATH"] = os.pathsep.join(paths)
    return kept


class Helper:
    """One exporter process. Raises OSError from :meth:`send` once it is gone."""

    def __init__(self, hello: frames.Hello) -> None:
        """Start it and say who we are.

        Raises:
            OSError: it cannot be started.
        """
        self.started = time.monotonic()
        self.written = 0
        """Records sent to it."""
        self.ack: frames.Ack | None = None
        self._reader = frames.Reader()
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                # MSG_NOSIGNAL needs a socket: a pipe would end an engine that restored SIGPIPE's default.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
                with subprocess.Popen(
                    [sys.executable or "python3", "-P", "-m", "specscope.exporter"],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    close_fds=True,
                    start_new_session=True,
                    env=environment(os.environ),
                    cwd="/",
                ) as child:
                    try:
                        child.wait(START_S)  # the child forks the exporter and ends at once
                    except subprocess.TimeoutExpired:
                        child.kill()  # else leaving the block waits for it without end
                        raise
            self.send(frames.pack(frames.HELLO, hello))
        except subprocess.TimeoutExpired as error:
            self._socket.close()
            raise OSError(f"the exporter did not start: {error}") from error
        except OSError:
            self._socket.close()
            raise

    def send(self, frame: bytes) -> None:
        """Write one frame; blocks while the exporter is behind.

        Raises:
            OSError: the exporter is gone.
        """
        view = memoryview(frame)
        while view:
            view = view[self._socket.send(view, socket.MSG_NOSIGNAL) :]

    def poll(self) -> None:
        """Read the acknowledgements that came, without waiting.

        Raises:
            OSError: the exporter is gone.
        """
        while True:
            try:
                data = self._socket.recv(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if not data:
                raise ConnectionError("the exporter process has ended")
            for kind, payload in self._reader.feed(data):
                if kind == frames.ACK:
                    self.ack = frames.Ack(*payload)

    def say_goodbye(self, timeout_s: float, *, in_order: bool = True) -> bool:
        """Tell it that no record follows, wait for it to deliver, and hang up.

        ``in_order``: the engine ends because it was told to. Returns at once when it cannot reach the
        receiver: it goes on trying by itself. Says whether everything was delivered within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        with contextlib.suppress(OSError):
            self._socket.settimeout(timeout_s)
            self._socket.sendall(frames.pack(frames.BYE, in_order), socket.MSG_NOSIGNAL)
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.setblocking(True)
            before = self.ack
            while time.monotonic() < deadline:
                self.poll()
                if (
                    self.ack is not before
                    and self.ack is not None
                    and (self.ack.done or not self.ack.reachable)
                ):
                    break
                time.sleep(0.01)
        self.close()
        return self.ack is not None and self.ack.done

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class Keeper:
    """Keeps one exporter running, with backoff; gives up for a while when :data:`RESTARTS` died young."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self.helper: Helper | None = None
        self.gave_up = False
        """No exporter is to be had for now: records are dropped."""
        self.lost = 0
        """Records at most lost with exporters that died."""
        self.dropped: dict[str, int] = {}
        self.export_failures = 0
        self._young = 0
        self._not_before = 0.0

    def wanted(self) -> bool:
        """Say whether an exporter should be started now."""
        return self.helper is None and time.monotonic() >= self._not_before

    def start(self, hello: frames.Hello) -> Helper | None:
        """Start an exporter; ``None`` when that failed."""
        try:
            self.helper = Helper(hello)
            self.gave_up = False
        except OSError as error:
            self.died(error)
        return self.helper

    def died(self, error: Exception) -> None:
        """Note that the exporter is gone (or never came up): what it had not settled counts as lost."""
        helper, self.helper = self.helper, None
        lived = 0.0
        if helper is not None:
            lived = time.monotonic() - helper.started
            with contextlib.suppress(OSError):
                helper.poll()
            settled = 0
            if helper.ack is not None:
                settled = helper.ack.settled
                self.dropped = dict(helper.ack.dropped)
                self.export_failures = helper.ack.export_failures
            self.lost += helper.written - settled
            helper.close()
        self._young = 1 if lived > _YOUNG_S else self._young + 1
        if self._young > RESTARTS:
            self.gave_up = True
            self._not_before = time.monotonic() + GIVEN_UP_S
            if self._young == RESTARTS + 1:
                _logger.warning(
                    "specscope: the exporter died %d times (%s): records are dropped", self._young, error
                )
            return
        backoff = min(_FIRST_BACKOFF_S * 2 ** (self._young - 1), _MAX_BACKOFF_S)
        self._not_before = time.monotonic() + backoff
        if self._young == 1:
            _logger.warning("specscope: the exporter is gone (%s); starting it again", error)

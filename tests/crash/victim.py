"""A real ``specscope serve`` on a port that stays, to be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from serverkit.command import SPECSCOPE, environment

START_S = 60.0
CRASHED = "Traceback (most recent call last)"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@cache
def options_of_serve() -> str:
    """What ``specscope serve --help`` says."""
    done = subprocess.run([SPECSCOPE, "serve", "--help"], capture_output=True, text=True, check=True)
    return done.stdout


def takes_grpc() -> bool:
    """Whether this server has an OTLP/gRPC receiver."""
    return "--grpc-port" in options_of_serve()


class Victim:
    """The server: processes of a group of their own, all of which a kill ends."""

    def __init__(self, url: str, folder: Path, workers: int = 1) -> None:
        self.port, self.grpc_port = free_port(), free_port()
        self._command = [SPECSCOPE, "serve", "--db", url, "--port", str(self.port)]
        if takes_grpc():
            self._command += ["--grpc-port", str(self.grpc_port)]
        if workers > 1:
            self._command += ["--workers", str(workers)]
        self._folder = folder
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    @property
    def pid(self) -> int:
        """The process id of the one that was started last."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; it may take a second or two until it listens."""
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Wait until it takes connections.

        Raises:
            RuntimeError: it ended, or does not listen; the message has what it printed.
        """
        deadline = time.monotonic() + START_S
        assert self._process is not None
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
                return
            time.sleep(0.02)
        raise RuntimeError(f"the server does not come up:\n{self.printed()[-4000:]}")

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, at once and to all its processes."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def end(self) -> int:
        """SIGTERM; return the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(60)

    def printed(self) -> str:
        """All that it has printed."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def tracebacks(self) -> int:
        """How often it printed one."""
        return self.printed().count(CRASHED)

"""Servers that a script starts and never leaves behind, and plain HTTP to them.

Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from scripts.system import ROOT, SetupError, end_group, say, tail

if TYPE_CHECKING:
    from typing import Self  # not in the Pythons that are told to be too old

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Everything spoken to here is on this machine: a proxy of the user's must not come between."""

STOP_SECONDS = 25.0
"""Until a server that was asked to end is made to: SpecScope's own gives requests under way 20 s."""


def fetch(url: str, body: object | None = None, timeout: float = 30.0) -> Any:
    """GET `url`, or POST `body` to it as JSON; return the decoded JSON answer, or None when it is empty.

    Raises OSError when there is no answer, or urllib's HTTPError (an OSError too) when
    it is not 2xx.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"} if data else {})
    with _DIRECT.open(request, timeout=timeout) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def port_is_free(port: int) -> bool:
    """Whether something could listen on 127.0.0.1:`port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _clean_environment() -> dict[str, str]:
    """This process's environment without settings for other SpecScopes and other telemetry."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SPECSCOPE_", "OTEL_"))}


class Service:
    """A server process with its own process group and log. As a context manager it ends with the block."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start `command`. Raises SetupError when it is not there."""
        self.name, self.log = name, log
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log.open("wb") as output:
                self._process = subprocess.Popen(
                    [str(part) for part in command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=ROOT,
                    env=_clean_environment() | dict(environment or {}),
                    start_new_session=True,
                )
        except OSError as error:
            raise SetupError(f"cannot start {name}: {error}") from error

    @property
    def alive(self) -> bool:
        """Whether the server itself still runs."""
        return self._process.poll() is None

    def require_alive(self) -> None:
        """Raise SetupError with the end of the log when the server has ended by itself."""
        code = self._process.poll()
        if code is not None:
            raise SetupError(
                f"{self.name} ended with exit code {code}; {self.log} ends with\n{tail(self.log)}"
            )

    def wait_for(self, url: str, limit: float) -> None:
        """Wait until a GET of `url` is answered 200, at most `limit` seconds.

        Raises SetupError with the end of the log when the server ends or the time is up.
        """
        started = told = time.monotonic()
        while True:
            self.require_alive()
            try:
                with _DIRECT.open(url, timeout=10):
                    return
            except OSError:
                pass  # not listening yet, or not ready: urllib's HTTPError is an OSError
            now = time.monotonic()
            if now - started > limit:
                raise SetupError(
                    f"{self.name} gave no answer at {url} within {limit:.0f} s; "
                    f"{self.log} ends with\n{tail(self.log)}"
                )
            if now - told > 15:
                told = now
                say(f"  waiting for {self.name}: {tail(self.log, 1).strip()[:100]}")
            time.sleep(0.5)

    def stop(self) -> None:
        """End the server and all its children. A second call does nothing."""
        end_group(self._process, STOP_SECONDS)

    def __enter__(self) -> Self:
        """Return the running service."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, whatever happened."""
        self.stop()

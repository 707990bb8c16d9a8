"""Every setting of the server, from options or the environment; an option wins over its variable.

Unlike the tracer's, a value that makes no sense stops the start: nobody's engine hangs on it.
``docs/reference/server-settings.md`` lists each variable; a test fails when one is missing there.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DB: Final = "SPECSCOPE_DB"
"""Database URL. Default: ``specscope.db`` in ``$XDG_DATA_HOME/specscope`` (``~/.local/share/specscope``)."""
HOST: Final = "SPECSCOPE_HOST"
"""Address to listen on. Default ``127.0.0.1``: this machine alone."""
PORT: Final = "SPECSCOPE_PORT"
"""Port to listen on, 0 for any free one. Default 4318, OTLP/HTTP's own."""
ALLOW_UNAUTHENTICATED: Final = "SPECSCOPE_ALLOW_UNAUTHENTICATED"
"""``1``: listen on other addresses than this machine's own although anyone who reaches them is let in."""
NOTIFY: Final = "SPECSCOPE_NOTIFY"
"""Where alerts are sent: apprise or webhook URLs, separated by white space. Default: nowhere."""
TRUSTED_HOSTS: Final = "SPECSCOPE_SERVER_TRUSTED_HOSTS"
"""Names in ``Host`` headers that are answered besides this machine's own, separated by white space."""
PUBLIC_URL: Final = "SPECSCOPE_SERVER_URL"
"""URL under which people reach this server, for links in notifications. Default: where it listens."""
MAX_BODY_MB: Final = "SPECSCOPE_SERVER_MAX_BODY_MB"
"""MiB of one export as sent. Default 16."""
MAX_INFLATED_MB: Final = "SPECSCOPE_SERVER_MAX_INFLATED_MB"
"""MiB of one export after decompression. Default 32: hostile protobuf takes 30 times that to decode."""

ALL_VARIABLES: Final = (
    DB, HOST, PORT, ALLOW_UNAUTHENTICATED, NOTIFY, TRUSTED_HOSTS, PUBLIC_URL, MAX_BODY_MB, MAX_INFLATED_MB,
)  # fmt: skip

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 4318
DEFAULT_BODY_MB: Final = 16
DEFAULT_INFLATED_MB: Final = 32
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")


class SettingsError(ValueError):
    """Settings that the server must not start with; the message says which, why and what to do."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What ``specscope serve`` runs with. Sizes in MiB, times in seconds."""

    db: str
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    allow_unauthenticated: bool = False
    notify: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    public_url: str = ""
    max_body_mb: int = DEFAULT_BODY_MB
    max_inflated_mb: int = DEFAULT_INFLATED_MB
    body_seconds: float = 30.0
    """Until all of a body must have arrived; a tracer on a slow link sends 16 MiB at 0.5 MiB/s in time."""
    judge_s: float = 300.0
    """Seconds of evidence that an engine's state is judged by: the same in API, pages and alerts."""
    waiting_exports: int = 256
    """Exports that may wait for their commit; each tracer process has one under way for each signal."""

    @property
    def loopback(self) -> bool:
        """Say whether only this machine can reach the address."""
        return is_loopback(self.host)

    @property
    def answered_hosts(self) -> tuple[str, ...]:
        """Return the host names to answer, empty for all.

        On a loopback address this is what keeps a web page elsewhere from reading this server through a
        name of its own that it points at 127.0.0.1 (DNS rebinding).
        """
        if self.loopback:
            return (*LOOPBACK_NAMES, self.host, *self.trusted_hosts)
        return (*LOOPBACK_NAMES, *self.trusted_hosts) if self.trusted_hosts else ()

    def check(self) -> None:
        """Refuse an address that anyone could reach.

        Raises:
            SettingsError: it is no loopback address, and that was not asked for.
        """
        if not self.loopback and not self.allow_unauthenticated:
            raise SettingsError(
                f"{self.host} can be reached from other machines, and whoever reaches it can read and write "
                "everything: there is no login yet. Leave --host at 127.0.0.1, put a proxy that "
                f"authenticates in front of it, or say --allow-unauthenticated ({ALLOW_UNAUTHENTICATED}=1) "
                "where the network itself keeps others out"
            )


def is_loopback(host: str) -> bool:
    """Say whether every address that ``host`` stands for is this machine's own; unknown names are not."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)


def default_database(environ: Mapping[str, str] | None = None) -> str:
    """Return the path of the database used when none is named, and make its directory.

    It does not depend on the directory that the server is started from: data would seem lost.

    Raises:
        SettingsError: the directory cannot be made.
    """
    env = os.environ if environ is None else environ
    base = env.get("XDG_DATA_HOME", "")
    try:
        # The XDG specification has relative paths ignored.
        root = Path(base) if base.startswith("/") else Path.home() / ".local" / "share"
        directory = root / "specscope"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        raise SettingsError(
            f"there is no place for the default database: {error}. Name a file with --db ({DB}), "
            "e.g. --db specscope.db"
        ) from error
    return str(directory / "specscope.db")

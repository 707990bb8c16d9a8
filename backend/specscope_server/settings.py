"""Every setting of the server, from options or the environment; an option wins over its variable.

Unlike the tracer's, a value that makes no sense stops the start: nobody's engine hangs on it.
``docs/reference/server-settings.md`` lists each variable; a test fails when one is missing there.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from specscope_server import keep_options
from specscope_server.alerts.signing import SecretError, parse_secret
from specscope_server.store.keep import NOTHING_GOES, Keep

DB: Final = "SPECSCOPE_DB"
"""Database URL. Default: ``specscope.db`` in ``$XDG_DATA_HOME/specscope`` (``~/.local/share/specscope``)."""
HOST: Final = "SPECSCOPE_HOST"
"""Address to listen on. Default ``127.0.0.1``: this machine alone."""
PORT: Final = "SPECSCOPE_PORT"
"""Port to listen on, 0 for any free one. Default 4318, OTLP/HTTP's own."""
ALLOW_UNAUTHENTICATED: Final = "SPECSCOPE_ALLOW_UNAUTHENTICATED"
"""``1``: listen on other addresses than this machine's own although anyone who reaches them is let in."""
AUTH: Final = "SPECSCOPE_AUTH"
"""``required``: people sign in and programs show a token also where there is no user and no token yet."""
ADMIN_PASSWORD_FILE: Final = "SPECSCOPE_ADMIN_PASSWORD_FILE"
"""File with the password of the user ``admin``, made at a start without any user. Default: nobody is."""
SESSION_HOURS: Final = "SPECSCOPE_SESSION_HOURS"
"""Hours after which people sign in anew. Default 168: a week."""
NOTIFY: Final = "SPECSCOPE_NOTIFY"
"""Where alerts are sent: apprise or webhook URLs, separated by white space. Default: nowhere."""
NOTIFY_SECRET_FILE: Final = "SPECSCOPE_NOTIFY_SECRET_FILE"
"""File with the secret that webhooks are signed with. Default: they are not signed."""
TRUSTED_HOSTS: Final = "SPECSCOPE_SERVER_TRUSTED_HOSTS"
"""Names in ``Host`` headers that are answered besides this machine's own, separated by white space."""
PUBLIC_URL: Final = "SPECSCOPE_SERVER_URL"
"""URL under which people reach this server, for links in notifications. Default: where it listens."""
GRPC_PORT: Final = "SPECSCOPE_GRPC_PORT"
"""Port for OTLP/gRPC, ``off`` for none, 0 for any free one. Default 4317, its own, if nobody has it."""
TLS_CERT: Final = "SPECSCOPE_SERVER_TLS_CERT"
"""PEM file of the certificate, with those above it, that HTTP and gRPC are served with. Default: no TLS."""
TLS_KEY: Final = "SPECSCOPE_SERVER_TLS_KEY"
"""PEM file of the certificate's private key, without a password."""
INGEST_TOKEN_FILE: Final = "SPECSCOPE_SERVER_INGEST_TOKEN_FILE"
"""File with the token that exports must bring. Default: none is asked for."""
SQLITE_SYNCHRONOUS: Final = "SPECSCOPE_SQLITE_SYNCHRONOUS"
"""``full``: what is acknowledged is on disk. ``normal``: the last of it may be lost with the power."""
WORKERS: Final = "SPECSCOPE_SERVER_WORKERS"
"""Processes that serve. Default 1."""
MAX_BODY_MB: Final = "SPECSCOPE_SERVER_MAX_BODY_MB"
"""MiB of one export as sent. Default 16."""
MAX_INFLATED_MB: Final = "SPECSCOPE_SERVER_MAX_INFLATED_MB"
"""MiB of one export after decompression. Default 32: hostile protobuf takes 30 times that to decode."""

ALL_VARIABLES: Final = (
    DB, SQLITE_SYNCHRONOUS, *keep_options.VARIABLES,
    HOST, PORT, GRPC_PORT, ALLOW_UNAUTHENTICATED, AUTH, ADMIN_PASSWORD_FILE, SESSION_HOURS,
    INGEST_TOKEN_FILE, TLS_CERT, TLS_KEY, NOTIFY,
    NOTIFY_SECRET_FILE, TRUSTED_HOSTS, PUBLIC_URL, WORKERS, MAX_BODY_MB, MAX_INFLATED_MB,
)  # fmt: skip

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 4318
DEFAULT_GRPC_PORT: Final = 4317
MIN_TOKEN: Final = 16
"""Characters of an ingest token; fewer can be guessed."""
DEFAULT_SESSION_HOURS: Final = 168
MAX_WORKERS: Final = 64
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
    auth_required: bool = False
    """Whether people sign in also where there is no user and no token yet."""
    session_hours: int = DEFAULT_SESSION_HOURS
    notify: tuple[str, ...] = ()
    notify_secret: bytes = field(default=b"", repr=False)
    trusted_hosts: tuple[str, ...] = ()
    public_url: str = ""
    grpc_address: str = ""
    """``host:port`` for OTLP/gRPC, kept free for this server; empty: none."""
    tls_cert: str = ""
    tls_key: str = ""
    ingest_token: str = field(default="", repr=False)
    keep: Keep = NOTHING_GOES
    """How long what is stored is kept; ``specscope serve`` has defaults of its own."""
    durable: bool = True
    """Whether SQLite waits for the disk before an export is acknowledged."""
    workers: int = 1
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

    @property
    def tls(self) -> bool:
        """Say whether HTTP and gRPC are served with TLS."""
        return bool(self.tls_cert)

    @property
    def closed(self) -> bool:
        """Say whether people sign in also where there is no user and no token (any more)."""
        return self.auth_required or not (self.loopback or self.allow_unauthenticated)

    @property
    def browsed_with_tls(self) -> bool:
        """Say whether browsers reach this server by HTTPS alone."""
        return self.tls or self.public_url.startswith("https://")

    def check(self, *, guarded: bool = False) -> None:
        """Refuse an address that anyone could reach, and what cannot be meant.

        ``guarded``: there are users or tokens, so that people have to sign in.

        Raises:
            SettingsError: it is no loopback address, nobody would have to sign in, and that was not asked
                for; the public URL is none; the certificate or its key is missing, cannot be read, or does
                not fit the other.
        """
        _check_url(self.public_url)
        _check_tls(self.tls_cert, self.tls_key)
        if not (self.loopback or self.allow_unauthenticated or self.auth_required or guarded):
            raise SettingsError(
                f"{self.host} can be reached from other machines, and whoever reaches it could read and "
                "write everything: there is no user yet. Add one (specscope user add NAME --role admin), "
                f"name the first admin's password with --admin-password-file ({ADMIN_PASSWORD_FILE}), leave "
                f"--host at 127.0.0.1, or say --allow-unauthenticated ({ALLOW_UNAUTHENTICATED}=1) where the "
                "network itself keeps others out"
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


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # its port is no number
        sound = False
    if url and not sound:
        raise SettingsError(
            f"{url!r} is no URL that a browser could open: give --url ({PUBLIC_URL}) one as "
            "https://specscope.example"
        )


def _check_tls(cert: str, key: str) -> None:
    if bool(cert) != bool(key):
        raise SettingsError(
            f"TLS takes both --tls-cert ({TLS_CERT}) and --tls-key ({TLS_KEY}): give both, or neither"
        )
    if not cert:
        return

    def password() -> str:  # instead of asking the terminal
        raise SettingsError(
            f"the private key in {key} has a password: give --tls-key ({TLS_KEY}) one without"
        )

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password)
    except OSError as error:
        raise SettingsError(
            f"TLS cannot be served with {cert} and {key}: {error}. Give --tls-cert ({TLS_CERT}) and "
            f"--tls-key ({TLS_KEY}) PEM files of a certificate and of its own key"
        ) from error


def read_token(file: str) -> str:
    """Return the ingest token that a file holds, without the white space around it; no file: no token.

    Raises:
        SettingsError: the file cannot be read, or it holds no sound token.
    """
    if not file:
        return ""
    try:
        token = Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"the ingest token cannot be read: {error}. Give --ingest-token-file ({INGEST_TOKEN_FILE}) a "
            "file with one line of ASCII"
        ) from error
    if len(token) < MIN_TOKEN or len(token.split()) != 1 or not token.isprintable():
        raise SettingsError(
            f"{file} holds no token of at least {MIN_TOKEN} printable characters without a space: make one "
            f"with `openssl rand -hex 32 > {file}`"
        )
    return token


def read_notify_secret(file: str) -> bytes:
    """Return the secret in a file that webhooks are signed with; no file: none.

    Raises:
        SettingsError: the file cannot be read, or it holds nothing to sign with.
    """
    if not file:
        return b""
    try:
        return parse_secret(Path(file).read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError, SecretError) as error:
        raise SettingsError(
            f"the secret for webhooks cannot be used: {error}. Give --notify-secret-file "
            f"({NOTIFY_SECRET_FILE}) a file made with `openssl rand -hex 32`"
        ) from error


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

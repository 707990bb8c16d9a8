"""The socket that the server listens on, opened before anything else so that a taken port is known first."""

from __future__ import annotations

import errno
import socket
from typing import Any, Final

from specscope_server.settings import DEFAULT_GRPC_PORT, DEFAULT_PORT, GRPC_PORT, HOST, PORT, SettingsError

BACKLOG: Final = 512
"""Connections the system holds while the server is busy; one for each tracer process that starts at once."""


class ListenError(Exception):
    """The address cannot be listened on; the message says why and which option changes it."""


def parse_port(text: str) -> int:
    """Return a port number.

    Kubernetes sets ``SPECSCOPE_PORT=tcp://10.0.0.1:4318`` in every pod beside a service named
    ``specscope``; nobody asked for that, so the default holds.

    Raises:
        SettingsError: it is not a port.
    """
    if text.startswith("tcp://"):
        return DEFAULT_PORT
    return _port(text, f"give --port ({PORT}) a number from 0 to 65535")


def parse_grpc_port(text: str) -> int | None:
    """Return a port number, ``None`` for ``off``; empty, or set by Kubernetes, is the default.

    Raises:
        SettingsError: it is neither.
    """
    if text == "off":
        return None
    if not text or text.startswith("tcp://"):
        return DEFAULT_GRPC_PORT
    return _port(text, f"give --grpc-port ({GRPC_PORT}) a number from 0 to 65535, or off")


def _port(text: str, advice: str) -> int:
    # Its length first: Python makes no number of thousands of digits, and nobody wants to read them again.
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise SettingsError(f"{text[:40]!r} is not a port: {advice}")
    return int(text)


def reserve(host: str, port: int) -> socket.socket:
    """Return a socket that holds a port for gRPC, which listens there by itself, once in each process.

    gRPC shares its port with whoever asks for that, so that another server of the same user could take a part
    of the exports: the port is first tried without sharing.

    Raises:
        ListenError: the port is taken or not allowed, or the host is none of this machine's.
    """
    try:
        family, _, _, _, address = _resolved(host, port)
        with socket.create_server(address[:2], family=family) as alone:
            address = alone.getsockname()
        # Without SO_REUSEADDR: two sockets that have it may be bound alike while neither listens.
        held = socket.socket(family, socket.SOCK_STREAM)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(address)
    except (OSError, UnicodeError) as error:
        raise ListenError(_advice(host, port, error, "--grpc-port", GRPC_PORT)) from error
    return held


def address_of(held: socket.socket) -> str:
    """Return ``host:port`` of a socket as gRPC takes it."""
    host, port = held.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        ListenError: the port is taken or not allowed, or the host is none of this machine's.
    """
    try:
        family, _, _, _, address = _resolved(host, port)
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        raise ListenError(_advice(host, port, error, "--port", PORT)) from error


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, int, int, str, tuple[Any, ...]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]


def _advice(host: str, port: int, error: Exception, option: str, variable: str) -> str:
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is taken: choose another with {option} ({variable}), or stop what uses it"
        )
    if code == errno.EACCES:
        return f"this user may not listen on port {port}: choose one from 1024 on with {option} ({variable})"
    if code == errno.EADDRNOTAVAIL or isinstance(error, (socket.gaierror, UnicodeError)):
        return f"{host} is no address of this machine: choose another with --host ({HOST})"
    return f"cannot listen on {host}, port {port}: {error}. Change them with --host and {option}"


def url_of(listener: socket.socket, host: str, *, tls: bool = False) -> str:
    """Return the URL under which a socket is reached."""
    port, scheme = listener.getsockname()[1], "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

"""The socket that the server listens on, opened before anything else so that a taken port is known first."""

from __future__ import annotations

import errno
import socket
from typing import Final

from specscope_server.settings import DEFAULT_PORT, HOST, PORT

BACKLOG: Final = 512
"""Connections the system holds while the server is busy; one for each tracer process that starts at once."""


class ListenError(Exception):
    """The address cannot be listened on; the message says why and which option changes it."""


def parse_port(text: str) -> int:
    """Return a port number.

    Kubernetes sets ``SPECSCOPE_PORT=tcp://10.0.0.1:4318`` in every pod beside a service named
    ``specscope``; nobody asked for that, so the default holds.

    Raises:
        ListenError: it is not a port.
    """
    if text.startswith("tcp://"):
        return DEFAULT_PORT
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise ListenError(f"{text!r} is not a port: give --port ({PORT}) a number from 0 to 65535")
    return int(text)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        ListenError: the port is taken or not allowed, or the host is none of this machine's.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        raise ListenError(_advice(host, port, error)) from error


def _advice(host: str, port: int, error: Exception) -> str:
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.EADDRINUSE:
        return f"port {port} on {host} is taken: choose another with --port ({PORT}), or stop what uses it"
    if code == errno.EACCES:
        return f"this user may not listen on port {port}: choose one from 1024 on with --port ({PORT})"
    if code == errno.EADDRNOTAVAIL or isinstance(error, (socket.gaierror, UnicodeError)):
        return f"{host} is no address of this machine: choose another with --host ({HOST})"
    return f"cannot listen on {host}, port {port}: {error}. Change them with --host and --port"


def url_of(listener: socket.socket, host: str) -> str:
    """Return the URL under which a socket is reached."""
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

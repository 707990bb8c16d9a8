"""Addresses of notifications. A URL may hold secrets, so what is stored and shown is a label without them."""

from __future__ import annotations

import functools
import hashlib
import importlib
import logging
import re
import warnings
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

WEBHOOK: Final = "webhook+"
"""Prefix of a plain http or https URL that gets our JSON."""
ALERTMANAGER: Final = "alertmanager+"
"""Prefix of the http or https URL of a Prometheus Alertmanager; every other URL is apprise's."""
PREFIXES: Final = (WEBHOOK, ALERTMANAGER)


# These write whole addresses, with their secrets, into the log. Only kept from other handlers, not
# silenced: apprise collects its own messages from there to tell why a delivery failed.
for _name in ("httpx", "httpcore", "apprise", "urllib3"):
    _logger = logging.getLogger(_name)
    _logger.addHandler(logging.NullHandler())
    _logger.propagate = False


@functools.cache
def apprise() -> Any:
    """Return the apprise module with its services: costly, and needed by those alone who use it."""
    with warnings.catch_warnings():
        # Its services import modules that Python 3.11 calls deprecated, which is not our users' matter.
        warnings.simplefilter("ignore", DeprecationWarning)
        module = importlib.import_module("apprise")
        module.Apprise.instantiate("json://localhost")
    return module


class TargetError(ValueError):
    """An address nothing can be sent to; the message repeats no secret of it."""


@dataclass(frozen=True, slots=True)
class Target:
    """One address. ``label`` is what may be stored, logged and shown; ``url`` and ``secret`` may not.

    ``kind`` is one of :data:`PREFIXES`, or empty for apprise's. ``secret`` signs what a webhook gets.
    """

    label: str
    url: str = field(repr=False)
    kind: str
    secret: bytes = field(default=b"", repr=False)

    def scrub(self, message: str) -> str:
        """Return ``message`` without any part of the address."""
        parts = {p for p in re.split(r"[/:@?&=#,+%\s]+", self.url) if len(p) >= 4} | {self.url}
        for part in sorted(parts, key=len, reverse=True):
            message = message.replace(part, "***")
        return message


def parse_target(url: str, secret: bytes = b"") -> Target:
    """Return the target of a ``--notify`` URL; ``secret`` signs what it gets if it is a webhook.

    Raises:
        TargetError: the URL is none of a webhook (``webhook+https://``), of an Alertmanager
            (``alertmanager+https://``), or that apprise knows; each with ``http`` as well.
    """
    url = url.strip()
    scheme = url.partition("://")[0].lower()
    tag = hashlib.sha256(url.encode()).hexdigest()[:6]
    for prefix in PREFIXES:
        if scheme in (f"{prefix}http", f"{prefix}https"):
            plain = url[len(prefix) :]
            signed = secret if prefix == WEBHOOK else b""
            return Target(f"{prefix}{_origin(plain, prefix)}/… #{tag}", plain, prefix, signed)
    if scheme in ("http", "https"):
        raise TargetError(
            f"a {scheme}:// address is ambiguous: write {WEBHOOK}{scheme}://… to have SpecScope's JSON posted"
            f" there, {ALERTMANAGER}{scheme}://… for an Alertmanager, or the service's apprise URL"
            " (https://github.com/caronc/apprise/wiki)"
        )
    if "://" not in url:
        raise TargetError(
            f"an address to notify starts with scheme://, this one does not: give {WEBHOOK}https://… or an"
            " apprise URL (https://github.com/caronc/apprise/wiki)"
        )
    if apprise().Apprise.instantiate(url) is None:
        raise TargetError(
            f"apprise does not take this {scheme!r} address: check it against"
            " https://github.com/caronc/apprise/wiki, or post to a webhook+https:// address"
        )
    # In many apprise URLs the host itself is a token, so nothing but the service's name is shown.
    return Target(f"{scheme}://… #{tag}", url, kind="")


def _origin(url: str, prefix: str) -> str:
    """Return scheme, host and port of a URL.

    Raises:
        TargetError: it has no host, or its port is no number.
    """
    wanted = TargetError(
        f"a {prefix[:-1]} address is {prefix}https://host[:port]/path, with a number for the port"
    )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        # Not chained: the text of the cause repeats the address.
        raise wanted from None
    if not host:
        raise wanted
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{f':{port}' if port else ''}"

"""What every answer carries against other sites, and which host names are answered at all."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specscope_server.api.errors import error_response
from specscope_server.ingest import content
from specscope_server.ingest.refusal import Refusal

# Pages bring the policy that their scripts and styles need; everything else needs nothing at all.
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of an answer that does not set its own. There is no CORS: no other site may read from here."""


class SecurityHeaders:
    """Adds :data:`HEADERS` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap ``app``."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and complete the headers of the answer."""

        async def complete(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, complete if scope["type"] == "http" else send)


class KnownHosts:
    """Refuses requests for host names that this server does not go by."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        """Answer ``hosts`` alone; an empty collection answers all."""
        self.app = app
        self.hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on where its host is known."""
        if scope["type"] == "http" and self.hosts:
            host = host_of(Headers(scope=scope).get("host", ""))
            if host not in self.hosts:
                told = f"This server does not go by the name {host[:100]!r}."
                hint = "If it should, start it with --trusted-host NAME."
                if scope["path"].startswith("/v1/"):  # OTLP has errors of its own shape
                    answer = content.refuse(Refusal(400, f"{told} {hint}"), Headers(scope=scope))
                else:
                    answer = error_response(400, "unknown_host", told, hint)
                await answer(scope, receive, send)
                return
        await self.app(scope, receive, send)


def host_of(header: str) -> str:
    """Return the host of a ``Host`` header in lower case, without port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()

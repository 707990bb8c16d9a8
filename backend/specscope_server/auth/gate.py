"""The gate before pages and API: who asks, whether they may, and what they changed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specscope_server.api.errors import error_response, of_exception, wants_api
from specscope_server.auth import origin, rights
from specscope_server.auth.door import Door
from specscope_server.auth.model import ALL_WORKSPACES, ANYBODY, Act, Caller
from specscope_server.auth.sessions import COOKIE
from specscope_server.store.accounts import Accounts
from specscope_server.store.port import StoreError

DEFAULT_WORKSPACE: Final = "default"
CHANGED: Final = "changed"
"""Action of the audit trail of a request that changed something; what it was is its method and path."""
_CALLER: Final = "caller"

_log = logging.getLogger(__name__)

Refuse = Callable[[Request, Caller, str], Response]
"""Makes the page that says why somebody may not do something."""


def caller_of(request: Request) -> Caller:
    """Return who a request comes from, as the gate found out."""
    return getattr(request.state, _CALLER, ANYBODY)


class Gate:
    """Lets a request through to the application where its caller may do what it asks for."""

    def __init__(self, app: ASGIApp, door: Door, accounts: Accounts, refuse: Refuse) -> None:
        """Guard ``app``; ``refuse`` makes the page for people who may not."""
        self.app, self._door, self._accounts, self._refuse = app, door, accounts, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with its caller, or answer why not."""
        if scope["type"] != "http" or rights.public(scope["path"]):
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        try:
            caller = await self._door.caller(
                request.headers.get("authorization"), request.cookies.get(COOKIE)
            )
        except StoreError as error:
            await of_exception(error)(scope, receive, send)
            return
        if caller is None:
            await _sign_in(request)(scope, receive, send)
            return
        passed: dict[str, Any] = {**scope, "state": {**scope.get("state", {}), _CALLER: caller}}
        no = self._forbidden(Request(passed), caller)
        if no is not None:
            await no(scope, receive, send)
            return
        bound = caller.workspace != ALL_WORKSPACES and rights.takes_workspace(request.url.path)
        if bound and not request.query_params.getlist("workspace"):
            passed["query_string"] = _with_workspace(scope["query_string"], caller.workspace)
        changes = request.method not in rights.SAFE and not rights.notes_itself(request.url.path)
        await self.app(passed, receive, self._noting(passed, caller, send) if changes else send)

    def _forbidden(self, request: Request, caller: Caller) -> Response | None:
        """Return why a caller may not have what they ask for; ``None``: they may."""
        path, method = request.url.path, request.method
        if caller.user and method not in rights.SAFE:
            elsewhere = origin.from_elsewhere(request.headers)
            if elsewhere is not None:
                return self._no(request, caller, "cross_site", elsewhere)
        needed = rights.needed(method, path)
        # Where nobody signs in, that page says how it is made so.
        explains = caller is ANYBODY and path == rights.ACCESS and method in rights.SAFE
        if not caller.may(needed) and not explains:
            told = f"this takes the role {needed.word}"
            mine = f", yours is {caller.role.word}" if caller.role is not None else ""
            return self._no(request, caller, "forbidden", told + mine)
        asked = request.query_params.getlist("workspace")
        if rights.takes_workspace(path):
            others = [name for name in asked if not caller.sees(name or DEFAULT_WORKSPACE)]
            if others:
                told = f"workspace {others[0][:128]!r} is not yours: you see {caller.workspace!r} alone"
                return self._no(request, caller, "other_workspace", told)
        return None

    def _no(self, request: Request, caller: Caller, code: str, why: str) -> Response:
        if wants_api(request) or request.url.path == "/metrics" or not caller.user:
            hint = "Ask an admin, or use another token." if code != "cross_site" else ""
            return error_response(403, code, f"{why[:1].upper()}{why[1:]}.", hint)
        return self._refuse(request, caller, why)

    def _noting(self, scope: Scope, caller: Caller, send: Send) -> Send:
        """Return a ``send`` that adds a line to the audit trail before it tells that something changed."""

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                request = Request(scope)
                workspace = request.query_params.get("workspace") or DEFAULT_WORKSPACE
                what = f"{request.method} {request.url.path}"
                act = Act(datetime.now(UTC), workspace, caller.name, CHANGED, what, address_of(request))
                try:
                    await to_thread.run_sync(self._accounts.note, act)
                except StoreError as error:  # what was changed stays so
                    _log.error("%s by %r was not noted: %s", what[:200], caller.name, error)
            await send(message)

        return noting


def address_of(request: Request) -> str:
    """Return where a request was sent from; no proxy's word is taken for it."""
    return request.client.host if request.client is not None else ""


def _sign_in(request: Request) -> Response:
    """Return the answer to somebody who must say who they are: to a browser the page for it."""
    path = request.url.path
    api = wants_api(request) or path == "/metrics" or "authorization" in request.headers
    if api or request.headers.get("hx-request") == "true":
        known = "authorization" in request.headers or COOKIE in request.cookies
        return error_response(
            401,
            "unauthenticated",
            "The token or session is not known, or has ended." if known else "This server asks who you are.",
            "Sign in at /sign-in, or send 'Authorization: Bearer TOKEN' with a token of "
            "`specscope token add --scope read`.",
            headers={"WWW-Authenticate": "Bearer"},
        )
    asked = ""
    if request.method == "GET":
        here = path + (f"?{request.url.query}" if request.url.query else "")
        asked = "" if rights.landing(here) == "/" else f"?{urlencode({'next': here})}"
    return RedirectResponse(rights.SIGN_IN + asked, 303)


def _with_workspace(query: bytes, workspace: str) -> bytes:
    added = urlencode({"workspace": workspace}).encode("ascii")
    return query + b"&" + added if query else added

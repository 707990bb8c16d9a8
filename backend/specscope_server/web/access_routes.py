"""Pages of signing in and out, of one's own account, and of users, tokens and what was done."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from specscope_server.auth import rights
from specscope_server.auth.door import Door
from specscope_server.auth.gate import address_of, caller_of
from specscope_server.auth.managing import Managing, NotDone
from specscope_server.auth.model import ANYBODY, Act, Caller
from specscope_server.auth.sessions import COOKIE
from specscope_server.auth.signing_in import NotSignedIn, SigningIn
from specscope_server.auth.tokens import new_session_key
from specscope_server.store.port import Store
from specscope_server.web import access_views as views
from specscope_server.web import forms, render

PAGES: Final = ("/sign-in", "/account", "/access")
"""docs/guide/dashboard.md describes each."""
SIGNED_OUT: Final = "signed out"
_SEE_OTHER: Final = 303
_TRAIL: Final = 100


def router(store: Store, door: Door, signing: SigningIn, *, secure: bool, session_s: int) -> APIRouter:
    """Return the routes over the users of ``store``; ``secure``: browsers send the cookie over TLS alone.

    Include it before the other pages: those answer every other GET.
    """
    routes = APIRouter(include_in_schema=False)
    accounts = store.accounts

    @routes.get(rights.SIGN_IN)
    async def sign_in_page(ask: Request) -> Response:
        back = rights.landing(ask.query_params.get("next", "/"))
        if not await door.closed():
            return _show(ask, "sign_in", views.SignInPage(open_to_all=True, back=back), "Sign in")
        if await door.caller(None, ask.cookies.get(COOKIE)) is not None:
            return RedirectResponse(back, _SEE_OTHER)
        users = await run_in_threadpool(accounts.users)
        return _show(ask, "sign_in", views.SignInPage(back=back, anybody=bool(users)), "Sign in")

    @routes.post(rights.SIGN_IN)
    async def sign_in(ask: Request) -> Response:
        form = await forms.sent(ask, keep=("password",))
        back = rights.landing(forms.one(form, "next") or "/")
        name = forms.one(form, "name")
        try:
            made = await signing.sign_in(name, forms.one(form, "password"), address_of(ask))
        except NotSignedIn as no:
            view = views.SignInPage(back=back, name=name[:64], error=str(no))
            answer = _show(ask, "sign_in", view, "Sign in", 429 if no.wait else 401)
            if no.wait:
                answer.headers["Retry-After"] = "300"
            return answer
        away = RedirectResponse(back, _SEE_OTHER)
        _keep(away, made.cookie, secure, session_s)
        return away

    @routes.post(rights.SIGN_OUT)
    async def sign_out(ask: Request) -> Response:
        await forms.sent(ask)
        caller = caller_of(ask)
        if caller.user:
            await run_in_threadpool(_end, ask, caller)
            door.forget()
        away = RedirectResponse(rights.SIGN_IN, _SEE_OTHER)
        _keep(away, "", secure, 0)
        return away

    def _end(ask: Request, caller: Caller) -> None:
        now = datetime.now(UTC)
        accounts.change_user(caller.name, now, session_key=new_session_key())
        accounts.note(Act(now, caller.workspace, caller.name, SIGNED_OUT, "", address_of(ask)))

    @routes.get(rights.ACCOUNT)
    def account(ask: Request) -> Response:
        return _show(ask, "account", views.AccountPage(), "Your account")

    @routes.post(rights.ACCOUNT)
    async def set_own(ask: Request) -> Response:
        form = await forms.sent(ask, keep=("current", "password", "again"))
        new = forms.one(form, "password")
        try:
            if new != forms.one(form, "again"):
                raise NotDone("the two new passwords differ")
            mine = Managing(accounts, caller_of(ask), address_of(ask))
            await run_in_threadpool(mine.set_own_password, forms.one(form, "current"), new)
        except NotDone as no:
            return _show(ask, "account", views.AccountPage(error=str(no)), "Your account", 400)
        door.forget()
        return RedirectResponse(rights.SIGN_IN, _SEE_OTHER)

    @routes.get(rights.ACCESS)
    def access(ask: Request) -> Response:
        return _access(ask)

    def _access(
        ask: Request, status: int = 200, *, error: str = "", made: str = "", said: str = ""
    ) -> Response:
        caller = caller_of(ask)
        if caller is ANYBODY:
            return _show(ask, "access", views.AccessPage(open_to_all=True), "Users and tokens")
        seen = Managing(accounts, caller, "")
        view = views.AccessPage(
            users=tuple(seen.users()),
            tokens=tuple(seen.tokens()),
            acts=tuple(accounts.acts(_TRAIL, caller.workspace)),
            error=error,
            made=made,
            said=said,
        )
        return _show(ask, "access", view, "Users and tokens", status)

    def _done(ask: Request, do: Any, *given: Any, said: str) -> Response:
        try:
            do(*given)
        except NotDone as no:
            return _access(ask, 400, error=str(no))
        door.forget()
        return _access(ask, said=said)

    @routes.post("/access/users")
    async def add_user(ask: Request) -> Response:
        form = await forms.sent(ask, keep=("password",))
        given = [forms.one(form, name) for name in ("name", "password", "role", "workspace")]
        managing = Managing(accounts, caller_of(ask), address_of(ask))
        return await run_in_threadpool(
            lambda: _done(ask, managing.add_user, *given, said=f"{given[0]} may sign in.")
        )

    @routes.post("/access/users/{name}")
    async def change_user(ask: Request, name: str) -> Response:
        form = await forms.sent(ask, keep=("password",))
        managing = Managing(accounts, caller_of(ask), address_of(ask))
        match forms.one(form, "do"):
            case "remove":
                do, given, said = managing.remove_user, (), f"{name} may not sign in any more."
            case "password":
                do, given = managing.set_password, (forms.one(form, "password"),)
                said = f"The password of {name} is set; their sessions have ended."
            case _:
                do, given = managing.set_role, (forms.one(form, "role"),)
                said = f"{name} is {forms.one(form, 'role')} now."
        return await run_in_threadpool(lambda: _done(ask, do, name, *given, said=said))

    @routes.post("/access/tokens")
    async def add_token(ask: Request) -> Response:
        form = await forms.sent(ask)
        managing = Managing(accounts, caller_of(ask), address_of(ask))

        def add() -> Response:
            try:
                made = managing.add_token(
                    form.get("scope", []), forms.one(form, "workspace"), forms.one(form, "name")
                )
            except NotDone as no:
                return _access(ask, 400, error=str(no))
            door.forget()
            return _access(ask, made=made)

        return await run_in_threadpool(add)

    @routes.post("/access/tokens/{uid}/revoke")
    async def revoke(ask: Request, uid: str) -> Response:
        await forms.sent(ask)
        managing = Managing(accounts, caller_of(ask), address_of(ask))
        return await run_in_threadpool(
            lambda: _done(ask, managing.revoke, uid, said=f"Token {uid} is revoked.")
        )

    return routes


def refused(request: Request, _caller: Caller, why: str) -> Response:
    """Return the page that says why somebody may not do something."""
    return _show(request, "refused", views.RefusedPage(why), "Not allowed", 403)


def _show(request: Request, name: str, view: object, title: str, status: int = 200) -> Response:
    caller = caller_of(request)
    asked = dict(parse_qsl(request.url.query)).get("workspace", "")
    # Whoever may not see a workspace finds links to their own.
    workspace = caller.workspace or asked or render.DEFAULT_WORKSPACE
    return render.page(
        request,
        name,
        view,
        title=title,
        workspace=workspace,
        workspaces=[workspace],
        now=datetime.now(UTC),
        status=status,
        signed_out=name == "sign_in",
    )


def _keep(answer: Response, cookie: str, secure: bool, max_age_s: int) -> None:
    # Lax and not strict: who follows a link in a notification is signed in. What changes something is
    # refused to other sites all the same.
    answer.set_cookie(
        COOKIE, cookie, max_age=max_age_s, path="/", secure=secure, httponly=True, samesite="lax"
    )

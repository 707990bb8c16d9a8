"""Pages of rules, silences and single alerts, and the forms on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from specscope_server.alerts.catalogue import blank, effective
from specscope_server.alerts.rules import RuleError, changed
from specscope_server.alerts.silencing import SilenceError, silence
from specscope_server.alerts.targets import Target
from specscope_server.alerts.try_out import try_out
from specscope_server.store.port import Refused, Store
from specscope_server.web import alert_views as views
from specscope_server.web import forms, render

PAGES: Final = (
    "/alerts/rules",
    "/alerts/rules/{rule}",
    "/alerts/silences",
    "/alerts/on/{engine_uid}/{rule}",
    "/alerts/changes/{change}",
)
"""With :data:`specscope_server.web.routes.PAGES`; docs/guide/dashboard.md describes each."""
_SEE_OTHER: Final = 303


def router(
    store: Store,
    targets: Sequence[Target] = (),
    base_url: str = "",
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> APIRouter:
    """Return the routes over ``store``; a test goes to ``targets``, with links that begin with ``base_url``.

    Include it before the other pages: those answer every other GET.
    """
    routes = APIRouter(include_in_schema=False)

    def show(ask: Request, name: str, view: object, title: str, status: int = 200) -> Response:
        workspace = _workspace(ask)
        known = sorted({name for name, _ in store.engine_uids()} | {workspace})
        return render.page(
            ask, name, view, title=title, workspace=workspace, workspaces=known, now=now(), status=status
        )

    def missing(ask: Request, what: str, name: str) -> Response:
        return show(ask, "missing", {"what": what, "id": name}, f"No such {what}", 404)

    def away(ask: Request, path: str, **query: object) -> Response:
        return RedirectResponse(render.link(_workspace(ask), path, **query), _SEE_OTHER)

    @routes.get("/alerts/rules")
    def rules(ask: Request) -> Response:
        view = views.rules(store.alert_rules(_workspace(ask)))
        return show(ask, "rules", view, "Alert rules")

    @routes.get("/alerts/rules/{rule}")
    def rule(ask: Request, rule: str) -> Response:
        stored = store.alert_rules(_workspace(ask))
        found = next((one for one in effective(stored) if one.name == rule), None)
        if found is None:
            try:
                found = changed(blank(rule), {"kinds": ["zero_acceptance"]})
            except RuleError:
                return missing(ask, "rule", rule)
        return show(ask, "rule", views.rule(found, stored, ask.query_params.get("said", "")), found.title)

    @routes.post("/alerts/rules")
    async def name_rule(ask: Request) -> Response:
        name = forms.one(await forms.sent(ask), "name")
        return away(ask, f"/alerts/rules/{name}" if name else "/alerts/rules")

    @routes.post("/alerts/rules/{rule}")
    async def set_rule(ask: Request, rule: str) -> Response:
        form = await forms.sent(ask)
        return await run_in_threadpool(_set_rule, ask, rule, form)

    def _set_rule(ask: Request, rule: str, form: dict[str, list[str]]) -> Response:
        workspace = _workspace(ask)
        stored = store.alert_rules(workspace)
        if forms.one(form, "do") == "delete":
            store.delete_rule(workspace, rule)
            return away(ask, "/alerts/rules")
        before = next((one for one in effective(stored) if one.name == rule), None) or blank(rule)
        try:
            made = changed(before, views.rule_fields(form))
            store.set_rule(workspace, rule, made.body, now())
        except (RuleError, Refused) as error:
            return show(ask, "rule", views.rule(before, stored, "", str(error)), before.title, 400)
        return away(ask, f"/alerts/rules/{rule}", said="saved")

    @routes.get("/alerts/silences")
    def silences(ask: Request) -> Response:
        view = views.silences(store.silences(_workspace(ask)), now(), dict(ask.query_params))
        return show(ask, "silences", view, "Silences")

    @routes.post("/alerts/silences")
    async def add_silence(ask: Request) -> Response:
        form = await forms.sent(ask)
        return await run_in_threadpool(_add_silence, ask, form)

    def _add_silence(ask: Request, form: dict[str, list[str]]) -> Response:
        at = now()
        try:
            made = silence(
                rule=forms.one(form, "rule"),
                engine=forms.one(form, "engine"),
                starts=at,
                ends=at + timedelta(hours=views.hours(forms.one(form, "hours"))),
                author=forms.one(form, "author"),
                comment=forms.one(form, "comment"),
                now=at,
            )
            store.add_silence(_workspace(ask), made)
        except (SilenceError, Refused) as error:
            asked = {name: values[0] for name, values in form.items()}
            view = views.silences(store.silences(_workspace(ask)), at, asked, str(error))
            return show(ask, "silences", view, "Silences", 400)
        return away(ask, "/alerts/silences")

    @routes.post("/alerts/silences/{uid}/end")
    async def end_silence(ask: Request, uid: str) -> Response:
        await forms.sent(ask)
        await run_in_threadpool(store.end_silence, _workspace(ask), uid, now())
        return away(ask, "/alerts/silences")

    @routes.get("/alerts/on/{engine_uid}/{rule}")
    def one_alert(ask: Request, engine_uid: str, rule: str) -> Response:
        with store.snapshot() as reads:
            view = views.one(reads, _workspace(ask), engine_uid, rule)
        if view is None:
            return missing(ask, "alert", f"{rule} on {engine_uid}")
        return show(ask, "alert", view, f"{view.row.title} on {view.row.engine}")

    @routes.post("/alerts/on/{engine_uid}/{rule}/acknowledge")
    async def acknowledge(ask: Request, engine_uid: str, rule: str) -> Response:
        form = await forms.sent(ask)
        by, note = forms.one(form, "by")[:200], forms.one(form, "note")[:500]
        if not by:
            raise HTTPException(400, "say who takes it on: go back and fill in the name")
        await run_in_threadpool(store.acknowledge, _workspace(ask), engine_uid, rule, by, note, now())
        return away(ask, f"/alerts/on/{engine_uid}/{rule}")

    @routes.get("/alerts/changes/{change}")
    def one_change(ask: Request, change: str) -> Response:
        number = int(change) if change.isascii() and change.isdigit() and len(change) < 19 else 0
        found = store.alert_event(_workspace(ask), number)
        if found is None:
            return missing(ask, "change", change)
        return show(ask, "change", views.change(found), f"{found.title}: {found.state}")

    @routes.post("/alerts/test")
    async def send_test(ask: Request) -> Response:
        await forms.sent(ask)
        tried = await try_out(targets, _workspace(ask), base_url)
        return await run_in_threadpool(show, ask, "tried", tried, "A test")

    @routes.post("/alerts/deliveries/{number}/retry")
    async def retry(ask: Request, number: int) -> Response:
        await forms.sent(ask)
        if 0 < number < 2**62:
            await run_in_threadpool(store.send_again, _workspace(ask), number)
        return away(ask, "/alerts")

    return routes


def _workspace(ask: Request) -> str:
    return ask.query_params.get("workspace") or render.DEFAULT_WORKSPACE

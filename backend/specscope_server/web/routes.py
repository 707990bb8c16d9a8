"""The pages' routes: read the store, build the view, render. Handlers are synchronous: the store blocks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response

from specscope_server.auth.gate import caller_of
from specscope_server.ingest import scrape
from specscope_server.ingest.stats import IngestStats
from specscope_server.lately import Lately
from specscope_server.store.port import Store
from specscope_server.tokens.known import Vocabularies
from specscope_server.web import (
    alert_routes,
    alerts,
    assets,
    engine,
    overview,
    render,
    request,
    request_routes,
    requests,
    status,
    windows,
)

JUDGE_S: Final = 300.0
"""Seconds of evidence an engine's state is judged by, unless the router is told otherwise."""
LIVE_S: Final = 4
"""Seconds between refreshes of a page's live part."""
PAGES: Final = (
    "/",
    "/requests",
    "/requests/{uid}",
    "/engines/{engine_uid}",
    "/alerts",
    "/status",
    *alert_routes.PAGES,
)
"""The pages; docs/guide/dashboard.md describes each of them and a test fails when one is missing there."""


def router(
    store: Store,
    counted: IngestStats | None = None,
    *,
    judge_s: float = JUDGE_S,
    lately: Lately | None = None,
    alerting: APIRouter | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> APIRouter:
    """Return the routes of the dashboard over ``store``, and over what the receivers ``counted``.

    ``alerting`` are those of :mod:`specscope_server.web.alert_routes`, unless told otherwise without an
    address to notify.

    ``lately`` is what the rest of the server remembers of judged engines.

    Include it last: it answers every other GET with a page that says there is none.
    """
    routes = APIRouter(include_in_schema=False)
    routes.routes.extend((alerting or alert_routes.router(store)).routes)
    routes.routes.extend(request_routes.router(store).routes)
    vocabularies = Vocabularies()
    ingest = IngestStats() if counted is None else counted
    known = Lately() if lately is None else lately

    def show(ask: Request, name: str, view: object, title: str, **more: Any) -> Response:
        workspace = ask.query_params.get("workspace") or render.DEFAULT_WORKSPACE
        workspaces = sorted({name for name, _ in store.engine_uids()} | {workspace})
        return render.page(
            ask, name, view, title=title, workspace=workspace, workspaces=workspaces, now=now(), **more
        )

    @routes.get("/")
    def index(ask: Request, workspace: Workspace, window: str = "") -> Response:
        with store.snapshot() as reads:
            view = overview.build(reads, workspace, windows.choose(window), now(), judge_s, known)
        return show(ask, "overview", view, "Overview", live_s=LIVE_S)

    @routes.get("/requests")
    def request_list(
        ask: Request, workspace: Workspace, asked: Annotated[requests.Asked, Depends(_asked)]
    ) -> Response:
        with store.snapshot() as reads:
            view = requests.build(reads, workspace, asked, now(), list(ask.query_params))
        # An older page does not change under its reader; the newest one does.
        return show(ask, "requests", view, "Requests", live_s=None if asked.cursor else LIVE_S)

    @routes.get("/requests/{uid}")
    def one_request(
        ask: Request,
        workspace: Workspace,
        uid: str,
        first: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
        step: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
    ) -> Response:
        with store.snapshot() as reads:
            view = request.build(reads, workspace, uid, first, step, vocabularies)
        if view is None:
            return show(ask, "missing", {"what": "request", "id": uid}, "No such request", status=404)
        live = LIVE_S if view.request.state == "running" else None
        title = f"Request {view.request.rid or uid}"
        return show(ask, "request", view, title, live_s=live, figures=True)

    @routes.get("/engines/{engine_uid}")
    def one_engine(
        ask: Request, workspace: Workspace, engine_uid: str, window: str = "", baseline: str = ""
    ) -> Response:
        with store.snapshot() as reads:
            view = engine.build(
                reads, workspace, engine_uid, windows.choose(window), now(), judge_s, baseline
            )
        if view is None:
            return show(ask, "missing", {"what": "engine", "id": engine_uid}, "No such engine", status=404)
        return show(ask, "engine", view, f"Engine {view.row.name}", live_s=LIVE_S, figures=True)

    @routes.get("/alerts")
    def alert_list(ask: Request, workspace: Workspace) -> Response:
        with store.snapshot() as reads:
            view = alerts.build(reads, workspace, now())
        return show(ask, "alerts", view, "Alerts", live_s=LIVE_S)

    @routes.get("/status")
    def server_status(ask: Request, workspace: Workspace) -> Response:
        told = scrape.read(ingest)
        if caller_of(ask).workspace:
            told = scrape.without_reasons(told)
        with store.snapshot() as reads:
            view = status.build(reads, told, workspace, now())
        return show(ask, "status", view, "Status", live_s=LIVE_S)

    @routes.get("/static/{name:path}")
    def static(ask: Request, name: str) -> Response:
        found = assets.respond(ask, name)
        if found is None:
            raise HTTPException(404, f"no static file {name!r}")
        return found

    @routes.get("/favicon.ico")
    def favicon(ask: Request) -> Response:
        found = assets.respond(ask, "icon.svg")
        assert found is not None  # the package holds it; a test opens it
        return found

    @routes.get("/{path:path}")
    def nowhere(ask: Request, path: str) -> Response:
        if path.split("/")[0] in ("api", "v1"):
            raise HTTPException(404, f"there is no {ask.url.path}")
        return show(ask, "missing", {"what": "page", "id": ask.url.path}, "No such page", status=404)

    return routes


def _workspace(workspace: str = "") -> str:
    return workspace or render.DEFAULT_WORKSPACE


Workspace = Annotated[str, Depends(_workspace)]


def _asked(
    q: str = "",
    engine: str = "",
    model: str = "",
    state: str = "",
    kind: str = "",
    flag: str = "",
    window: str = "",
    min_length: str = "",
    max_length: str = "",
    cursor: str = "",
) -> requests.Asked:
    return requests.Asked(q, engine, model, state, kind, flag, window, min_length, max_length, cursor)

"""The form on a request's page that deletes it."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from specscope_server.store.port import Store
from specscope_server.web import forms, render

_SEE_OTHER = 303


def router(store: Store) -> APIRouter:
    """Return the routes over ``store``."""
    routes = APIRouter(include_in_schema=False)

    @routes.post("/requests/{uid}/delete")
    async def delete(ask: Request, uid: str) -> Response:
        form = await forms.sent(ask)
        if forms.one(form, "sure") != "yes":
            raise HTTPException(400, "nothing was deleted: go back and tick that you mean it")
        workspace = ask.query_params.get("workspace") or render.DEFAULT_WORKSPACE
        if not await run_in_threadpool(store.delete_request, workspace, uid):
            raise HTTPException(404, "there is no such request: it may be deleted already")
        return RedirectResponse(render.link(workspace, "/requests"), _SEE_OTHER)

    return routes

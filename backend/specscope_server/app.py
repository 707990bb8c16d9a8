"""The web application: receiver, API and pages over one store, which it owns and closes once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from specscope.version import __version__
from starlette.exceptions import HTTPException

from specscope_server import security
from specscope_server.alerts.evaluator import Evaluator
from specscope_server.api import errors
from specscope_server.api import metrics as scraped
from specscope_server.api.common import Parts
from specscope_server.api.router import router as api
from specscope_server.auth.door import Door
from specscope_server.auth.gate import Gate
from specscope_server.auth.signing_in import SigningIn
from specscope_server.housekeeper import Housekeeper
from specscope_server.ingest import otlp_http
from specscope_server.ingest.body import Admission, Limits
from specscope_server.ingest.otlp_grpc import listening
from specscope_server.ingest.receiver import Receiver
from specscope_server.settings import ServerSettings
from specscope_server.store.port import Store, StoreError
from specscope_server.web import access_routes
from specscope_server.web import alert_routes as alert_pages
from specscope_server.web import routes as pages

_MIB = 1 << 20


def create_app(settings: ServerSettings, store: Store) -> FastAPI:
    """Return the application. It owns ``store`` from here on and closes it when it ends.

    Raises:
        SettingsError: the settings would let anyone in without having been told to.
        TargetError: nothing can be sent to one of the addresses to notify.
    """
    accounts = store.accounts
    settings.check(guarded=accounts.exist())
    door = Door(accounts, required=settings.closed, session_s=settings.session_hours * 3600)
    limits = Limits(
        wire_bytes=settings.max_body_mb * _MIB,
        raw_bytes=settings.max_inflated_mb * _MIB,
        seconds=settings.body_seconds,
    )
    # Two of the largest exports must fit, or one alone could be refused for ever.
    admission = Admission(
        settings.waiting_exports, max(64 * _MIB, 2 * (limits.wire_bytes + limits.raw_bytes))
    )
    receiver = Receiver(store, limits, admission, token=settings.ingest_token, door=door)

    evaluator = Evaluator(
        store,
        settings.notify,
        secret=settings.notify_secret,
        window_s=settings.judge_s,
        base_url=settings.public_url,
    )
    housekeeper = Housekeeper(store, registry=receiver.stats.registry)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        watching = asyncio.create_task(evaluator.run(), name="evaluator")
        keeping = asyncio.create_task(housekeeper.run(), name="housekeeper")
        try:
            async with listening(receiver, settings.grpc_address, settings.tls_cert, settings.tls_key):
                yield
        finally:
            housekeeper.stop()
            await evaluator.stop()
            await asyncio.gather(watching, keeping)
            await asyncio.to_thread(store.close)

    app = FastAPI(
        title="SpecScope",
        version=__version__,
        summary="Why speculative decoding accepts draft tokens or does not.",
        lifespan=lifespan,
        # FastAPI's own documentation pages load scripts from another host.
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.parts = Parts(settings, store, receiver, evaluator.targets)
    app.add_middleware(Gate, door=door, accounts=accounts, refuse=access_routes.refused)
    app.add_middleware(security.KnownHosts, hosts=settings.answered_hosts)
    app.add_middleware(security.SecurityHeaders)
    for kind in (errors.ApiError, RequestValidationError, StoreError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer)
    otlp_http.install(app, receiver)
    app.include_router(api)
    app.include_router(scraped.router)
    access = access_routes.router(
        store, door, SigningIn(accounts), secure=settings.browsed_with_tls, session_s=door.session_s
    )
    app.include_router(access)
    alerting = alert_pages.router(store, evaluator.targets, settings.public_url)
    app.include_router(
        pages.router(
            store,
            receiver.stats,
            judge_s=settings.judge_s,
            lately=app.state.parts.lately,
            alerting=alerting,
        )
    )
    return app


async def _answer(request: Request, error: Exception) -> Response:
    """Answer an exception: in the API's shape below ``/api``, as plain text where a person may look."""
    answer = errors.of_exception(error)
    if not errors.wants_api(request):
        told = errors.ErrorBody.model_validate_json(bytes(answer.body)).error
        answer = PlainTextResponse(
            f"{told.message}\n{told.hint}\n",
            answer.status_code,
            {k: v for k, v in answer.headers.items() if k == "retry-after"},
        )
    # Starlette answers a bug outside of all middleware.
    for name, value in security.HEADERS.items():
        answer.headers.setdefault(name, value)
    return answer

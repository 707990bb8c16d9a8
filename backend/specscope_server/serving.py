"""Running the application: one process, or several that share the ports, drained and ended together."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from contextlib import suppress
from functools import partial
from multiprocessing import connection, parent_process
from types import FrameType
from typing import Any, Final, NoReturn

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from specscope_server.app import create_app
from specscope_server.ingest.workers import shared_counters
from specscope_server.settings import ServerSettings
from specscope_server.store import open_store
from specscope_server.store.port import Store

HTTP_DRAIN_S: Final = 15
"""Seconds that requests under way get to finish at shutdown. With those of gRPC it makes 20; container
runtimes kill after 30."""
HEALTHY_S: Final = 60
"""Seconds after which a worker that says nothing is taken for hung, and replaced."""


def serve_alone(settings: ServerSettings, listener: socket.socket, store: Store) -> None:
    """Serve ``store`` in this process until SIGTERM or Ctrl-C, then finish what is under way."""
    _log()
    # uvicorn drains and then raises the signal again: an orderly end, not a death by signal.
    signal.signal(signal.SIGTERM, _leave)
    server = server_for(create_app(settings, store), settings)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def serve_in_workers(settings: ServerSettings, listener: socket.socket) -> bool:
    """Serve in ``settings.workers`` processes until SIGTERM or Ctrl-C; say whether they could start.

    Each opens the store by itself. One that ends unasked is replaced.
    """
    _log()
    config = _config(
        partial(_worker, settings),
        settings,
        factory=True,
        workers=settings.workers,
        timeout_worker_healthcheck=HEALTHY_S,
    )
    with shared_counters():
        workers = Multiprocess(config, sockets=[listener])
        workers.run()
    return all(process.exitcode != STARTUP_FAILURE for process in workers.processes)


def server_for(app: FastAPI, settings: ServerSettings) -> uvicorn.Server:
    """Return the HTTP server of an application, with this project's settings of it."""
    return uvicorn.Server(_config(app, settings))


def _config(app: Any, settings: ServerSettings, **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # a tracer exports twice a second
        lifespan="on",
        ws="none",
        # No proxy is known yet whose word for the client's address could be taken.
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=HTTP_DRAIN_S,
        ssl_certfile=settings.tls_cert or None,
        ssl_keyfile=settings.tls_key or None,
        **more,
    )


def _worker(settings: ServerSettings) -> FastAPI:
    """Make the application in one of several processes."""
    _log()
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    return create_app(settings, open_store(settings.db, keep=settings.keep, durable=settings.durable))


def _end_with_parent() -> None:
    """Drain and end when the process that started this one is gone: nobody else would end it."""
    parent = parent_process()
    if parent is not None:
        connection.wait((parent.sentinel,))
        os.kill(os.getpid(), signal.SIGTERM)


def _log() -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    for name in ("uvicorn", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)

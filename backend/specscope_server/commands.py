"""``specscope serve`` and ``specscope db``, found by the command through its entry points."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import Annotated, Final, NoReturn

import typer
import uvicorn
from fastapi import FastAPI

from specscope_server import settings as s
from specscope_server.alerts.targets import TargetError, parse_target
from specscope_server.app import create_app
from specscope_server.listening import ListenError, listen, parse_port, url_of
from specscope_server.settings import ServerSettings, SettingsError, default_database
from specscope_server.store import check as check_store
from specscope_server.store import open_store
from specscope_server.store import upgrade as upgrade_store
from specscope_server.store.port import StoreError
from specscope_server.store.where import parse, where

DRAIN_S: Final = 20
"""Seconds that requests under way get to finish at shutdown; container runtimes kill after 30."""

Database = Annotated[
    str,
    typer.Option(
        "--db",
        envvar=s.DB,
        metavar="URL",
        help="sqlite:///file, postgresql://... or a file path. [default: specscope.db in the data directory]",
        show_default=False,
    ),
]

db = typer.Typer(help="Look after the database.", no_args_is_help=True, rich_markup_mode=None)


def serve(
    host: Annotated[str, typer.Option(envvar=s.HOST, help="Address to listen on.")] = s.DEFAULT_HOST,
    port: Annotated[str, typer.Option(envvar=s.PORT, help="Port to listen on; 0 takes any free one.")] = str(
        s.DEFAULT_PORT
    ),
    database: Database = "",
    notify: Annotated[
        list[str] | None,
        typer.Option(
            envvar=s.NOTIFY, metavar="URL", help="Send alerts there (apprise or webhook); repeatable."
        ),
    ] = None,
    allow_unauthenticated: Annotated[
        bool,
        typer.Option(
            "--allow-unauthenticated",
            envvar=s.ALLOW_UNAUTHENTICATED,
            help="Listen on other than loopback addresses although there is no login.",
        ),
    ] = False,
    trusted_host: Annotated[
        list[str] | None,
        typer.Option(envvar=s.TRUSTED_HOSTS, metavar="NAME", help="Also answer to this name; repeatable."),
    ] = None,
    public_url: Annotated[
        str, typer.Option("--url", envvar=s.PUBLIC_URL, help="URL of this server in notifications.")
    ] = "",
    max_body_mb: Annotated[
        int, typer.Option(envvar=s.MAX_BODY_MB, min=1, max=1024, help="MiB of one export as sent.")
    ] = s.DEFAULT_BODY_MB,
    max_inflated_mb: Annotated[
        int, typer.Option(envvar=s.MAX_INFLATED_MB, min=1, max=4096, help="MiB of one export, decompressed.")
    ] = s.DEFAULT_INFLATED_MB,
) -> None:
    """Run the server: OTLP receiver, API, dashboard and alerts in one process."""
    try:
        settings = ServerSettings(
            db=database or default_database(),
            host=host,
            port=parse_port(port),
            allow_unauthenticated=allow_unauthenticated,
            notify=tuple(notify or ()),
            trusted_hosts=tuple(trusted_host or ()),
            public_url=public_url,
            max_body_mb=max_body_mb,
            max_inflated_mb=max_inflated_mb,
        )
        settings.check()
        for target in settings.notify:
            parse_target(target)
        listener = listen(settings.host, settings.port)
    except (SettingsError, TargetError) as error:
        _fail(str(error), 2)
    except ListenError as error:
        _fail(str(error), 1)
    with listener:
        try:
            store, place = open_store(settings.db), where(parse(settings.db))
        except StoreError as error:
            _fail(str(error), 1)
        url = url_of(listener, settings.host)
        settings = replace(settings, public_url=settings.public_url or url)
        typer.echo(f"SpecScope listens on {url} and stores in {place}")
        _run(create_app(settings, store), listener)


@db.command()
def upgrade(database: Database = "") -> None:
    """Bring the database's schema up to date; the server does so at every start."""
    _on_database(upgrade_store, database)


@db.command()
def check(database: Database = "") -> None:
    """Say whether the database can be used by this version; changes nothing."""
    _on_database(check_store, database)


def _on_database(act: Callable[[str], str], database: str) -> None:
    try:
        typer.echo(act(database or default_database()))
    except SettingsError as error:
        _fail(str(error), 2)
    except StoreError as error:
        _fail(str(error), 1)


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"specscope: {message}", err=True)
    raise typer.Exit(code)


def server_for(app: FastAPI) -> uvicorn.Server:
    """Return the HTTP server of an application, with this project's settings of it."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,  # a tracer exports twice a second
            lifespan="on",
            ws="none",
            # No proxy is known yet whose word for the client's address could be taken.
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_S,
        )
    )


def _run(app: FastAPI, listener: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish what is under way."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    # uvicorn drains and then raises the signal again: an orderly end, not a death by signal.
    signal.signal(signal.SIGTERM, _leave)
    with suppress(KeyboardInterrupt):
        server_for(app).run(sockets=[listener])


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)

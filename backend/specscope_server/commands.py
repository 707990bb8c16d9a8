"""``specscope serve`` and ``specscope db``, found by the command through its entry points."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated, NoReturn

import typer

from specscope_server import settings as s
from specscope_server.alerts.targets import TargetError, parse_target
from specscope_server.listening import (
    ListenError,
    address_of,
    listen,
    parse_grpc_port,
    parse_port,
    reserve,
    url_of,
)
from specscope_server.serving import serve_alone, serve_in_workers
from specscope_server.settings import ServerSettings, SettingsError, default_database
from specscope_server.store import check as check_store
from specscope_server.store import open_store
from specscope_server.store import upgrade as upgrade_store
from specscope_server.store.port import StoreError
from specscope_server.store.where import parse, where

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
    grpc_port: Annotated[
        str,
        typer.Option(
            envvar=s.GRPC_PORT,
            metavar="PORT",
            help="Port for OTLP/gRPC, or off; 0 takes any free one. [default: 4317, if it is free]",
            show_default=False,
        ),
    ] = "",
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
    ingest_token_file: Annotated[
        str,
        typer.Option(
            envvar=s.INGEST_TOKEN_FILE, metavar="FILE", help="Take exports with the token in this file alone."
        ),
    ] = "",
    tls_cert: Annotated[
        str, typer.Option(envvar=s.TLS_CERT, metavar="FILE", help="PEM certificate for HTTP and gRPC.")
    ] = "",
    tls_key: Annotated[str, typer.Option(envvar=s.TLS_KEY, metavar="FILE", help="Its PEM private key.")] = "",
    trusted_host: Annotated[
        list[str] | None,
        typer.Option(envvar=s.TRUSTED_HOSTS, metavar="NAME", help="Also answer to this name; repeatable."),
    ] = None,
    public_url: Annotated[
        str, typer.Option("--url", envvar=s.PUBLIC_URL, help="URL of this server in notifications.")
    ] = "",
    workers: Annotated[
        int, typer.Option(envvar=s.WORKERS, min=1, max=s.MAX_WORKERS, help="Processes that serve.")
    ] = 1,
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
            tls_cert=tls_cert,
            tls_key=tls_key,
            ingest_token=s.read_token(ingest_token_file),
            notify=tuple(notify or ()),
            trusted_hosts=tuple(trusted_host or ()),
            public_url=public_url,
            workers=workers,
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
    with listener, ExitStack() as held:
        grpc_address, about_grpc = _grpc(settings.host, grpc_port, held)
        try:
            store, place = open_store(settings.db), where(parse(settings.db))
        except StoreError as error:
            _fail(str(error), 1)
        url = url_of(listener, settings.host, tls=settings.tls)
        settings = replace(settings, public_url=settings.public_url or url, grpc_address=grpc_address)
        typer.echo(f"SpecScope listens on {url} and stores in {place}")
        typer.echo(about_grpc)
        if settings.workers == 1:
            serve_alone(settings, listener, store)
            return
        store.close()  # each worker opens it by itself; here it was seen to be sound
        if not serve_in_workers(settings, listener):
            _fail("a worker could not start: the lines above say why", 1)


def _grpc(host: str, port: str, held: ExitStack) -> tuple[str, str]:
    """Take the port for OTLP/gRPC: its address and a line about it, both of which say so when there is none.

    The default port is used if it is free. One that was asked for must be, or nothing starts.
    """
    try:
        number = parse_grpc_port(port)
        if number is None:
            return "", "OTLP/gRPC is off"
        socket = held.enter_context(reserve(host, number))
    except ListenError as error:
        if port.isdigit():
            _fail(str(error), 1)
        if port:
            _fail(str(error), 2)
        return "", f"OTLP/gRPC is off: {error}; OTLP/HTTP is not concerned"
    address = address_of(socket)
    return address, f"OTLP/gRPC listens on {address}"


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

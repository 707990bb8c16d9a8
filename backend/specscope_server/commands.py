"""``specscope serve``, found by the command through its entry point."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from specscope_server import keep_options as k
from specscope_server import settings as s
from specscope_server.alerts.targets import TargetError, parse_target
from specscope_server.auth.first import NAME, make_first, read_password
from specscope_server.cli_parts import Database, fail
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
from specscope_server.store.port import Store, StoreError
from specscope_server.store.where import parse, where


class Auth(StrEnum):
    """From when on people sign in."""

    AUTO = "auto"
    REQUIRED = "required"


class Synchronous(StrEnum):
    """When SQLite says that a commit is done."""

    FULL = "full"
    NORMAL = "normal"


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
    notify_secret_file: Annotated[
        str,
        typer.Option(
            envvar=s.NOTIFY_SECRET_FILE, metavar="FILE", help="Sign webhooks with the secret in this file."
        ),
    ] = "",
    allow_unauthenticated: Annotated[
        bool,
        typer.Option(
            "--allow-unauthenticated",
            envvar=s.ALLOW_UNAUTHENTICATED,
            help="Listen on other than loopback addresses although nobody has to sign in.",
        ),
    ] = False,
    auth: Annotated[
        Auth,
        typer.Option(
            envvar=s.AUTH, help="auto: people sign in once there is a user or token; required: always."
        ),
    ] = Auth.AUTO,
    admin_password_file: Annotated[
        str,
        typer.Option(
            envvar=s.ADMIN_PASSWORD_FILE,
            metavar="FILE",
            help="Where there is no user, make 'admin' with the password in this file.",
        ),
    ] = "",
    session_hours: Annotated[
        int, typer.Option(envvar=s.SESSION_HOURS, min=1, max=8760, help="Hours until people sign in anew.")
    ] = s.DEFAULT_SESSION_HOURS,
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
    steps_days: k.StepsDays = k.DEFAULT.steps_days,
    requests_days: k.RequestsDays = k.DEFAULT.requests_days,
    rollups_days: k.RollupsDays = k.DEFAULT.rollups_days,
    minutes_days: k.MinutesDays = k.DEFAULT.minutes_days,
    alerts_days: k.AlertsDays = k.DEFAULT.alerts_days,
    engines_days: k.EnginesDays = k.DEFAULT.engines_days,
    max_db_gb: k.MaxDbGb = 0,
    sqlite_synchronous: Annotated[
        Synchronous,
        typer.Option(
            envvar=s.SQLITE_SYNCHRONOUS, help="normal: faster, but a loss of power takes the last exports."
        ),
    ] = Synchronous.FULL,
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
            auth_required=auth is Auth.REQUIRED,
            session_hours=session_hours,
            tls_cert=tls_cert,
            tls_key=tls_key,
            ingest_token=s.read_token(ingest_token_file),
            notify=tuple(notify or ()),
            notify_secret=s.read_notify_secret(notify_secret_file),
            trusted_hosts=tuple(trusted_host or ()),
            public_url=public_url,
            keep=k.keep_of(
                *(steps_days, requests_days, rollups_days, minutes_days, alerts_days, engines_days),
                max_db_gb=max_db_gb,
            ),
            durable=sqlite_synchronous is Synchronous.FULL,
            workers=workers,
            max_body_mb=max_body_mb,
            max_inflated_mb=max_inflated_mb,
        )
        grpc_number = parse_grpc_port(grpc_port)
        first_admin = read_password(admin_password_file)
        settings.check(guarded=bool(first_admin) or (not settings.loopback and _guarded(settings.db)))
        for target in settings.notify:
            parse_target(target)
        listener = listen(settings.host, settings.port)
    except (SettingsError, TargetError) as error:
        fail(str(error), 2)
    except ListenError as error:
        fail(str(error), 1)
    with listener, ExitStack() as held:
        grpc_address, about_grpc = _grpc(settings.host, grpc_number, held, asked=grpc_port.isdigit())
        try:
            store, place = _opened(settings), where(parse(settings.db))
            if first_admin and make_first(store.accounts, first_admin):
                typer.echo(f"Made the user {NAME!r} with the password in {admin_password_file}")
            signs_in = settings.closed or store.accounts.exist()
        except StoreError as error:
            fail(str(error), 1)
        url = url_of(listener, settings.host, tls=settings.tls)
        settings = replace(settings, public_url=settings.public_url or url, grpc_address=grpc_address)
        typer.echo(f"SpecScope listens on {url} and stores in {place}")
        typer.echo(about_grpc)
        typer.echo(
            "People sign in, programs show a token"
            if signs_in
            else "Nobody has to sign in: whoever reaches these addresses is let in"
        )
        if not store.capabilities.durable_commit:
            typer.echo(
                "Exports are acknowledged before they are on disk: the last may be lost with the power"
            )
        if settings.workers == 1:
            serve_alone(settings, listener, store)
            return
        store.close()  # each worker opens it by itself; here it was seen to be sound
        if not serve_in_workers(settings, listener):
            fail("a worker could not start: the lines above say why", 1)


def _guarded(database: str) -> bool:
    """Say whether a database has users or tokens; one that is not there, or cannot be read, has none."""
    try:
        check_store(database)
        with closing(open_store(database)) as store:
            return store.accounts.exist()
    except StoreError:
        return False


def _opened(settings: ServerSettings) -> Store:
    return open_store(settings.db, keep=settings.keep, durable=settings.durable)


def _grpc(host: str, port: int | None, held: ExitStack, *, asked: bool) -> tuple[str, str]:
    """Take the port for OTLP/gRPC: its address and a line about it, both of which say so when there is none.

    The default port is used if it is free. One that was ``asked`` for must be, or nothing starts.
    """
    if port is None:
        return "", "OTLP/gRPC is off"
    try:
        socket = held.enter_context(reserve(host, port))
    except ListenError as error:
        if asked:
            fail(str(error), 1)
        return "", f"OTLP/gRPC is off: {error}; OTLP/HTTP is not concerned"
    address = address_of(socket)
    return address, f"OTLP/gRPC listens on {address}"

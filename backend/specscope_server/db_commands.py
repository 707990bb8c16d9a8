"""``specscope db``: look after a database, with or without a server at work on it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from specscope_server import keep_options as k
from specscope_server.cli_parts import Database, fail
from specscope_server.settings import SettingsError, default_database
from specscope_server.store import check as check_store
from specscope_server.store import upgrade as upgrade_store
from specscope_server.store.care import Stats, recounted, stats_of, vacuumed
from specscope_server.store.port import StoreError

db = typer.Typer(help="Look after the database.", no_args_is_help=True, rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@db.command()
def upgrade(database: Database = "") -> None:
    """Bring the database's schema up to date; the server does so at every start."""
    with _failing():
        typer.echo(upgrade_store(database or default_database()))


@db.command()
def check(
    database: Database = "",
    recount: Annotated[
        bool, typer.Option("--recount", help="Also hold every rollup against a recount from the chunks.")
    ] = False,
) -> None:
    """Say whether the database can be used by this version; changes nothing."""
    with _failing():
        url = database or default_database()
        typer.echo(check_store(url))
        if not recount:
            return
        found = recounted(url)
    for difference in found.differences:
        typer.echo(str(difference), err=True)
    for reason, buckets in sorted(found.not_judged.items()):
        typer.echo(f"{buckets} buckets not recounted: {reason}")
    said = f"{found.steps} steps in {found.buckets} buckets recounted"
    if found.differing:
        fail(f"{said}: {found.differing} sums differ from what their chunks say", 1)
    typer.echo(f"{said}, all sums agree")


@db.command()
def stats(database: Database = "", as_json: Json = False) -> None:
    """Say what is stored: schema, and rows, bytes, oldest and newest of each table; changes nothing."""
    with _failing():
        found = stats_of(database or default_database())
    typer.echo(json.dumps(_plain(found)) if as_json else _table(found))


@db.command()
def prune(
    database: Database = "",
    steps_days: k.StepsDays = k.DEFAULT.steps_days,
    requests_days: k.RequestsDays = k.DEFAULT.requests_days,
    rollups_days: k.RollupsDays = k.DEFAULT.rollups_days,
    minutes_days: k.MinutesDays = k.DEFAULT.minutes_days,
    alerts_days: k.AlertsDays = k.DEFAULT.alerts_days,
    engines_days: k.EnginesDays = k.DEFAULT.engines_days,
    max_db_gb: k.MaxDbGb = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; delete nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Delete now what is too old; the server does so by itself. Give it the server's own settings."""
    from specscope_server.store import open_store

    keep = k.keep_of(
        steps_days, requests_days, rollups_days, minutes_days, alerts_days, engines_days, max_db_gb
    )
    gone: Counter[str] = Counter()
    with _failing():
        url = database or default_database()
        check_store(url)  # a mistyped name must not make a new database
        with closing(open_store(url, keep=keep)) as store:
            now = datetime.now(UTC)
            if dry_run:
                gone.update(store.would_prune(now))
            else:
                for step in store.prune(now):
                    gone[step.table] += step.rows
    if as_json:
        typer.echo(json.dumps({"dry_run": dry_run, "rows": dict(gone)}))
        return
    verb = "would go" if dry_run else "deleted"
    for name, rows in sorted(gone.items()):
        typer.echo(f"{name}: {rows:,} rows {verb}")
    if not gone:
        typer.echo("nothing is too old")


@db.command()
def vacuum(database: Database = "") -> None:
    """Give the disk what deleted rows took: SQLite's VACUUM, PostgreSQL's VACUUM ANALYZE."""
    with _failing():
        typer.echo(vacuumed(database or default_database()))


@contextmanager
def _failing() -> Generator[None]:
    """End with a message and 2 for a setting that makes no sense, 1 for a database that cannot serve."""
    try:
        yield
    except SettingsError as error:
        fail(str(error), 2)
    except StoreError as error:
        fail(str(error), 1)


def _time(ns: int | None) -> str | None:
    if ns is None:
        return None
    try:
        return datetime.fromtimestamp(ns // 1_000_000_000, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError):  # an engine's clock may say anything
        return f"{ns} ns"


def _plain(found: Stats) -> dict[str, Any]:
    tables = [
        {
            **asdict(table),
            "oldest": _time(table.oldest_ns),
            "newest": _time(table.newest_ns),
        }
        for table in found.tables
    ]
    return {"database": found.place, "schema": found.schema, "bytes": found.bytes, "tables": tables}


def _table(found: Stats) -> str:
    lines = [
        f"{found.place}: schema {found.schema}, {found.bytes:,} bytes in use",
        f"{'table':<20}{'rows':>14}{'bytes':>18}  {'oldest':<21}newest",
    ]
    for table in found.tables:
        size = "unknown" if table.bytes is None else f"{table.bytes:,}"
        times = [_time(ns) or "" for ns in (table.oldest_ns, table.newest_ns)]
        lines.append(f"{table.name:<20}{table.rows:>14,}{size:>18}  {times[0]:<21}{times[1]}".rstrip())
    return "\n".join(lines)

"""The schema's version: brought up to date at server start, and told apart from strangers and successors."""

from __future__ import annotations

from pathlib import Path

import specscope_migrations
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from specscope_server.store import schema
from specscope_server.store.database import Database
from specscope_server.store.databases import database
from specscope_server.store.port import StoreError
from specscope_server.store.where import parse, where

VERSION_TABLE = "specscope_version"
"""Not Alembic's default, which another program in the same PostgreSQL database may use."""


def config(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration; the migrations run on ``connection``, in its transaction."""
    made = Config()
    made.set_main_option("script_location", str(Path(specscope_migrations.__file__).parent))
    made.set_main_option("path_separator", "os")
    made.attributes["connection"] = connection
    made.attributes["version_table"] = VERSION_TABLE
    made.attributes["metadata"] = schema.metadata
    return made


def _context(connection: Connection) -> MigrationContext:
    return MigrationContext.configure(
        connection,
        opts={
            "version_table": VERSION_TABLE,
            "target_metadata": schema.metadata,
            "include_name": _is_no_partition,
        },
    )


def _is_no_partition(name: str | None, kind: str, _parents: object) -> bool:
    """Leave partitions out of a comparison: they come and go with the days."""
    return kind != "table" or not (name or "").startswith(f"{schema.step_chunk.name}_")


def _version(connection: Connection, place: str) -> str | None:
    """Return the schema's revision, ``None`` for an empty database.

    Raises:
        StoreError: it is newer than this code, or the tables are another program's.
    """
    found = _context(connection).get_current_revision()
    scripts = ScriptDirectory.from_config(config())
    if found is None:
        taken = sorted(set(inspect(connection).get_table_names()) & set(schema.metadata.tables))
        if taken:
            raise StoreError(
                f"{place} holds tables that are not SpecScope's ({', '.join(taken[:3])}); "
                "name an empty or new database with --db"
            )
        return None
    known = {script.revision for script in scripts.walk_revisions()}
    if found not in known:
        raise StoreError(
            f"{place} was written by a newer SpecScope (schema {found}, this one knows up to "
            f"{scripts.get_current_head()}); upgrade SpecScope or name another database with --db"
        )
    return found


def migrate(target: Database) -> str:
    """Bring the schema up to date, in one transaction, and return its revision.

    Raises:
        StoreError: the database cannot serve.
    """
    with target.migrating() as connection:
        version = _version(connection, target.place)
        settings = config(connection)
        head = ScriptDirectory.from_config(settings).get_current_head() or ""
        if version != head:
            command.upgrade(settings, "head")
        return head


def schema_of(connection: Connection) -> str:
    """Return the schema's revision, empty for a database without tables."""
    return _context(connection).get_current_revision() or ""


def differences(connection: Connection) -> list[object]:
    """Return what Alembic would change to make the database what :mod:`schema` says; empty when equal."""
    return list(compare_metadata(_context(connection), schema.metadata))


def upgrade(url: str) -> str:
    """Bring the schema up to date and say in a sentence what it is now.

    Raises:
        StoreError: the address, place, file or schema cannot serve; the message says what to do.
    """
    target = database(url)
    try:
        return f"{target.place}: schema {migrate(target)}, up to date"
    finally:
        target.close()


def check(url: str) -> str:
    """Say in a sentence that the database is sound and its schema is this code's; changes nothing.

    Raises:
        StoreError: it is not; the message says what is wrong and what to do.
    """
    place = parse(url)
    # SQLite would make the missing file by opening it.
    file = Path(place.database or "")
    if place.get_backend_name() == "sqlite" and file.parent.is_dir() and not file.exists():
        raise StoreError(f"{where(place)} is not there; name another with --db, or run: specscope db upgrade")
    target = database(url)
    try:
        with target.read() as connection:
            return _checked(connection, target.place)
    finally:
        target.close()


def _checked(connection: Connection, place: str) -> str:
    version = _version(connection, place)
    head = ScriptDirectory.from_config(config()).get_current_head()
    if version != head:
        found = f"has schema {version}" if version else "is empty"
        raise StoreError(f"{place} {found}, this SpecScope wants {head}; run: specscope db upgrade")
    changed = differences(connection)
    if changed:
        raise StoreError(
            f"{place} says schema {version} but differs from it in {len(changed)} places "
            f"(first: {changed[0]}); it was changed by hand: restore a backup or name another database"
        )
    if connection.dialect.name == "sqlite":
        found = str(connection.execute(text("PRAGMA quick_check(1)")).scalar_one())
        if found != "ok":
            raise StoreError(f"{place} is damaged: {found}; restore a backup or name another database")
    return f"{place}: schema {version}, up to date and sound"

"""The schema: built from nothing, equal to the metadata, told apart from strangers and successors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import specscope_migrations
from alembic import command
from specscope_server.store import check, open_store, schema, upgrade
from specscope_server.store.databases import database
from specscope_server.store.migrate import VERSION_TABLE, config, differences
from specscope_server.store.port import StoreError
from sqlalchemy import inspect, text
from sqlalchemy.engine.interfaces import ReflectedIndex
from storekit import facts
from storekit.dump import dump, execute
from storekit.postgres import Server

VERSIONS = Path(specscope_migrations.__file__).parent / "versions"
HEAD = max(path.name.partition("_")[0] for path in VERSIONS.glob("[0-9]*.py"))


def _created(url: str) -> None:
    """Make the tables as the metadata says, without a migration."""
    opened = database(url)
    opened.write(schema.metadata.create_all)
    opened.close()


def _shape(url: str) -> dict[str, Any]:
    """Return also what Alembic's comparison leaves out: defaults, collations, partial indexes, row ids."""
    opened = database(url)
    shape: dict[str, Any] = {}
    with opened.read() as connection:
        found = inspect(connection)
        for name in sorted(schema.metadata.tables):
            shape[name] = {
                "columns": [{**c, "type": repr(c["type"])} for c in found.get_columns(name)],
                "key": found.get_pk_constraint(name)["constrained_columns"],
                "references": sorted(found.get_foreign_keys(name), key=str),
                "indexes": sorted(_index(index) for index in found.get_indexes(name)),
                "options": found.get_table_options(name),
            }
    opened.close()
    return shape


def _index(index: ReflectedIndex) -> tuple[str, list[str | None], bool, list[tuple[str, str]]]:
    options = {name: str(value) for name, value in index.get("dialect_options", {}).items()}
    return index["name"] or "", index["column_names"], bool(index["unique"]), sorted(options.items())


def _compared(built: str, created: str) -> None:
    assert upgrade(built).endswith(f"schema {HEAD}, up to date")
    _created(created)
    assert _shape(built) == _shape(created)
    opened = database(built)
    with opened.read() as connection:
        assert differences(connection) == []
    opened.close()


def test_sqlite_migrations_make_what_the_metadata_says(tmp_path: Path) -> None:
    _compared(f"sqlite:///{tmp_path / 'built.db'}", f"sqlite:///{tmp_path / 'created.db'}")


@pytest.mark.postgres
def test_postgres_migrations_make_what_the_metadata_says(postgres_server: Server) -> None:
    built, created = postgres_server.create(), postgres_server.create()
    _compared(postgres_server.url(built), postgres_server.url(created))
    postgres_server.drop(built)
    postgres_server.drop(created)


def test_the_default_workspace_is_there_from_the_first(empty_url: str) -> None:
    upgrade(empty_url)
    assert [row[0] for row in dump(empty_url)["workspace"]] == ["default"]


def test_opening_again_keeps_the_data(empty_url: str) -> None:
    for _ in range(2):
        store = open_store(empty_url)
        store.write([facts.batch(facts.request())], facts.NOW)
        store.close()
    store = open_store(empty_url)
    assert store.request("default", "u0") is not None
    store.close()


def test_down_to_nothing_and_up_again(empty_url: str) -> None:
    upgrade(empty_url)
    opened = database(empty_url)
    with opened.migrating() as connection:
        command.downgrade(config(connection), "base")
    with opened.read() as connection:
        assert inspect(connection).get_table_names() == [VERSION_TABLE]
    opened.close()
    assert upgrade(empty_url).endswith("up to date")


def test_several_servers_may_start_at_once(empty_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(upgrade, [empty_url] * 4))
    assert len(set(told)) == 1


def test_a_failed_migration_leaves_nothing_behind(empty_url: str) -> None:
    opened = database(empty_url)
    with pytest.raises(RuntimeError, match="power cut"), opened.migrating() as connection:
        command.upgrade(config(connection), "head")
        raise RuntimeError("power cut")
    with opened.read() as connection:
        assert inspect(connection).get_table_names() == []
    opened.close()


def test_check_says_what_is(empty_url: str) -> None:
    nothing = rf"(is empty, this SpecScope wants {HEAD}; |is not there; .*)run: specscope db upgrade"
    with pytest.raises(StoreError, match=nothing):
        check(empty_url)
    upgrade(empty_url)
    assert check(empty_url).endswith(f"schema {HEAD}, up to date and sound")
    execute(empty_url, text("DROP INDEX request_by_rid"))
    with pytest.raises(StoreError, match=r"differs from it in 1 places .*request_by_rid"):
        check(empty_url)


@pytest.mark.parametrize("act", [open_store, upgrade, check])
def test_a_newer_schema_is_left_alone(store_url: str, act: Callable[[str], object]) -> None:
    upgrade(store_url)
    execute(store_url, text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    message = (
        rf"newer SpecScope \(schema 9999, this one knows up to {HEAD}\); upgrade SpecScope or name another"
    )
    with pytest.raises(StoreError, match=message):
        act(store_url)


@pytest.mark.parametrize("act", [open_store, upgrade, check])
def test_tables_of_another_program_are_left_alone(empty_url: str, act: Callable[[str], object]) -> None:
    execute(empty_url, text("CREATE TABLE request (id INTEGER)"))
    with pytest.raises(StoreError, match=r"tables that are not SpecScope's \(request\); name an empty"):
        act(empty_url)

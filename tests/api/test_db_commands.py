"""``specscope db``: what it says and does, with a server's settings, on both databases."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from serverkit.command import run
from specscope_server.store import open_store
from specscope_server.store.model import RequestFilter
from specscope_server.store.values import to_ns
from storekit import facts
from storekit.everything import UID, Workspace, fill

WORLD = Workspace("default", "oak", 1000)


@pytest.fixture
def filled(store_url: str) -> str:
    """The address of a database with things of now and of 20 days ago."""
    now = datetime.now(UTC)
    old = now - timedelta(days=20)
    chunk = facts.chunk("old", steps=[facts.step(1)], start_ns=to_ns(old), end_ns=to_ns(old))
    with closing(open_store(store_url)) as store:
        fill(store, WORLD, now)
        request = facts.request("old", arrival_ns=to_ns(old), end_ns=to_ns(old))
        store.write([facts.batch(request, chunk)], old)
    return store_url


def test_stats_tell_what_is_stored(filled: str, tmp_path: Path) -> None:
    said = run("db", "stats", "--db", filled, cwd=tmp_path)
    assert said.exit_code == 0
    assert "bytes in use" in said.stdout
    told = json.loads(run("db", "stats", "--db", filled, "--json", cwd=tmp_path).stdout)
    tables = {table["name"]: table for table in told["tables"]}
    assert tables["step_chunk"]["rows"] == 2
    assert tables["request"]["rows"] == 3
    assert tables["step_chunk"]["bytes"] > 0
    assert tables["request"]["oldest"] < tables["request"]["newest"]
    assert told["bytes"] >= sum(table["bytes"] for table in told["tables"]) > 0


def test_prune_deletes_what_a_dry_run_says(filled: str, tmp_path: Path) -> None:
    options = ("db", "prune", "--db", filled, "--json")
    would = json.loads(run(*options, "--dry-run", cwd=tmp_path).stdout)
    assert would == {"dry_run": True, "rows": {"step_chunk": 1}} or would["rows"] == {"step_chunk_default": 1}
    assert json.loads(run(*options, cwd=tmp_path).stdout)["rows"] == would["rows"]
    with closing(open_store(filled)) as store:
        assert {row.uid for row in store.requests(RequestFilter(), 9).items} == {UID, "health", "old"}
        old = store.request("default", "old")
        assert old is not None
        assert old.steps == ()
    assert "nothing is too old" in run("db", "prune", "--db", filled, cwd=tmp_path).stdout
    gone = run("db", "prune", "--db", filled, cwd=tmp_path, SPECSCOPE_RETENTION_REQUESTS_DAYS="19")
    assert "request: 1 rows deleted" in gone.stdout


def test_vacuum_and_check(filled: str, tmp_path: Path) -> None:
    assert "bytes before" in run("db", "vacuum", "--db", filled, cwd=tmp_path).stdout
    assert run("db", "check", "--db", filled, cwd=tmp_path).exit_code == 0
    # The made-up sums are those of no chunk: either they differ, or nothing can be said of them.
    assert "recounted" in run("db", "check", "--db", filled, "--recount", cwd=tmp_path).output


@pytest.mark.parametrize("command", ["stats", "prune", "vacuum", "check"])
def test_a_mistyped_name_makes_no_database(command: str, tmp_path: Path) -> None:
    said = run("db", command, "--db", "none.db", cwd=tmp_path)
    assert said.exit_code == 1
    assert "none.db is not there; name another with --db" in said.stderr
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    "given", [("--keep-steps-days", "-1"), ("--keep-steps-days", "36501"), ("--max-db-gb", "inf")]
)
def test_an_age_or_size_that_makes_no_sense_is_refused(given: tuple[str, str], tmp_path: Path) -> None:
    said = run("db", "prune", "--db", "run.db", *given, cwd=tmp_path)
    assert said.exit_code == 2

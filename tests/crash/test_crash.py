"""The kill harness in short: three kills on each store. ``make crash-test`` does a hundred."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from storekit import postgres

from crash import kills

KILLS = 3
SEED = 5


def test_killed_on_sqlite(tmp_path: Path) -> None:
    _sound(kills.run("sqlite", f"sqlite:///{tmp_path / 'store.db'}", tmp_path, kills=KILLS, seed=SEED))


@pytest.mark.postgres
def test_killed_on_postgresql(tmp_path: Path) -> None:
    # Not the session's server: a killed backend takes the others' connections with it.
    with postgres.server() as server:
        name = server.create()
        database = partial(kills.backends, server, name)
        url = server.url(name)
        _sound(kills.run("postgresql", url, tmp_path, kills=KILLS, seed=SEED, database=database))


def _sound(outcome: kills.Outcome) -> None:
    assert outcome.report.wrong == {}, outcome.report.examples
    assert outcome.kills.total() >= KILLS
    for what in ("chunks", "requests", "rollup increments", "rows of rollup_10s", "rows of rollup_60s"):
        assert outcome.report.compared[what] > 0, what
    assert outcome.report.compared["ledger counts"] > 0
    assert outcome.report.compared["other tools' spans"] > 0

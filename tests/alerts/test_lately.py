"""The list of engines: who told something is judged anew, and what is told of the others still holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alert_world import Clock, Engine, make_store
from specscope_server.lately import Lately
from specscope_server.store.port import Store


class Listing:
    """Asks as the API does, and counts whose evidence was read."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock, self._lately = store, clock, Lately()
        self.read: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reads, name)

    def evidence(self, workspace: str, engine_uid: str, *more: Any) -> Any:
        row = self._reads.engine(workspace, engine_uid, self._clock())
        assert row is not None
        self.read.append(row.name)
        return self._reads.evidence(workspace, engine_uid, *more)

    def states(self) -> dict[str, str]:
        """The state of each engine by name; :attr:`read` is who was read for it."""
        self.read = []
        with self._store.snapshot() as self._reads:
            rows = self._reads.engines("default", self._clock())
            judged = self._lately.judged(self, rows, self._clock(), 300.0)  # type: ignore[arg-type]
        return {row.name: judged[row.engine_uid][1].state.word for row in rows}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = make_store(tmp_path)
    yield opened
    opened.close()


def test_only_who_told_something_is_read_again(store: Store) -> None:
    clock = Clock()
    clock.now = clock.now.replace(minute=20, second=0)  # marks are counted anew each quarter of an hour
    one, other = Engine(store, clock, "one"), Engine(store, clock, "other")
    one.healthy()
    other.healthy()
    listing = Listing(store, clock)
    assert set(listing.states().values()) == {"healthy"}
    assert sorted(listing.read) == ["tiny one", "tiny other"]
    clock.forward(2)
    one.beat()
    other.bypassed(4000)
    assert listing.states() == {"tiny one": "healthy", "tiny other": "suspect"}
    assert listing.read == ["tiny other"]
    clock.forward(9)
    listing.states()
    assert listing.read == ["tiny one"], "what was read eleven seconds ago may have left the window"


def test_silence_shows_at_once_and_old_engines_cost_little(store: Store) -> None:
    clock = Clock()
    clock.now = clock.now.replace(minute=20, second=0)
    Engine(store, clock, "one").beat()
    listing = Listing(store, clock)
    assert listing.states() == {"tiny one": "idle"}
    clock.forward(16)
    assert listing.states() == {"tiny one": "tracer silent"}
    clock.forward(30)
    listing.states()
    assert listing.read == []
    clock.forward(2 * 86_400)
    assert listing.states() == {"tiny one": "tracer silent"}
    clock.forward(30)
    listing.states()
    assert listing.read == []

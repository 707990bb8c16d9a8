"""A request of 100,000 verify steps, read in windows: each reads its own chunks and no other."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from specscope import chunks
from specscope.chunks import StepRow, pack_steps
from specscope_server.store import open_store
from specscope_server.store.port import Store
from specscope_server.store.told import Chunk, RequestTotals
from storekit import facts, postgres

STEPS = 100_000
CHUNK = chunks.MAX_STEPS


def told() -> Iterator[Chunk]:
    """The chunks; step n has the context 10 + n, and every fourth accepts nothing."""
    for seq in range(-(-STEPS // CHUNK)):
        first = seq * CHUNK
        rows = [_step(number) for number in range(first, min(first + CHUNK, STEPS))]
        yield Chunk("u0", seq, first, rows[0].t, rows[-1].t, pack_steps(rows, tokens=False), b"")


def _step(number: int) -> StepRow:
    return facts.step(number, t=facts.ago_ns(20_000) + number * facts.SECOND // 10, accepted=number % 4)


@pytest.fixture(scope="module")
def packed() -> list[Chunk]:
    return list(told())


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def long(
    request: pytest.FixtureRequest, packed: list[Chunk], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """A store with the long request among short ones."""
    drop = None
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('long') / 'store.db'}"
    else:
        server: postgres.Server = request.getfixturevalue("postgres_server")
        name = server.create(postgres.TEMPLATE)
        url, drop = server.url(name), partial(server.drop, name)
    store = open_store(url)
    totals = RequestTotals(verify_steps=STEPS, drafted_depth=3 * STEPS, accepted=STEPS, bonus=STEPS)
    store.write([facts.batch(facts.REPORT, facts.request(totals=totals))], facts.NOW)
    for at in range(0, len(packed), 200):
        store.write([facts.batch(*packed[at : at + 200])], facts.NOW)
    short = [facts.chunk(f"u{n}", 0, [facts.step(1)]) for n in range(1, 200)]
    store.write([facts.batch(*(facts.request(f"u{n}") for n in range(1, 200)), *short)], facts.NOW)
    yield store
    store.close()
    if drop is not None:
        drop()


@contextmanager
def opened(monkeypatch: pytest.MonkeyPatch) -> Generator[list[int]]:
    """Collect the sizes of what is unpacked."""
    seen: list[int] = []
    real = chunks.unpack_steps

    def note(blob: bytes) -> list[StepRow]:
        rows = real(blob)
        seen.append(len(rows))
        return rows

    monkeypatch.setattr(chunks, "unpack_steps", note)
    yield seen


@pytest.mark.parametrize("first", [0, 64, 50_000, 99_700])
def test_a_window_reads_its_own_chunks(long: Store, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    with opened(monkeypatch) as seen:
        found = long.request("default", "u0", first, 400)
    assert found is not None
    assert found.steps_total == STEPS
    wanted = range(first, min(first + 400, STEPS))
    assert [step["index"] for step in found.steps] == list(wanted)
    assert [step["context"] for step in found.steps] == [10 + number for number in wanted]
    assert len(seen) == (wanted[-1] // CHUNK - first // CHUNK) + 1


def test_a_page_opens_each_chunk_once(long: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(monkeypatch) as seen, long.snapshot() as reads:
        for _ in range(2):
            assert reads.request("default", "u0", 0, 400) is not None
            assert reads.hidden("default", "u0", 0, 400) is not None
        # The hidden states of a window are searched for in the two chunks behind it too.
        assert len(seen) == 400 // CHUNK + 1 + 2
        assert reads.request("default", "u1", 0, 400) is not None
        assert len(seen) == 400 // CHUNK + 1 + 2 + 1
    with opened(monkeypatch) as seen:
        for _ in range(2):
            assert long.request("default", "u0", 0, 64) is not None
    assert len(seen) == 2, "what one snapshot opened is no other's"


def test_the_end_and_beyond(long: Store) -> None:
    found = long.request("default", "u0", STEPS - 1, 400)
    assert found is not None
    assert [step["index"] for step in found.steps] == [STEPS - 1]
    beyond = long.request("default", "u0", STEPS + 400, 400)
    assert beyond is not None
    assert (beyond.steps, beyond.steps_total) == ((), STEPS)

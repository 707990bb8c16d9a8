"""The audit itself: it finds nothing in a sound database, and every kind of damage in another."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from specscope_server.ingest import traces
from specscope_server.store import open_store
from sqlalchemy import create_engine, text

from crash.audit import audit
from crash.load import Load
from crash.senders import other_tools_span, pipeline
from crash.story import STEP_NS, Story

INSTANCE = "audited"
Truth = Mapping[str, Mapping[str, Mapping[str, int]]]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Load, Truth]:
    """A database with 200 verify steps of four requests at a time, written as exports of a second each."""
    path = tmp_path_factory.mktemp("audit") / "store.db"
    story, load = Story(1, INSTANCE), Load()
    spans: list[ReadableSpan] = []
    telling = pipeline(INSTANCE, 1, spans.append)
    store = open_store(f"sqlite:///{path}")
    now, wall = time.monotonic_ns(), time.time_ns()
    telling.take(story.engine(now), now)
    for number in range(1, 201):
        at = now + number * STEP_NS
        for record in story.step(at, wall):
            telling.take(record, at)
        if number == 200:
            for record in story.end(at):
                telling.take(record, at)
        if number % 50:
            continue
        telling.tick(at, last=number == 200)
        message = encode_spans([*spans, other_tools_span(spans[0])])
        spans.clear()
        with load.export(message) as acknowledge:
            batches, tally = traces.read(message)
            store.write(batches, datetime.now(UTC))
            acknowledge(tally.rejected)
    store.close()
    return path, load, {INSTANCE: story.told()}


def damaged(stored: tuple[Path, Load, Truth], tmp_path: Path, *statements: str) -> set[str]:
    """What the audit says of a copy on which ``statements`` were run."""
    path, load, truth = stored
    copy = tmp_path / "copy.db"
    copy.write_bytes(path.read_bytes())
    engine = create_engine(f"sqlite:///{copy}")
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()
    return set(audit(f"sqlite:///{copy}", load, truth).wrong)


def test_sound(stored: tuple[Path, Load, Truth], tmp_path: Path) -> None:
    assert damaged(stored, tmp_path) == set()


ONE = "WHERE rowid = (SELECT min(rowid) FROM"


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        (
            f"DELETE FROM step_chunk {ONE} step_chunk)",
            {"chunks lost", "rollups other than a recount from chunks"},
        ),
        ("UPDATE step_chunk SET extends = x'00'", {"chunks of another content"}),
        (
            "UPDATE step_chunk SET seq = seq + 1000",
            {"chunks lost", "chunks that nobody sent", "chunks of another content"},
        ),
        (
            f"DELETE FROM request {ONE} request)",
            {"requests lost", "requests that nobody told of"},
        ),
        ("UPDATE request SET accepted = accepted + 1", {"requests with other totals"}),
        ("UPDATE request SET state = 'running'", {"requests whose end is lost"}),
        (
            "UPDATE rollup_10s SET accepted = 2 * accepted WHERE dimension = 'all'",
            {"rows of rollup_10s that differ", "rollups other than a recount from chunks"},
        ),
        (
            "UPDATE rollup_60s SET steps = steps + 1 WHERE dimension = 'context'",
            {"rows of rollup_60s that differ"},
        ),
        ("DELETE FROM rollup_applied", {"rollup increments lost"}),
        ("DELETE FROM span", {"other tools' spans lost"}),
        ("DELETE FROM engine_event", {"engine events lost"}),
    ],
)
def test_damage(stored: tuple[Path, Load, Truth], tmp_path: Path, statement: str, found: set[str]) -> None:
    assert damaged(stored, tmp_path, statement) == found


def test_what_was_never_acknowledged_is_said(stored: tuple[Path, Load, Truth], tmp_path: Path) -> None:
    path, load, truth = stored
    less = Load()
    less.sent = load.sent
    report = audit(f"sqlite:///{path}", less, truth)
    assert report.wrong["chunks never acknowledged"] == len(load.sent.chunks)

"""How fast questions are answered at 1 M, 10 M and 100 M steps, from a store that was loaded with just those.

The same exports as ``write_path.py`` makes, told again under other request ids and times: 1 M steps within
one hour, 10 M within 6, 100 M within 24, of four engines. Each question is asked of the store in this process
and of a server's API over HTTP, 200 times with other values.
"""

from __future__ import annotations

import http.client
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crash.victim import Victim
from specscope_server.store import open_store
from specscope_server.store.care import vacuumed
from specscope_server.store.model import RequestFilter
from specscope_server.store.port import Store
from specscope_server.store.told import Batch, ProcessFacts

from benchmarks.server import write_path

ENGINES = 4
TEMPLATES = 8
TIMES = 200
STEPS_OF_EXPORT = write_path.STEPS * write_path.REQUESTS
MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def hours_of(steps: int) -> int:
    """Hours over which the steps are spread, up to now."""
    return 1 if steps <= 1_000_000 else 6 if steps <= 10_000_000 else 24


def batches(steps: int, now_ns: int) -> Iterator[Batch]:
    """Exports with about so many steps in all, in order of time, the last one now."""
    made = [write_path.export(number, 0, 0)[0] for number in range(TEMPLATES)]
    count = math.ceil(steps / STEPS_OF_EXPORT)
    span = hours_of(steps) * 3600 * 1_000_000_000
    for number in range(count):
        at = now_ns - span + span * (number + 1) // count
        yield _moved(made[number % TEMPLATES], number, at)


def _moved(batch: Batch, number: int, at: int) -> Batch:
    """An export as the ``number``-th of all, at another time."""
    engine, cycle = number % ENGINES, number // ENGINES
    uids = {report.uid: f"{engine:04x}{cycle:08x}{row:020x}" for row, report in enumerate(batch.requests)}
    process: ProcessFacts = replace(
        batch.process, instance=f"launch-{engine}", process_uid=f"{engine:032x}", start_ns=at
    )
    shift = at - batch.chunks[0].start_ns
    return replace(
        batch,
        process=process,
        requests=tuple(
            replace(
                report,
                uid=uids[report.uid],
                rid=f"chatcmpl-{uids[report.uid]}",
                trace_id=uids[report.uid],
                arrival_ns=at + row,
                state="finished",
                end_ns=at + 1_000_000_000,
            )
            for row, report in enumerate(batch.requests)
        ),
        chunks=tuple(
            replace(chunk, uid=uids[chunk.uid], start_ns=chunk.start_ns + shift, end_ns=chunk.end_ns + shift)
            for chunk in batch.chunks
        ),
        rollups=tuple(
            replace(one, seq=cycle * 4 + index, bucket=at // 10_000_000_000 * 10)
            for index, one in enumerate(batch.rollups)
        ),
        heartbeats=tuple(replace(beat, event_ns=at) for beat in batch.heartbeats),
    )


@dataclass(frozen=True)
class Answers:
    """Milliseconds of one question: median and 99th percentile, asked of the store and of the API."""

    question: str
    store: tuple[float, float]
    api: tuple[float, float]


@dataclass(frozen=True)
class Reading:
    """One size: what loading took, what it takes on disk, and the questions."""

    steps: int
    load_s: float
    bytes_a_step: float
    answers: list[Answers]


def measure(url: str, steps: int, size: Callable[[], int]) -> Reading:
    """Load a store and ask it."""
    now = datetime.now(UTC)
    store = open_store(url)
    began = time.perf_counter()
    written = 0
    rids: list[str] = []
    dice = random.Random(steps)
    for batch in batches(steps, int(now.timestamp() * 1e9)):
        store.write([batch], now)
        written += STEPS_OF_EXPORT
        if len(rids) < 100_000:
            rids.append(dice.choice(batch.requests).rid)
    load_s = time.perf_counter() - began
    if url.startswith("postgresql"):
        vacuumed(url)  # as autovacuum has done by the time that a person asks
    asked = _ask_store(store, dice, rids, now)
    store.close()
    per_step = size() / written
    told = _ask_api(url, dice, rids)
    answers = [Answers(question, asked[question], told[question]) for question in asked]
    return Reading(written, load_s, per_step, answers)


RID, LIST, HOUR, HOUR_ENGINE = (
    "lookup by rid",
    "filtered list of 50",
    "1 h by 10 s",
    "1 h by minute, one engine",
)


def _timed(ask: Callable[[], object]) -> tuple[float, float]:
    ask()
    took: list[float] = []
    for _ in range(TIMES):
        began = time.perf_counter()
        ask()
        took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took), statistics.quantiles(took, n=100)[98]


def _ask_store(
    store: Store, dice: random.Random, rids: list[str], now: datetime
) -> dict[str, tuple[float, float]]:
    hour = now - timedelta(hours=1)
    engine = store.engine_uids()[0][1]
    listed = RequestFilter(state="finished", model=MODEL, since=now - timedelta(minutes=50))

    def lookup() -> None:
        [_] = store.requests(RequestFilter(rid=dice.choice(rids)), 10).items

    return {
        RID: _timed(lookup),
        LIST: _timed(lambda: store.requests(listed, 50)),
        HOUR: _timed(lambda: store.series("default", None, hour, now, 10)),
        HOUR_ENGINE: _timed(lambda: store.series("default", engine, hour, now, 60)),
    }


def _ask_api(url: str, dice: random.Random, rids: list[str]) -> dict[str, tuple[float, float]]:
    with tempfile.TemporaryDirectory() as place:
        victim = Victim(url, Path(place))
        victim.start()
        try:
            victim.wait()
            connection = http.client.HTTPConnection("127.0.0.1", victim.port, timeout=60)

            def get(path: str) -> Any:
                connection.request("GET", path)
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"{path}: {answer.status} {body!r}")
                return json.loads(body)

            def lookup() -> None:
                [_] = get(f"/api/v1/requests?rid={dice.choice(rids)}")["items"]

            since = quote((datetime.now(UTC) - timedelta(minutes=50)).isoformat())
            engine = get("/api/v1/engines")["items"][0]["engine_uid"]
            listed = f"/api/v1/requests?state=finished&model={quote(MODEL, safe='')}&since={since}&limit=50"
            found = {
                RID: _timed(lookup),
                LIST: _timed(lambda: get(listed)),
                HOUR: _timed(lambda: get("/api/v1/series?bucket=10")),
                HOUR_ENGINE: _timed(lambda: get(f"/api/v1/series?bucket=60&engine={engine}")),
            }
            connection.close()
            victim.end()
            return found
        finally:
            victim.kill()

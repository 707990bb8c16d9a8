"""What it costs to judge a fleet: CPU seconds of a round of the evaluator, by how many told something.

A round is what a server does every two seconds: all rules on every engine, findings, rule states,
notifications (none is sent). Telling is not in it. Run it alone:

    PYTHONPATH=tests .venv/bin/python -m benchmarks.server --only evaluate --engines 1000
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from specscope_server.alerts import Evaluator
from specscope_server.lately import Lately
from specscope_server.store import open_store
from specscope_server.store.care import vacuumed
from sqlalchemy import create_engine

from benchmarks.server import machine
from benchmarks.server.fleet import WINDOW_S, Fleet

ROUNDS: Final = 5
"""Rounds of each kind: ten seconds, in which every engine whose window holds something is read again."""


@dataclass(frozen=True)
class Cost:
    """CPU seconds of rounds of one kind: the mean and the most, of this process and of the database's."""

    kind: str
    rounds: int
    mean_s: float
    most_s: float
    database_s: float
    firing: int
    """Rule states that fire after it."""


def measure(url: str, engines: int, database: int | None) -> Iterator[Cost]:
    """Fill an empty database with a fleet and judge it; ``database`` is its server's process id, if any."""
    store = open_store(url)
    fleet = Fleet(store, engines, datetime.now(UTC))
    own = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with own.connect() as connection:
        fleet.fill(connection)
    own.dispose()
    if database is not None:
        vacuumed(url)  # as autovacuum has done by the time that a server has served for long
    evaluator = Evaluator(store, clock=lambda: fleet.now, budget_s=math.inf)  # rounds are measured whole
    lately = Lately()
    every, tenth, hundredth = fleet.engines, fleet.engines[::10], fleet.engines[::100]
    rest = [engine for engine in every if engine not in tenth]
    others = [engine for engine in every if engine not in hundredth]

    def cost(kind: str, rounds: int, passes: Callable[[], None]) -> Cost:
        took: list[float] = []
        of_database = 0.0
        for _ in range(rounds):
            passes()
            before = machine.cpu_s(database) if database is not None else 0.0
            began = time.process_time()
            evaluator.evaluate_now()
            took.append(time.process_time() - began)
            of_database += machine.cpu_s(database) - before if database is not None else 0.0
        firing = sum(row.state == "firing" for row in store.alerts("default"))
        return Cost(kind, rounds, sum(took) / rounds, max(took), of_database / rounds, firing)

    def listed() -> Cost:
        """What the list of engines asks, when it was asked two seconds before."""
        took: list[float] = []
        for _ in range(2):
            fleet.round(tenth, rest)
            began = time.process_time()
            with store.snapshot() as reads:
                lately.judged(reads, reads.engines("default", fleet.now), fleet.now, float(WINDOW_S))
            took.append(time.process_time() - began)
        return Cost("the list of engines, a tenth told steps", 1, took[1], took[1], 0.0, 0)

    yield cost("the first after a start", 1, lambda: fleet.round(every))
    yield cost("all told steps", ROUNDS, lambda: fleet.round(every))
    yield cost("a tenth told steps", ROUNDS, lambda: fleet.round(tenth, rest))
    yield cost("a hundredth told steps", ROUNDS, lambda: fleet.round(hundredth, others))
    yield cost("none told anything but that it is alive", ROUNDS, lambda: fleet.round((), every))
    yield listed()
    fleet.pass_by(WINDOW_S)
    fleet.round((), every)
    evaluator.evaluate_now()
    yield cost("none, and the window is empty", ROUNDS, lambda: fleet.round((), every))
    evaluator.deliverer.close()
    store.close()

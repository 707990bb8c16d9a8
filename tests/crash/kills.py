"""One run: load, kills at random moments, an audit. What is killed and when follows from a seed.

``SIGKILL`` ends a process at any instruction, so that half a transaction, half an answer and half a start
are all met. It does not lose what the kernel has been handed: whether acknowledged data survives a loss of
power is a matter of fsync and of the disk, which no test of ours can show.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from serverkit.command import SPECSCOPE, environment
from storekit import postgres

from crash import senders
from crash.audit import Report, audit
from crash.load import Load
from crash.relay import Relay
from crash.victim import Victim, takes_grpc

SERVER, START, BACKEND = "server", "server while it starts", "PostgreSQL backend"


@dataclass
class Outcome:
    """What a run did and what its audit found."""

    store: str
    kills: Counter[str] = field(default_factory=Counter[str])
    busy: int = 0
    """Kills with at least one export under way."""
    exports: int = 0
    acknowledged: int = 0
    tracebacks: int = 0
    seconds: float = 0.0
    report: Report = field(default_factory=Report)

    @property
    def sound(self) -> bool:
        """Whether nothing was found wrong."""
        return not self.report.wrong


class Killer:
    """Kills the server, or a backend of its database, at moments that a seed decides."""

    def __init__(
        self, victim: Victim, load: Load, seed: int, database: Callable[[], list[int]] | None
    ) -> None:
        """``database`` lists the process ids of the database's backends that serve us."""
        self._victim, self._load, self._database = victim, load, database
        self._dice = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.busy = 0

    def strike(self) -> None:
        """Kill once, and bring the server up again."""
        dice = self._dice
        what = dice.choices((SERVER, START, BACKEND), (80, 8, 12 if self._database else 0))[0]
        exports, delay = dice.randrange(1, 12), dice.uniform(0, 0.04)
        into_start = dice.uniform(0, 2.0)
        self._load.wait(exports, seconds=15)
        time.sleep(delay)
        self.busy += self._load.under_way > 0
        if what == BACKEND and self._database is not None:
            self.kills[BACKEND] += self._backend(dice.random(), self._database)
        else:
            self._victim.kill()
            self.kills[SERVER] += 1
            if what == START:
                self._victim.start()
                time.sleep(into_start)
                self._victim.kill()
                self.kills[START] += 1
        if not self._victim.alive():
            self._victim.start()
            self._victim.wait()

    def _backend(self, chance: float, database: Callable[[], list[int]]) -> int:
        """Kill one backend: PostgreSQL then ends all others and recovers from its log."""
        pids = database()
        if not pids:
            return 0
        with suppress(ProcessLookupError):
            os.kill(pids[int(chance * len(pids))], signal.SIGKILL)
        return 1


def backends(server: postgres.Server, name: str) -> list[int]:
    """Process ids of the backends that serve a database; none while it recovers."""
    question = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
    try:
        with server.connect() as connection:
            return [row[0] for row in connection.execute(question, [name])]
    except postgres.psycopg.OperationalError:
        return []


def _recount(report: Report, url: str) -> None:
    """Let the server's own tool hold the rollups against the chunks, too."""
    command = [SPECSCOPE, "db", "check", "--recount", "--db", url]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    report.compared["runs of specscope db check --recount"] += 1
    if done.returncode:
        report.blame("specscope db check --recount", [done.stdout + done.stderr])


def run(
    store: str,
    url: str,
    folder: Path,
    *,
    kills: int,
    seed: int,
    workers: int = 1,
    database: Callable[[], list[int]] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Load a server on the database ``url`` with real exporters, kill it ``kills`` times, audit."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # the exporters tell of each failure
    began = time.monotonic()
    load = Load()
    victim = Victim(url, folder, workers)
    victim.start()
    victim.wait()
    relay = Relay(victim.port, load)
    name = f"crash-{seed}"
    loaded: list[senders.Sender] = []
    try:
        loaded.append(senders.Engine(relay.endpoint, seed, f"{name}-tracer"))
        http = partial(senders.http_exporter, victim.port)
        loaded.append(senders.Sdk(http, seed + 1, f"{name}-http", load))
        if takes_grpc():
            grpc = partial(senders.grpc_exporter, victim.grpc_port)
            loaded.append(senders.Sdk(grpc, seed + 2, f"{name}-grpc", load))
        killer = Killer(victim, load, seed, database)
        while killer.kills.total() < kills:
            killer.strike()
            if killer.kills.total() % 10 == 0:
                say(
                    f"{store}: {killer.kills.total()} kills, {load.acknowledged.exports} exports acknowledged"
                )
        truth = senders.end_all(loaded)
        code = victim.end()
        report = audit(url, load, truth)
        _recount(report, url)
        if code:
            report.blame("orderly ends that failed", [f"exit code {code}"])
        return Outcome(
            store,
            killer.kills,
            killer.busy,
            load.sent.exports,
            load.acknowledged.exports,
            victim.tracebacks(),
            time.monotonic() - began,
            report,
        )
    except BaseException:
        for sender in loaded:
            sender.kill()
        say(victim.printed()[-4000:])
        raise
    finally:
        victim.kill()
        relay.close()

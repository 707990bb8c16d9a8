"""A real SQLite store with one or more engines whose traffic a test decides, and a clock it moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from specscope import convention as c
from specscope.rollup import ALL, STEP, Counts
from specscope_server.store import open_store
from specscope_server.store.port import Store
from specscope_server.store.told import (
    Batch,
    BoundaryTotal,
    EngineReport,
    Heartbeat,
    ProcessFacts,
    RollupIncrement,
)

CONFIG: dict[str, Any] = {"draft": {"hidden_size": 128}, "fc": {"in": 384, "out": 128}}


class Clock:
    """Runs an hour ahead of the machine's, by which the store says when a notification was queued."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC) + timedelta(hours=1)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Engine:
    """One engine with one process; totals are cumulative as a tracer's."""

    def __init__(self, store: Store, clock: Clock, instance: str = "launch-1") -> None:
        self._store = store
        self._clock = clock
        start_ns = self._ns()
        self._process = ProcessFacts(
            workspace="default",
            environment="default",
            instance=instance,
            process_uid=f"process-of-{instance}",
            role="scheduler",
            pid=7,
            start_ns=start_ns,
            tp=0,
            dp=0,
            pp=0,
            serving_role="both",
            service_name=f"tiny {instance}",
            engine_name="sglang",
            engine_version="0.5.23",
            tracer_version="1",
            detail="steps",
        )
        self._crossed: dict[tuple[str, str], list[int]] = {}
        self._users = 0
        self._seq = 0
        self._send(engines=(EngineReport(start_ns, "start", "tiny", True, CONFIG),))

    def _ns(self) -> int:
        return int(self._clock.now.timestamp() * 1_000_000_000)

    def _send(self, **parts: Any) -> None:
        self._store.write([Batch(self._process, **parts)], self._clock.now)

    def moved_to(self, store: Store) -> None:
        """Tell another opening of the same database from now on."""
        self._store = store

    def serve(
        self, steps: int, *, accepted: int, zero_steps: int, fc: bool = True, proposals: int | None = None
    ) -> None:
        """Serve ``steps`` verify steps, each with a draft extend before it."""
        proposed = steps if proposals is None else proposals
        for key, observed in (
            ((c.AUX_CAPTURE, c.NO_SOURCE), steps if fc else 0),
            ((c.DRAFT_EXTEND, c.TARGET_FED), steps),
            ((c.DRAFT_FC, c.TARGET_FED), steps if fc else 0),
            ((c.DRAFT_FORWARD, c.TARGET_FED), steps),
            ((c.DRAFT_PROPOSE, c.NO_SOURCE), proposed),
            ((c.TARGET_VERIFY, c.NO_SOURCE), steps),
        ):
            total = self._crossed.setdefault(key, [0, 0])
            total[0] += steps
            total[1] += observed
        self._users += 1
        self._seq += 1
        counts = Counts(steps, steps * 4, steps * 4, accepted, steps, steps + accepted, zero_steps, 0)
        bucket = int(self._clock.now.timestamp()) // 10 * 10
        self._send(rollups=(RollupIncrement(self._seq, bucket, {(ALL, "", STEP): counts}),))
        self.beat()

    def healthy(self, steps: int = 400) -> None:
        """Serve with acceptance length 2.9."""
        self.serve(steps, accepted=2 * steps - steps // 10, zero_steps=steps * 3 // 10)

    def bypassed(self, steps: int = 400) -> None:
        """Serve with the seed's fault."""
        self.serve(steps, accepted=steps // 10, zero_steps=steps - steps // 10, fc=False)

    def useless(self, steps: int = 400) -> None:
        """Serve on a complete path with nothing accepted."""
        self.serve(steps, accepted=0, zero_steps=steps)

    def beat(self) -> None:
        """Send a heartbeat, as a tracer does also when idle."""
        boundaries: list[BoundaryTotal] = []
        for (boundary, source), (expected, observed) in self._crossed.items():
            boundaries.append(BoundaryTotal(boundary, source, "", expected, None))
            boundaries.append(BoundaryTotal(boundary, source, c.EAGER, None, observed))
        self._send(
            heartbeats=(
                Heartbeat(
                    self._ns(),
                    tuple(boundaries),
                    dict.fromkeys(c.BOUNDARIES, (True, "")),
                    requests={c.KIND_USER: self._users},
                    speculation=True,
                ),
            )
        )

    def stop_speculating(self) -> None:
        """Tell that the engine is no longer set to draft."""
        self._send(heartbeats=(Heartbeat(self._ns(), speculation=False),))


def make_store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "alerts.db"))

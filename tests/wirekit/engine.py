"""``python -m wirekit.engine ENDPOINT WAY [COUNT]``: a process that records like an engine, without one.

It prints one JSON line with its instance, process and exporter, then does what ``WAY`` says: ``story``
tells the fixed story and leaves; ``serve`` tells a step every 5 ms until it is killed; ``burst`` tells
``COUNT`` steps at once and then waits to be killed; ``fork`` serves from a forked child too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from specscope import identity, recorder
from specscope import settings as settings_module
from specscope.records import EngineFacts, RequestFinished, RequestStarted, VerifyStep

from wirekit import traffic


def now(record: Any) -> Any:
    """Move a record's time to now."""
    return replace(record, t_ns=time.monotonic_ns())


def start(endpoint: str) -> recorder.Recorder:
    """Start a recorder as an adapter does."""
    environ = {"SPECSCOPE_INSTANCE": traffic.INSTANCE, "SPECSCOPE_DETAIL": "full"} | dict(os.environ)
    settings = settings_module.read(environ | {"SPECSCOPE_ENDPOINT": endpoint})
    return recorder.start(
        settings,
        role="scheduler",
        ranks=identity.Ranks(),
        engine_name="sglang",
        engine_version="0.5.23",
    )


def begin(found: recorder.Recorder) -> None:
    """Tell of the engine and wait until the exporter has answered."""
    found.emit(now(traffic.engine()))
    while found.exporter_pid is None:
        time.sleep(0.02)
    sdk = version("opentelemetry-sdk")
    line = {"process": found.process, "exporter": found.exporter_pid, "pid": os.getpid(), "sdk": sdk}
    print(json.dumps(line), flush=True)


def tell_story(found: recorder.Recorder) -> None:
    """Tell the fixed story as of now, paced like an engine."""
    base = time.monotonic_ns()
    for record in traffic.story():
        if isinstance(record, EngineFacts):
            continue  # begin() has told it
        t_ns = base + record.t_ns - traffic.MONOTONIC
        if isinstance(record, RequestStarted):
            record = replace(record, arrival_ns=time.time_ns())
        found.emit(replace(record, t_ns=t_ns))
        found.ledger.add(*_counts(record))


def _counts(record: Any) -> tuple[Any, Any]:
    return getattr(record, "expected", {}), getattr(record, "crossed", {})


def serve(found: recorder.Recorder, name: str, count: int | None, pause_s: float) -> None:
    """Tell ``count`` steps of one request, or steps for ever."""
    found.ledger.requests["user"] += 1
    found.emit(now(traffic.started(name, 0, arrival=time.time_ns())))
    step = 0
    while count is None or step < count:
        step += 1
        record: VerifyStep = now(traffic.verify(step, 0, (name,)))
        found.ledger.add(record.expected, record.crossed)
        found.emit(record)
        if pause_s:
            time.sleep(pause_s)
    end: RequestFinished = now(traffic.finished(name, 0, 3 * step + 1))
    found.emit(end)


def main() -> None:
    """Run one way."""
    endpoint, way, *rest = sys.argv[1:]
    found = start(endpoint)
    begin(found)
    if way == "story":
        tell_story(found)
    elif way == "serve":
        serve(found, "served", None, 0.005)
    elif way == "burst":
        serve(found, "burst", int(rest[0]), 0)
        time.sleep(600)
    elif way == "fork":
        child = os.fork()
        if child == 0:
            begin(found)
            serve(found, "child", 20, 0.005)
            found.close()
            os._exit(0)
        serve(found, "parent", 20, 0.005)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()

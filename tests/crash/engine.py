"""``python -m crash.engine ENDPOINT SEED INSTANCE``: a process that tells a story through the real tracer.

It goes on until its standard input ends, then ends its requests, hands everything over and prints one JSON
line: the truth by request, the heartbeat's user requests, and what the recorder dropped.
"""

from __future__ import annotations

import json
import select
import sys
import time

from specscope import identity, recorder
from specscope import settings as settings_module
from specscope.records import VerifyStep

from crash.story import STEP_NS, Story


def main() -> None:
    endpoint, seed, instance = sys.argv[1:]
    environ = {"SPECSCOPE_INSTANCE": instance, "SPECSCOPE_ENDPOINT": endpoint, "SPECSCOPE_DETAIL": "steps"}
    found = recorder.start(
        settings_module.read(environ),
        role="scheduler",
        ranks=identity.Ranks(),
        engine_name="sglang",
        engine_version="0.5.23",
    )
    story = Story(int(seed), instance)
    found.emit(story.engine(time.monotonic_ns()))
    while found.exporter_pid is None:
        time.sleep(0.02)
    print(found.exporter_pid, flush=True)
    while not select.select([sys.stdin], [], [], STEP_NS / 1e9)[0]:
        for record in story.step(time.monotonic_ns(), time.time_ns()):
            if isinstance(record, VerifyStep):
                found.ledger.add(record.expected, record.crossed)
            found.emit(record)
        found.ledger.requests["user"] = story.requests
    for record in story.end(time.monotonic_ns()):
        found.emit(record)
    found.close()
    print(json.dumps({"truth": story.told(), "dropped": found.dropped()}), flush=True)


if __name__ == "__main__":
    main()

"""`make demo`: a healthy and a faulty SGLang, and what SpecScope says of each.

From nothing: makes both environments, starts the server on an empty embedded database
in `.demo/`, starts SGLang with the healthy draft and with the seed's fault, sends
prompts of all three domains to each, prints the findings and the address, and keeps
serving until Ctrl-C. Standard library only.

    python3 -m scripts.demo [--port N] [--check]
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from scripts import project_env, sglang_env
from scripts.demo_verdict import (
    Expectation,
    Item,
    described,
    expect_healthy,
    expect_reported,
    expect_seed_fault,
)
from scripts.engine import MEMORY_BYTES, TINY, Engine, Prompt, read_prompts
from scripts.services import Service, fetch, free_port, port_is_free
from scripts.system import ROOT, SetupError, locked, say, shown
from scripts.variants import write_variant

FOLDER = ROOT / ".demo"
DEFAULT_PORT = 4318
SERVER_LIMIT_SECONDS = 60.0
FINDINGS_LIMIT_SECONDS = 60.0
"""Rollups travel every second, heartbeats every few: what has not come by then does not come."""
PAUSE_SECONDS = 5.0
"""Between prompts while serving: the pages stay alive and a laptop stays cool."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A healthy and a faulty SGLang under SpecScope.")
    parser.add_argument(
        "--port", type=int, help=f"port of the pages and the receiver (default {DEFAULT_PORT})"
    )
    parser.add_argument(
        "--check", action="store_true", help="exit after the findings: 0 only if they are right"
    )
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts deaf to it
    try:
        with locked(FOLDER / "lock", busy=f"another `make demo` runs in {ROOT}; end it first"):
            return _demo(options.port, options.check)
    except SetupError as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        say("ended")
        return 130


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # runs every exit on the way: nothing is left behind


def _demo(wanted_port: int | None, check: bool) -> int:
    sglang_env.check_platform()  # before anything is downloaded
    port = choose_port(wanted_port, check)
    python = project_env.ensure(["server"])
    engine_python = sglang_env.ensure()
    draft = write_variant("seed-fault", FOLDER / "draft-seed-fault")
    with _running() as stack:
        url, server = _serve(stack, python, port)
        prompts = read_prompts()
        healthy = _observe(stack, url, "healthy", engine_python, TINY / "draft", prompts, expect_healthy)
        if _memory_is_short():
            say("too little memory for two engines: stopping the healthy one")
            healthy.engine.stop()
        faulty = _observe(stack, url, "seed-fault", engine_python, draft, prompts, expect_seed_fault)
        runs = [healthy, faulty]
        _print_result(runs, url)
        if check:
            return 1 if any(run.failures for run in runs) else 0
        with suppress(KeyboardInterrupt):  # the way to end it, no failure
            _keep_serving(server, [run.engine for run in runs if run.engine.alive], prompts)
    return 0


def choose_port(wanted: int | None, check: bool) -> int:
    """The port to serve on. Raises SetupError when it is taken and was to be that one."""
    port = DEFAULT_PORT if wanted is None else wanted
    if port_is_free(port):
        return port
    if wanted is None and check:
        return free_port()
    raise SetupError(
        f"port {port} is taken by another program: choose one with `make demo PORT={port + 100}`"
    )


@contextmanager
def _running() -> Generator[ExitStack]:
    """A stack of services; while they end, further Ctrl-C waits for it."""
    with ExitStack() as stack:
        try:
            yield stack
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            say("stopping what was started")


def _serve(stack: ExitStack, python: Path, port: int) -> tuple[str, Service]:
    database = FOLDER / "specscope.db"
    for file in FOLDER.glob(f"{database.name}*"):  # with its -wal and -shm: the demo starts empty
        file.unlink()
    url = f"http://127.0.0.1:{port}"
    say(f"starting SpecScope on {url} (log: {shown(FOLDER / 'server.log')})")
    command = [python.parent / "specscope", "serve", "--port", str(port), "--db", f"sqlite:///{database}"]
    server = stack.enter_context(Service("specscope serve", command, FOLDER / "server.log"))
    server.wait_for(f"{url}/healthz", SERVER_LIMIT_SECONDS)
    return url, server


@dataclass(frozen=True)
class _Run:
    """An engine, what SpecScope said of it, and what of that is not as it should be."""

    engine: Engine
    item: Item | None
    failures: list[str]
    same_text: str


def _observe(
    stack: ExitStack,
    url: str,
    name: str,
    python: Path,
    draft: Path,
    prompts: Sequence[Prompt],
    expectation: Expectation,
) -> _Run:
    log = FOLDER / f"{name}.log"
    say(f"starting SGLang with the {name} draft (20 to 60 s; log: {shown(log)})")
    engine = stack.enter_context(Engine(name, python, draft, url, log))
    engine.ready()
    say(f"sending {len(prompts)} prompts: licence text, docstrings and copying")
    answers = engine.send(prompts)
    same = sum(answer.as_expected for answer in answers)
    say("waiting for what SpecScope says")
    reported = expect_reported(sum(answer.verify_steps for answer in answers))
    item, failures = _wait_for(url, name, lambda item: reported(item) + expectation(item))
    return _Run(engine, item, failures, f"{same} of {len(prompts)} answers are exactly the target's own")


def _wait_for(url: str, name: str, expectation: Expectation) -> tuple[Item | None, list[str]]:
    """Ask the API until the engine `name` is as expected or the time is up: (its last item, what is not)."""
    deadline = time.monotonic() + FINDINGS_LIMIT_SECONDS
    while True:
        items = fetch(f"{url}/api/v1/engines")["items"]
        item = next((item for item in items if item["name"] == name), None)
        failures = [f"SpecScope knows no engine {name!r}"] if item is None else expectation(item)
        if not failures or time.monotonic() > deadline:
            return item, failures
        time.sleep(1)


def _print_result(runs: Sequence[_Run], url: str) -> None:
    print()
    for run in runs:
        for line in described(run.item) if run.item is not None else ():
            print(line)
        print(f"    {run.same_text}")
        for failure in run.failures:
            print(f"    NOT AS EXPECTED: {failure}")
        print()
    print(f"SpecScope: {url}", flush=True)


def _memory_is_short() -> bool:
    """Whether a second engine would not fit. Linux's own estimate; False where there is none."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    kib = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)
    return kib is not None and kib * 1024 < MEMORY_BYTES


def _keep_serving(server: Service, engines: Sequence[Engine], prompts: Sequence[Prompt]) -> None:
    print(f"Serving until Ctrl-C; each engine gets a prompt every {PAUSE_SECONDS:.0f} s.", flush=True)
    turn = 0
    while True:
        time.sleep(PAUSE_SECONDS)
        server.require_alive()
        for engine in engines:
            engine.send([prompts[turn % len(prompts)]], quietly=True)
        turn += 1


if __name__ == "__main__":
    sys.exit(main())

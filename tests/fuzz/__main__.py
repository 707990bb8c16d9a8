"""``python -m fuzz``: a million hostile cases, then sizes that double, then some over a socket.

    make fuzz                                              the whole, 1,000,000 cases
    make fuzz ARGS="--cases 20000 --seed 7 --target read"  a part of it

Atheris (libFuzzer) drives it: guided by the coverage of our own modules it keeps the inputs that reach
something new, which Hypothesis does not, at a thousand cases a second and more; it bounds memory and time by
itself. The mutations are ours (:mod:`fuzz.mutate`). Faults end the command with 1; their reproducers are put
into ``build/fuzz`` and replayed by ``python -m fuzz --replay FILE``. One that was mended belongs into
``tests/fuzz/corpus/TARGET``, which ``make test`` replays.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz import scaling, sockets
from fuzz.targets import TARGETS
from fuzz.world import World

OUT = Path(__file__).parents[2] / "build" / "fuzz"
SHARES = {"packed": 0.7, "read": 0.2, "export": 0.1}
PARTS = [*SHARES, "sizes", "sockets"]
MAX_LEN = 1 << 16
TIMEOUT_S = 20
RSS_MIB = 2048
MOST_FAULTS = 20
SOCKETS = 2000


@dataclass
class Done:
    """What came of one target."""

    name: str
    cases: int = 0
    slow: int = 0
    peak_mib: int = 0
    faults: list[Path] = field(default_factory=list[Path])
    outcomes: Counter[str] = field(default_factory=Counter[str])


def fuzz(name: str, cases: int, seed: int) -> Done:
    """Run one target in processes of its own until so many cases were run; a fault ends one of them."""
    done, place = Done(name), OUT / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with (place / "log").open("wb") as log:
        while done.cases < cases and len(done.faults) < MOST_FAULTS:
            (place / "note.json").unlink(missing_ok=True)
            left = cases - done.cases
            options = {
                "runs": left,
                "seed": seed + len(done.faults) + 1,
                "max_len": MAX_LEN,
                "timeout": TIMEOUT_S,
                "rss_limit_mb": RSS_MIB,
                "verbosity": 0,
                "artifact_prefix": f"{place}/",
            }
            words = [f"-{key}={value}" for key, value in options.items()]
            command = [sys.executable, "-m", "fuzz.one", name, str(place), *words]
            code = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
            _add(done, place, code, last=left)
    return done


def _add(done: Done, place: Path, code: int, *, last: int) -> None:
    note = place / "note.json"
    told: dict[str, Any] = json.loads(note.read_text()) if note.exists() else {}
    # A process that came to its end ran all of its cases; the note is some hundreds behind.
    done.cases += last if code == 0 else max(1, told.get("cases", 0))
    done.slow += told.get("slow", 0)
    done.peak_mib = max(done.peak_mib, told.get("peak_mib", 0))
    done.outcomes.update(told.get("outcomes", {}))
    kinds = ("crash-*", "timeout-*", "oom-*", "leak-*")
    done.faults = sorted(path for kind in kinds for path in place.glob(kind))
    if code and not done.faults:
        raise RuntimeError(f"the fuzzer of {done.name} ended with {code}: see {place / 'log'}")


def replay(path: Path) -> int:
    """Run one reproducer through every target and show what it raises."""
    code = 0
    for name, make in TARGETS.items():
        target = make()
        try:
            target.run(path.read_bytes())
            print(f"{name}: {dict(target.outcomes)}")
        except Exception:
            print(f"{name}:\n{traceback.format_exc()}")
            code = 1
        finally:
            target.close()
    return code


def grow() -> list[scaling.Growth]:
    """Measure every family of growing sizes, and print them."""
    print(f"\n{'what grows':40}{'things':>10}{'bytes':>12}{'CPU s':>9}{'exponent':>10}{'16 MiB: s':>11}")
    world, found = World(), list[scaling.Growth]()
    for name in scaling.FAMILIES:
        one = scaling.grow(world, name)
        found.append(one)
        print(
            f"{one.name:40}{one.count:>10,}{one.size:>12,}{one.seconds:>9.3f}{one.exponent:>10.2f}"
            f"{one.whole_s:>11.1f}  {one.complaint}",
            flush=True,
        )
    world.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--cases", type=int, default=1_000_000, help="in all (default %(default)s)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="default: by the clock")
    parser.add_argument("--target", choices=PARTS, action="append", help="default: all")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="targets at a time")
    parser.add_argument("--replay", type=Path, help="run this reproducer and nothing else")
    options = parser.parse_args()
    if options.replay is not None:
        return replay(options.replay)
    wanted: list[str] = options.target or PARTS
    began = time.monotonic()
    print(f"seed {options.seed}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}", flush=True)
    named = [name for name in SHARES if name in wanted]
    shares = sum(SHARES[name] for name in named)
    with ThreadPoolExecutor(options.jobs) as pool:
        made = [
            pool.submit(fuzz, name, round(options.cases * SHARES[name] / shares), options.seed)
            for name in named
        ]
        done = [one.result() for one in made]
    bad = 0
    for one in done:
        print(
            f"{one.name}: {one.cases:,} cases, {len(one.faults)} faults, {one.slow} slow, "
            f"{one.peak_mib} MiB at most"
        )
        print(f"  {', '.join(f'{what}: {count:,}' for what, count in one.outcomes.most_common())}")
        for path in one.faults:
            print(f"  {path}")
        bad += len(one.faults) + one.slow
    if "sizes" in wanted:
        bad += sum(bool(one.complaint) for one in grow())
    if "sockets" in wanted:
        bad += _sockets(options.seed)
    print(f"\n{sum(one.cases for one in done):,} cases in {time.monotonic() - began:.0f} s: ", end="")
    print("nothing found" if not bad else f"{bad} complaints")
    return 1 if bad else 0


def _sockets(seed: int) -> int:
    target = TARGETS["export"]()
    cases = target.seeds() + [path.read_bytes() for path in sorted((OUT / "export" / "corpus").glob("*"))]
    found = sockets.sample(cases, SOCKETS, seed)
    print(f"\nover a socket: {dict(found.answers.most_common())}, {found.peak_mib:.0f} MiB at most")
    for number, data in enumerate(found.bad):
        (OUT / f"socket-{number}").write_bytes(data)
        print(f"  {OUT / f'socket-{number}'}")
    return len(found.bad) + (found.peak_mib > sockets.MEMORY_MIB)


if __name__ == "__main__":
    sys.exit(main())

"""``make faults``: the fault zoo, on real engines, with its confusion matrix.

    make faults                                            everything, some hours
    make faults ARGS="--kind patch --pair first --seeds 1"
    make faults ARGS="--only k3 --only one_layer_listed"
    make faults ARGS="--again"                             the stores of before, by the rules of today

Stores and judgements are kept in ``build/faults``; the matrix is of what this run served. Ends with 1 where a
class was missed or a control accused.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import partial
from pathlib import Path

from cases import KINDS, Case, cases
from matrix import matrix
from rejudge import rejudged
from zoo import PAIRS, Judgement, launches, reference_of, run, store_of

OUT = Path(__file__).parents[2] / "build" / "faults"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--kind", choices=KINDS, action="append", help="default: all")
    parser.add_argument("--only", action="append", metavar="NAME", help="mechanisms or controls by name")
    parser.add_argument("--pair", choices=list(PAIRS), action="append", help="default: both")
    parser.add_argument("--seeds", type=int, default=3, help="of prompts, for each load (default 3)")
    parser.add_argument("--jobs", type=int, default=2, help="engines at once (default 2)")
    parser.add_argument("--again", action="store_true", help="no engine: judge the stores that were kept")
    options = parser.parse_args()
    chosen = [
        case
        for case in cases()
        if (not options.kind or case.kind in options.kind) and (not options.only or case.name in options.only)
    ]
    unknown = set(options.only or ()) - {case.name for case in chosen}
    if unknown:
        parser.error(f"no such mechanism: {', '.join(sorted(unknown))}")
    OUT.mkdir(parents=True, exist_ok=True)
    results = Results()
    # Processes: engines and servers that judge them share no interpreter.
    with ProcessPoolExecutor(options.jobs) as pool:
        work = again if options.again else partial(serve, seeds=range(1, options.seeds + 1))
        pairs = options.pair or list(PAIRS)
        waiting = {
            pool.submit(work, [case.name for case in launch], pair): f"{launch[0].name} ({pair})"
            for pair in pairs
            for launch in launches(chosen)
        }
        for done in as_completed(waiting):
            results.add(waiting[done], done)
    print()
    print("\n".join(matrix(results.judgements)))
    for name in results.failed:
        print(f"not served: {name}")
    return 1 if results.failed or not all(one.right for one in results.judgements) else 0


def _named(names: Sequence[str]) -> tuple[Case, ...]:
    return tuple(case for case in cases() if case.name in names)


def serve(names: Sequence[str], pair: str, seeds: range) -> list[Judgement]:
    """Serve the cases of a launch; keep its store, with what was said."""
    launch = _named(names)
    told = store_of(OUT, pair, launch).with_suffix(".jsonl")
    found: list[Judgement] = []
    with tempfile.TemporaryDirectory() as place:
        for one in run(launch, pair, Path(place), OUT, seeds):
            found.append(one)
            print(shown(one), flush=True)
    told.write_text("".join(json.dumps(asdict(one)) + "\n" for one in found))
    return found


def again(names: Sequence[str], pair: str) -> list[Judgement]:
    """Judge the store that was kept of a launch by the rules of today; nothing where none was."""
    file = store_of(OUT, pair, _named(names))
    reference = reference_of(OUT, pair)
    found = list(rejudged(file, reference)) if file.with_suffix(".jsonl").is_file() else []
    wanted = [one for one in found if one.case in names]
    for one in wanted:
        print(shown(one), flush=True)
    return wanted


def shown(one: Judgement) -> str:
    """Return a judgement as a line."""
    findings = one.findings[:4]
    top = ", ".join(" ".join(filter(None, (kind, at, sure))) for kind, at, sure in findings)
    length = "none" if one.acceptance_length is None else f"{one.acceptance_length:.2f}"
    return (
        f"{'right' if one.right else 'WRONG'}  {time.strftime('%H:%M')} {one.pair} {one.kind} {one.case} "
        f"[{one.fault_class or 'control'}] {one.load} {one.seed}: length {length} in {one.steps} steps; "
        f"{one.state}; {top or 'nothing found'}"
    )


class Results:
    """Judgements as they come, and what could not be served."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.judgements: list[Judgement] = []
        self.failed: list[str] = []

    def add(self, name: str, done: Future[list[Judgement]]) -> None:
        """Keep what came of a launch."""
        error = done.exception()
        if error is not None:
            self.failed.append(name)
            print(f"{name} could not be served:", *traceback.format_exception(error)[-4:], flush=True)
            return
        self.judgements += done.result()


if __name__ == "__main__":
    sys.exit(main())

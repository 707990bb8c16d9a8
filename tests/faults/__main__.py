"""``make faults``: the fault zoo, on real engines, with its confusion matrix.

    make faults                                            everything, some hours
    make faults ARGS="--kind patch --pair first --seeds 1"
    make faults ARGS="--only k3 --only one_layer_listed"

What is said of each load is appended to ``build/faults/results.jsonl`` as it comes; the matrix is of what
this run served. Ends with 1 where a class was missed or a control accused.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from cases import KINDS, Case, cases
from zoo import PAIRS, Judgement, is_control, run

OUT = Path(__file__).parents[2] / "build" / "faults"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--kind", choices=KINDS, action="append", help="default: all")
    parser.add_argument("--only", action="append", metavar="NAME", help="mechanisms or controls by name")
    parser.add_argument("--pair", choices=list(PAIRS), action="append", help="default: both")
    parser.add_argument("--seeds", type=int, default=3, help="of prompts, for each mechanism (default 3)")
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
    judgements: list[Judgement] = []
    failed: list[str] = []
    with (OUT / "results.jsonl").open("a") as results:
        for pair in options.pair or PAIRS:
            for case in chosen:
                try:
                    for one in _told(case, pair, options.seeds):
                        judgements.append(one)
                        results.write(json.dumps(asdict(one)) + "\n")
                        results.flush()
                except Exception:
                    failed.append(f"{case.name} ({pair})")
                    print(f"{case.name} ({pair}) could not be served:\n{traceback.format_exc()}", flush=True)
    print()
    print("\n".join(matrix(judgements)))
    for name in failed:
        print(f"not served: {name}")
    return 1 if failed or not all(one.right for one in judgements) else 0


def _told(case: Case, pair: str, seeds: int) -> Sequence[Judgement]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        found = list(run(case, pair, Path(place), seeds))
    for one in found:
        top = ", ".join(f"{kind} {fault} {sure}".replace("  ", " ") for kind, fault, sure in one.findings[:4])
        length = "none" if one.acceptance_length is None else f"{one.acceptance_length:.2f}"
        mark = "right" if one.right else "WRONG"
        print(
            f"{mark}  {pair} {case.kind} {case.name} [{case.fault_class or 'control'}] {one.load}: "
            f"length {length} in {one.steps} steps; {one.state}; {top or 'nothing found'}",
            flush=True,
        )
    print(f"       {time.monotonic() - began:.0f} s", flush=True)
    return found


def matrix(judgements: Sequence[Judgement]) -> list[str]:
    """Return the confusion matrix as Markdown: rows are what was injected, columns what was named on top."""
    told = Counter((one.fault_class or "control", one.named or "none") for one in judgements)
    rows = sorted({row for row, _ in told}, key=lambda name: (name == "control", name))
    columns = sorted({column for _, column in told}, key=lambda name: (name == "none", name))
    lines = ["| injected | " + " | ".join(columns) + " | right |", "|---" * (len(columns) + 2) + "|"]
    for row in rows:
        of_row = [told[row, column] for column in columns]
        right = told[row, "none" if row == "control" else row]
        cells = " | ".join(str(count) if count else "" for count in of_row)
        lines.append(f"| {row} | {cells} | {right} of {sum(of_row)} |")
    controls = [one for one in judgements if is_control(one)]
    served = sum(one.requests for one in controls)
    accused = sum(one.requests for one in controls if not one.right)
    lines.append("")
    lines.append(f"{served} requests of controls, {accused} of them in windows in which a fault was named.")
    return lines


if __name__ == "__main__":
    sys.exit(main())

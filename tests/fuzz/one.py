"""``python -m fuzz.one TARGET FOLDER [libFuzzer options]``: fuzz one target in this process with atheris.

The coverage that guides it is that of our own modules. The limit of the address space is the kernel's, so
that a runaway allocation fails here instead of taking the machine down.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from pathlib import Path
from typing import Any

import atheris as library  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]

atheris: Any = library  # it tells a type checker nothing of itself

ADDRESS_SPACE = 4 << 30
SLOW_S = 0.5
"""CPU seconds from which on a case is told of, as far as it is not just large: see :data:`SLOW_S_A_BYTE`."""
SLOW_S_A_BYTE = 10e-6


def main() -> None:
    name, folder, *options = sys.argv[1:]
    place = Path(folder)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    with atheris.instrument_imports(include=["specscope", "specscope_server"]):
        from fuzz.targets import TARGETS
    target = TARGETS[name]()
    corpus = place / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number:03}").write_bytes(seed)
    cases = slow = 0

    def run(data: bytes) -> None:
        nonlocal cases, slow
        cases += 1
        began = time.process_time()
        target.run(data)
        took = time.process_time() - began
        if took > SLOW_S and took > SLOW_S_A_BYTE * len(data) and cases > 100:
            slow += 1
            (place / f"slow-{took:.1f}s-{cases}").write_bytes(data)
        if cases % 500 == 0:
            _note(place, cases, slow, target.outcomes)

    def mutate(data: bytes, size: int, seed: int) -> bytes:
        dice = random.Random(seed)

        def other(piece: bytes) -> bytes:
            return atheris.Mutate(piece, len(piece) + 64)

        for _ in range(dice.choice((1, 1, 2, 4))):
            data = target.mutate(data, dice, other)
        return data[:size]

    atheris.Setup([sys.argv[0], *options, str(corpus)], run, custom_mutator=mutate)
    atheris.Fuzz()


def _note(place: Path, cases: int, slow: int, outcomes: dict[str, int]) -> None:
    """Leave a note of how far it is: libFuzzer ends the process without a word of ours."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    told = {"cases": cases, "slow": slow, "peak_mib": peak, "outcomes": dict(outcomes)}
    (place / "note.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()

"""One real engine that is given each fault in turn, and what its tracer recorded meanwhile.

As a program it prints what moved as a table, for ``docs/reference/faults.md``:
``PYTHONPATH=tests:tests/engines .venv/bin/python -m fault_runs``
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import faulty_draft
from fault_statistics import Run
from fault_table import FAULTS, LENGTH, MEASURES
from faulty_draft import HEALTHY
from live_answers import plant
from otlp_receiver import Receiver
from sglang_engine import CHAIN, Server, speculation
from sglang_runs import traced
from tiny_prompts import Reference, references

NEW_TOKENS = 40
OTHERS = "others"
"""A healthy run of other prompts."""
AGAIN, OTHERS_AGAIN = "again", "others-again"
"""Healthy runs of both, after all faults, one prompt at a time: other batches, the same tokens."""


TAKEN = {"licence": 3, "docstring": 3, "copy": 2}
"""As many prompts as run at once: one more would double the steps."""


def prompts(*, others: bool) -> dict[str, Reference]:
    """The first ones of each domain; ``others``: the next ones."""
    found: dict[str, Reference] = {}
    for domain, count in TAKEN.items():
        of_it = [one for one in references() if one.domain == domain]
        for number in range(count, 2 * count) if others else range(count):
            found[f"{domain}-{number}"] = of_it[number]
    return found


@dataclass(frozen=True)
class Runs:
    """By fault, and :data:`HEALTHY`, :data:`OTHERS`, :data:`AGAIN`, :data:`OTHERS_AGAIN`."""

    runs: dict[str, Run]
    outputs: dict[str, dict[str, list[int]]]
    """Generated tokens, by prompt."""
    measured: dict[str, dict[str, float]]
    """What each measure says of each run, held against a healthy one of its prompts."""
    lines: list[str]


def run_all(folder: Path) -> Runs:
    """Start an engine, and run the prompts healthy, with each fault, and healthy again."""
    control = folder / "fault"
    control.write_text(HEALTHY)
    place = plant(folder, "faulty_draft", Path(faulty_draft.__file__).read_text())
    receiver = Receiver()
    environment = traced(receiver, SPECSCOPE_DETAIL="full", PYTHONPATH=str(place))
    outputs: dict[str, dict[str, list[int]]] = {}
    with Server(folder, speculation(CHAIN), environment | {faulty_draft.CONTROL: str(control)}) as server:
        for name in (HEALTHY, OTHERS, *FAULTS, AGAIN, OTHERS_AGAIN):
            fault = name if name in FAULTS else HEALTHY
            control.write_text(fault)
            # Else the prompts come from the cache, which has the target's keys and no hidden states.
            server.settle()
            asked = {
                f"{name}/{key}": one.prompt
                for key, one in prompts(others=name in (OTHERS, OTHERS_AGAIN)).items()
            }
            answers = server.generate_all(asked, 1 if name in (AGAIN, OTHERS_AGAIN) else 8, NEW_TOKENS)
            outputs[name] = {rid.split("/")[1]: one["output_ids"] for rid, one in answers.items()}
            if name not in (HEALTHY, OTHERS):  # nothing was ever in force there
                assert faulty_draft.in_force(control).read_text() == fault
        told = receiver.settled([f"{name}/{key}" for name, found in outputs.items() for key in found])
        lines = server.ours()
    receiver.close()
    runs = {
        name: Run(name, {key: told.requests[f"{name}/{key}"] for key in found})
        for name, found in outputs.items()
    }
    measured = {
        name: {measure: of(run, runs[_twin(name)]) for measure, of in MEASURES.items()}
        for name, run in runs.items()
    }
    return Runs(runs, outputs, measured, lines)


def _twin(name: str) -> str:
    """The healthy run that a run is held against."""
    return {OTHERS: OTHERS_AGAIN, OTHERS_AGAIN: OTHERS}.get(name, HEALTHY)


def table(found: Runs) -> str:
    """Markdown: of each fault what moved, healthy twice (the prompts, others) and with it."""
    # That of HEALTHY would be held against itself.
    healthy, others = found.measured[AGAIN], found.measured[OTHERS]
    lines = [
        "| fault | acceptance length | statistic | healthy | healthy, other prompts | with the fault |",
        "|---|---|---|---|---|---|",
    ]
    for name, fault in FAULTS.items():
        mine = found.measured[name]
        for index, moved in enumerate(fault.moved):
            first = (name, f"{mine[LENGTH]:.2f}") if index == 0 else ("", "")
            values = (healthy[moved.measure], others[moved.measure], mine[moved.measure])
            shown = ("–" if value != value else f"{value:.4g}" for value in values)
            lines.append(f"| {' | '.join((*first, moved.measure, *shown))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as given:
        print(table(run_all(Path(given))))

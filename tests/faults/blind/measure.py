"""Serves prompts of all three domains with a fault, and says what became of acceptance and text.

    PYTHONPATH=tests:tests/engines:tests/faults/blind .venv/bin/python -m measure exports [NAME ...]

Kinds: ``exports``, ``starts``, ``patches``, ``tree`` (patches on a tree), ``ranks`` (patches on two
tensor-parallel ranks). One line each: acceptance length (1 + accepted drafts per verify
step) of all prompts, of each domain, of the prompts asked again from the prefix cache, of the first verify
step, with eight requests at once; and how many texts, one at a time and at once, are the target's own.

What SGLang on a CPU with this pair does not host: F20 (no recurrent state in the target); F11's ids out of
range (the embedding refuses them and the engine ends); F18 of graphs (none are captured; batch rows are
there); F17 of a block-wise draft; F07 between two machines (only the hand-over inside one engine); F23 is no
fault.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import patching
from checkpoint import read, write
from exports import EXPORTS, write_export
from sglang_engine import CHAIN, TREE, Server, speculation
from starts import STARTS
from tiny_prompts import TINY, Reference, references

NEW_TOKENS = 40
SHAPES: dict[str, tuple[list[str], dict[str, str]]] = {
    "patches": (speculation(CHAIN), {}),
    "tree": (speculation(TREE), {}),
    "ranks": ([*speculation(CHAIN), "--tp-size", "2"], {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}),
}
"""Arguments and environment of the engine that patches are laid on."""


def prompts() -> dict[str, Reference]:
    """Three of each domain."""
    found: dict[str, Reference] = {}
    for domain in ("licence", "docstring", "copy"):
        of_it = [one for one in references() if one.domain == domain]
        found |= {f"{domain}-{number}": one for number, one in enumerate(of_it[:3])}
    return found


def length(answers: list[dict[str, Any]]) -> float:
    drafts = sum(one["meta_info"].get("spec_num_correct_drafts", 0) for one in answers)
    steps = sum(one["meta_info"].get("spec_verify_ct", 0) for one in answers)
    return 1 + drafts / steps if steps else float("nan")


def measured(server: Server, name: str) -> str:
    """Ask all prompts cold, again, for one step only, and at once."""
    asked = prompts()
    ids = {key: one.prompt for key, one in asked.items()}
    server.settle()
    cold = server.generate_all({f"{name}/{key}": one for key, one in ids.items()}, 1, NEW_TOKENS)
    again = server.generate_all({f"{name}/again/{key}": one for key, one in ids.items()}, 1, NEW_TOKENS)
    server.settle()
    first = server.generate_all({f"{name}/first/{key}": one for key, one in ids.items()}, 1, 2)
    server.settle()
    at_once = server.generate_all({f"{name}/once/{key}": one for key, one in ids.items()}, 8, NEW_TOKENS)
    by_domain = {
        domain: length([one for rid, one in cold.items() if f"/{domain}-" in rid])
        for domain in ("licence", "docstring", "copy")
    }
    served = [(rid.rsplit("/", 1)[1], one) for rid, one in (cold | at_once).items()]
    right = sum(one["output_ids"] == asked[key].continuation[:NEW_TOKENS] for key, one in served)
    shown = {
        "all": length(list(cold.values())),
        **by_domain,
        "cached": length(list(again.values())),
        "first step": length(list(first.values())),
        "at once": length(list(at_once.values())),
    }
    numbers = ", ".join(f"{key} {value:.2f}" for key, value in shown.items())
    return f"{name}: {numbers}; texts right {right}/{len(served)}"


def own_start(
    name: str, arguments: list[str], environment: dict[str, str], pushed: tuple[str, ...] = ()
) -> str:
    with tempfile.TemporaryDirectory() as given:
        try:
            with Server(Path(given), arguments, environment) as server:
                try:
                    if pushed:
                        print(measured(server, f"{name} (before)"), flush=True)
                        push(server, Path(given) / "push", pushed)
                    return measured(server, name)
                except Exception as error:
                    return f"{name}: {error!r}\n" + "\n".join(server.log.splitlines()[-12:])
        except AssertionError as error:
            return f"{name}: does not start: {str(error)[-1500:]}"


def push(server: Server, folder: Path, endings: tuple[str, ...]) -> None:
    """Update the engine from a checkpoint that has the target's tensors of these names alone."""
    made = read(TINY / "target")
    made.tensors = {name: one for name, one in made.tensors.items() if name.endswith(endings)}
    write(made, TINY / "target", folder)
    answer = server.post("/update_weights_from_disk", {"model_path": str(folder)})
    print(f"update: {answer}", flush=True)


def exported(name: str) -> str:
    with tempfile.TemporaryDirectory() as given:
        draft = Path(given) / "draft"
        write_export(name, TINY / "draft", TINY / "target", draft)
        return own_start(name, speculation(CHAIN, draft), {})


def started(name: str) -> str:
    start = STARTS[name]
    with tempfile.TemporaryDirectory() as folder:
        for file, text in start.files.items():
            (Path(folder) / file).write_text(text)
        draft = TINY / ("second/draft" if start.draft_of_the_other_pair else "draft")
        arguments = [one.format(folder=folder) for one in start.arguments]
        return own_start(
            name, [*speculation(CHAIN, draft), *arguments], dict(start.environment), start.pushed
        )


def patched(names: list[str], arguments: list[str], environment: dict[str, str]) -> None:
    """All in one engine, one after the other, healthy first and last."""
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        control = folder / "fault"
        control.write_text(patching.HEALTHY)
        plugin = {"PYTHONPATH": str(patching.plant(folder)), patching.CONTROL: str(control)}
        with Server(folder, arguments, plugin | environment) as server:
            for name in (patching.HEALTHY, *names, patching.HEALTHY):
                server.settle()
                control.write_text(name)
                try:
                    print(measured(server, name), flush=True)
                except Exception as error:
                    print(
                        f"{name}: {error!r}", "\n".join(server.log.splitlines()[-25:]), sep="\n", flush=True
                    )
                    return
                state = patching.in_force(control)
                if state.is_file() and state.read_text() != name:
                    print(state.read_text(), flush=True)


def main() -> None:
    kind, *names = sys.argv[1:]
    if kind in SHAPES:
        patched(names or list(patching.faults()), *SHAPES[kind])
        return
    one = {"exports": exported, "starts": started}[kind]
    for name in names or list({"exports": EXPORTS, "starts": STARTS}[kind]):
        print(one(name), flush=True)


if __name__ == "__main__":
    main()

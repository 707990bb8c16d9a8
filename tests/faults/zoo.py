"""One case of the zoo: a real engine with a fault, traced into a real server, judged load by load.

Everything that a rule could recognise but must not has a random name: folders of models and drafts, the
served model, the deployment, request ids. The detail level is ``full`` and the server has a reference of the
pair: what is fed and carried is compared row by row; docs/diagnosis.md says what each class needs.

All loads of a case meet the same fault on one engine, so what the ledger remembers since the start is of it
as well; windows are told apart by asking for a judgement of just the seconds since a load began. Mechanisms
that are laid on a live engine share a launch: :mod:`again` makes each of them an engine of its own.

The store is kept with these moments: :mod:`rejudge` asks the rules of today about it, without an engine.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import again
import at_load
import faulty_draft
import patching
from cases import CONTROL, EXPORT, NEW_TOKENS, OWN, PATCH, START, Case, Load, Round, everything, mixed
from checkpoint import read, write
from exports import write_export
from live_answers import plant, specscope, traced
from serverkit.live import Live
from sglang_engine import CHAIN, Server, sglang_python, speculation
from specscope_server.store.model import RequestFilter
from starts import STARTS
from tiny_prompts import TINY

PAIRS = {"first": TINY, "second": TINY / "second"}
LEAST_S = 10
"""Seconds of the shortest window that the server judges."""
WAIT_S = 240.0
LOADED_BY_TARGET = ("layers.7.mlp.down_proj.weight",)
"""What an update of the target alone brings: no draft has a tensor of this name."""


@dataclass(frozen=True)
class Judgement:
    """What was said of one load: state, and findings best first as (kind, class, confidence)."""

    case: str
    kind: str
    fault_class: str
    pair: str
    load: str
    seed: int
    state: str
    findings: tuple[tuple[str, str, str], ...]
    unknown: tuple[str, ...]
    acceptance_length: float | None
    steps: int
    requests: int
    at: str
    judge_s: int
    engine_uid: str

    @property
    def named(self) -> str:
        """The class on top of the list; empty where no fault is named."""
        return next((fault for _, fault, _ in self.findings if fault), "")

    @property
    def right(self) -> bool:
        """Whether the injected class is on top, or none is named on a control."""
        return self.named == self.fault_class


def _word() -> str:
    return secrets.token_hex(4)


def store_of(kept: Path, pair: str, launch: Sequence[Case]) -> Path:
    """Return where the store of a launch is kept."""
    return kept / f"{pair}-{launch[0].name if len(launch) == 1 else 'patches'}.db"


def launches(chosen: Sequence[Case]) -> list[tuple[Case, ...]]:
    """Put together what one launch can hold: mechanisms that are laid on a live engine, on a chain."""
    live = tuple(
        case
        for case in chosen
        if case.kind in (PATCH, OWN) and case.shape == CHAIN and case.ranks == 1 and not case.update
    )
    alone = [(case,) for case in chosen if case not in live]
    return [live, *alone] if live else alone


def reference_of(kept: Path, pair: str) -> Path:
    """Return the reference file of a pair; it is made by ``specscope fingerprint`` where it is not there."""
    out = kept / f"reference-{pair}.jsonl"
    if not out.is_file():
        prompts, made = kept / f"{pair}-prompts.json", kept / f"{pair}.{_word()}"
        prompts.write_text(json.dumps([{"prompt": ids} for ids in everything()]))
        folder = PAIRS[pair]
        command = [sglang_python().with_name("specscope"), "fingerprint", "--target", folder / "target"]
        command += ["--draft", folder / "draft", "--prompts", prompts, "--out", made]
        command += ["--continue", NEW_TOKENS]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([str(part) for part in command], check=True, env=environment)
        made.replace(out)
    return out


def run(launch: Sequence[Case], pair: str, place: Path, kept: Path, seeds: range) -> Iterator[Judgement]:
    """Start an engine and yield what is said of each case under each load, then keep the store."""
    target, draft = place / _word(), place / _word()
    shutil.copytree(PAIRS[pair] / "target", target)
    first = launch[0]
    _draft(first, pair, target, draft)
    reference = reference_of(kept, pair)
    with specscope(place, judge_s=3600.0) as live:
        headers = {"content-type": "application/jsonl"}
        sent = live.client.post("/api/v1/references", content=reference.read_bytes(), headers=headers)
        assert sent.status_code == 200, sent.text
        started, together = time.time(), len(launch) > 1
        with _engine(launch, place, target, draft, live) as (server, name):
            if first.update:
                _serve(server, (Round(mixed, 4),), 0)
                server.settle()
                _lay(first, place)
                server.generate(_word(), [1, 20, 30], 2)
                server.settle()
                _push(first, server, place, target)
            for case in launch:
                name = _change(case, server, place) if together else name
                for load_name, load in case.loads.items():
                    for seed in seeds:
                        began = started if case.update else time.time()
                        asked = _serve(server, load, seed)
                        told = _judged(case, pair, live, name, began, asked)
                        yield replace(told, load=load_name, seed=seed)
    shutil.copy(place / "specscope.db", store_of(kept, pair, launch))


def _draft(case: Case, pair: str, target: Path, draft: Path) -> None:
    other = case.kind == START and STARTS[case.name].draft_of_the_other_pair
    source = PAIRS["second" if other == (pair == "first") else "first"] / "draft"
    if case.kind == EXPORT:
        write_export(case.name, source, target, draft)
    else:
        shutil.copytree(source, draft)


def _control(place: Path) -> Path:
    return place / "control"


def _lay(case: Case, place: Path) -> None:
    if case.kind in (PATCH, OWN):
        _control(place).write_text(case.name)


def _change(case: Case, server: Server, place: Path) -> str:
    """Make the engine another one, with the fault of ``case``; return that one's name."""
    name = _word()
    asked = {
        "module": _module(case),
        "name": case.name,
        "early": case.early,
        "SPECSCOPE_NAME": name,
        "SPECSCOPE_INSTANCE": secrets.token_hex(16),
    }
    server.settle()
    _control(place).write_text(json.dumps(asked))
    server.settle()
    state = _control(place).with_suffix(".in-force").read_text()
    assert state == json.dumps(asked), f"{case.name} was never in force:\n{state}"
    return name


def _module(case: Case) -> str:
    return "patching" if case.kind == PATCH else "faulty_draft"


def _planted(place: Path, plugin: ModuleType) -> Path:
    """Plant a plugin of the zoo, with the modules of all mechanisms beside it."""
    folder = plant(place, plugin.__name__, Path(str(plugin.__file__)).read_text("utf-8"))
    for module in (Path(faulty_draft.__file__), *patching.sources()):
        (folder / module.name).write_text(module.read_text("utf-8"))
    return folder


@contextmanager
def _engine(
    launch: Sequence[Case], place: Path, target: Path, draft: Path, live: Live
) -> Generator[tuple[Server, str]]:
    case, name = launch[0], _word()
    arguments = [*speculation(case.shape, draft), "--model-path", str(target), "--served-model-name", _word()]
    environment = traced(live, SPECSCOPE_DETAIL="full", SPECSCOPE_NAME=name)
    if case.ranks > 1:
        arguments += ["--tp-size", str(case.ranks)]
        environment["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(map(str, range(case.ranks)))
    control = _control(place)
    if case.update:
        control.write_text(patching.HEALTHY)
    else:
        _lay(case, place)
    own = Path(faulty_draft.__file__)
    if len(launch) > 1:
        plugins = _planted(place, again)
        environment |= {"PYTHONPATH": str(plugins), again.CONTROL: str(control)}
    elif case.early:
        control.write_text(f"{_module(case)} {case.name}")
        plugins = _planted(place, at_load)
        environment |= {"PYTHONPATH": str(plugins), at_load.CONTROL: str(control)}
    elif case.kind == PATCH:
        environment |= {"PYTHONPATH": str(patching.plant(place)), patching.CONTROL: str(control)}
    elif case.kind == OWN:
        code = own.read_text("utf-8")
        environment |= {
            "PYTHONPATH": str(plant(place, "faulty_draft", code)),
            faulty_draft.CONTROL: str(control),
        }
    elif case.kind == START:
        start, folder = STARTS[case.name], place / _word()
        folder.mkdir()
        for file, text in start.files.items():
            (folder / file).write_text(text)
        arguments += [one.format(folder=folder) for one in start.arguments]
        environment |= start.environment
    with Server(place, arguments, environment) as server:
        yield server, name
        if case.kind in (PATCH, OWN) and len(launch) == 1:
            told = control.with_suffix(".in-force")
            assert told.is_file() and told.read_text() == case.name, "the fault was never in force"


def _push(case: Case, server: Server, place: Path, target: Path) -> None:
    """Update the running engine from a checkpoint that has the target's tensors of some names alone."""
    endings = STARTS[case.name].pushed if case.kind == START else LOADED_BY_TARGET
    made = read(target)
    made.tensors = {name: one for name, one in made.tensors.items() if name.endswith(endings)}
    pushed = place / _word()
    write(made, target, pushed)
    answer = server.post("/update_weights_from_disk", {"model_path": str(pushed)})
    assert answer["success"], answer


def _serve(server: Server, load: Load, seed: int) -> list[str]:
    """Serve the rounds of a load; return the rids that were asked."""
    sent: list[str] = []
    for one in load:
        if not one.again:
            server.settle()
        asked = {f"{_word()}-{name}": ids for name, ids in one.prompts(seed).items()}
        if one.sampling:
            for rid, ids in asked.items():
                server.generate(rid, ids, NEW_TOKENS, **one.sampling)
        else:
            server.generate_all(asked, min(one.at_once, len(asked)), NEW_TOKENS)
        sent += asked
    return sent


def _judged(case: Case, pair: str, live: Live, name: str, began: float, sent: list[str]) -> Judgement:
    deadline = time.monotonic() + WAIT_S
    uid = ""
    while True:
        if not uid:
            uid = next(
                (one["engine_uid"] for one in live.get("/api/v1/engines")["items"] if one["name"] == name), ""
            )
        found = live.store.requests(RequestFilter(engine_uid=uid), 2000).items if uid else ()
        rows = {row.rid: row for row in found}
        mine = [rows[rid] for rid in sent if rid in rows]
        if len(mine) == len(sent) and all(row.state != "running" for row in mine):
            break
        assert time.monotonic() < deadline, f"{case.name}: {len(sent) - len(mine)} requests are not told of"
        time.sleep(0.5)
    # What was told last is in its rollups and rank records two seconds later.
    time.sleep(max(3.0, LEAST_S - (time.time() - began)))
    now = datetime.now(UTC)
    judge_s = max(LEAST_S, math.ceil(now.timestamp() - began))
    engine = live.get(f"/api/v1/engines/{uid}", window_s=max(60, judge_s), judge_s=judge_s)
    findings: list[dict[str, Any]] = engine["findings"]
    steps = sum(row.totals.verify_steps for row in mine)
    gained = sum(row.totals.accepted + row.totals.bonus for row in mine)
    return Judgement(
        case=case.name,
        kind=case.kind,
        fault_class=case.fault_class,
        pair=pair,
        load="",
        seed=0,
        state=engine["state"],
        findings=tuple((one["kind"], one["fault_class"], one["confidence"]) for one in findings),
        unknown=tuple(sorted(engine["unknown"])),
        acceptance_length=gained / steps if steps else None,
        steps=steps,
        requests=len(mine),
        at=now.isoformat(),
        judge_s=judge_s,
        engine_uid=uid,
    )


def is_control(judgement: Judgement) -> bool:
    """Whether nothing may be named."""
    return judgement.kind == CONTROL

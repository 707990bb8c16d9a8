"""One case of the zoo: a real engine with a fault, traced into a real server, judged load by load.

Everything that a rule could recognise but must not has a random name: folders of models and drafts, the
served model, the deployment, request ids. The detail level is ``full``: what is fed and carried is compared
row by row; docs/diagnosis.md says what each class needs.

All loads of a case meet the same fault in one launch, so what the ledger remembers since the start is of it
as well; windows are told apart by asking for a judgement of just the seconds since a load began.
"""

from __future__ import annotations

import math
import secrets
import shutil
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faulty_draft
import patching
from cases import CONTROL, EXPORT, NEW_TOKENS, OWN, PATCH, START, Case, Load, mixed
from checkpoint import read, write
from exports import write_export
from live_answers import plant, specscope, traced
from serverkit.live import Live
from sglang_engine import Server, speculation
from specscope_server.store.model import RequestFilter
from starts import STARTS
from tiny_prompts import TINY

PAIRS = {"first": TINY, "second": TINY / "second"}
LEAST_S = 10
"""Seconds of the shortest window that the server judges."""
WAIT_S = 120.0


@dataclass(frozen=True)
class Judgement:
    """What was said of one load: state, and findings best first as (kind, class, confidence)."""

    case: str
    kind: str
    fault_class: str
    pair: str
    load: str
    state: str
    findings: tuple[tuple[str, str, str], ...]
    unknown: tuple[str, ...]
    acceptance_length: float | None
    steps: int
    requests: int

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


def _seeds(count: int) -> dict[str, Load]:
    return {f"seed {seed}": Load(lambda _, seed=seed: mixed(seed)) for seed in range(1, count + 1)}


def run(case: Case, pair: str, place: Path, seeds: int = 3) -> Iterator[Judgement]:
    """Start the engine of a case and yield what is said under each load."""
    target, draft = place / _word(), place / _word()
    shutil.copytree(PAIRS[pair] / "target", target)
    _draft(case, pair, target, draft)
    with specscope(place, judge_s=3600.0) as live, _engine(case, place, target, draft, live) as server:
        if case.kind == START:
            _push(case, server, place, target)
        for name, load in (case.loads or _seeds(seeds)).items():
            began = time.time()
            sent = _serve(server, load, seeds)
            yield _judged(case, pair, name, live, began, sent)


def _draft(case: Case, pair: str, target: Path, draft: Path) -> None:
    other = case.kind == START and STARTS[case.name].draft_of_the_other_pair
    source = PAIRS["second" if other == (pair == "first") else "first"] / "draft"
    if case.kind == EXPORT:
        write_export(case.name, source, target, draft)
    else:
        shutil.copytree(source, draft)


@contextmanager
def _engine(case: Case, place: Path, target: Path, draft: Path, live: Live) -> Generator[Server]:
    arguments = [*speculation(case.shape, draft), "--model-path", str(target), "--served-model-name", _word()]
    environment = traced(live, SPECSCOPE_DETAIL="full", SPECSCOPE_NAME=_word())
    if case.ranks > 1:
        arguments += ["--tp-size", str(case.ranks)]
        environment["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(map(str, range(case.ranks)))
    control = place / _word()
    control.write_text(case.name)
    if case.kind == PATCH:
        environment |= {"PYTHONPATH": str(patching.plant(place)), patching.CONTROL: str(control)}
    elif case.kind == OWN:
        code = Path(faulty_draft.__file__).read_text("utf-8")
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
        yield server
        if case.kind in (PATCH, OWN):
            module = patching if case.kind == PATCH else faulty_draft
            assert module.in_force(control).read_text() == case.name, "the fault was never in force"


def _push(case: Case, server: Server, place: Path, target: Path) -> None:
    endings = STARTS[case.name].pushed
    if not endings:
        return
    server.generate_all({f"{_word()}-{name}": ids for name, ids in mixed(0).items()}, 4, NEW_TOKENS)
    server.settle()
    made = read(target)
    made.tensors = {name: one for name, one in made.tensors.items() if name.endswith(endings)}
    pushed = place / _word()
    write(made, target, pushed)
    assert server.post("/update_weights_from_disk", {"model_path": str(pushed)})["success"]


def _serve(server: Server, load: Load, seed: int) -> list[str]:
    """Serve a load; return the rids that were asked, those of what is judged alone."""
    prompts = load.prompts(seed)
    if not load.again:
        server.settle()
    asked = {f"{_word()}-{name}": ids for name, ids in prompts.items()}
    with_ids = dict(asked)
    sampling = dict(load.sampling)
    pool_size = min(load.at_once, len(with_ids))
    if sampling:
        for rid, ids in with_ids.items():
            server.generate(rid, ids, NEW_TOKENS, **sampling)
    else:
        server.generate_all(with_ids, pool_size, NEW_TOKENS)
    return list(asked)


def _judged(case: Case, pair: str, name: str, live: Live, began: float, sent: list[str]) -> Judgement:
    deadline = time.monotonic() + WAIT_S
    while True:
        rows = {row.rid: row for row in live.store.requests(RequestFilter(), 1000).items}
        mine = [rows[rid] for rid in sent if rid in rows]
        if len(mine) == len(sent) and all(row.state != "running" for row in mine):
            break
        assert time.monotonic() < deadline, f"{case.name}: {len(sent) - len(mine)} requests are not told of"
        time.sleep(0.5)
    # What was told last is in its rollups and rank records two seconds later.
    time.sleep(max(3.0, LEAST_S - (time.time() - began)))
    judge_s = max(LEAST_S, math.ceil(time.time() - began))
    [engine] = live.get("/api/v1/engines", window_s=max(60, judge_s), judge_s=judge_s)["items"]
    findings: list[dict[str, Any]] = engine["findings"]
    steps = sum(row.totals.verify_steps for row in mine)
    gained = sum(row.totals.accepted + row.totals.bonus for row in mine)
    return Judgement(
        case.name,
        case.kind,
        case.fault_class,
        pair,
        name,
        engine["state"],
        tuple((one["kind"], one["fault_class"], one["confidence"]) for one in findings),
        tuple(sorted(engine["unknown"])),
        gained / steps if steps else None,
        steps,
        len(mine),
    )


def is_control(judgement: Judgement) -> bool:
    """Whether nothing may be named."""
    return judgement.kind == CONTROL

"""What the rules of today say of the store that a launch of the zoo left, at the moments of then.

The reference of the pair is the one that is kept now: what a reference holds may have grown since.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specscope import reference_file
from specscope_server.diagnosis import diagnose
from specscope_server.store import open_store
from specscope_server.store.port import Store
from zoo import Judgement

UID = "reference"


def rejudged(file: Path, reference: Path) -> Iterator[Judgement]:
    """Yield the judgements of a kept store again, in the order of then."""
    with tempfile.TemporaryDirectory() as place:
        copy = shutil.copy(file, Path(place) / "specscope.db")
        with closing(open_store(f"sqlite:///{copy}")) as store:
            workspaces = {uid: workspace for workspace, uid in store.engine_uids()}
            _refer(store, set(workspaces.values()), reference)
            for line in file.with_suffix(".jsonl").read_text().splitlines():
                told: dict[str, Any] = json.loads(line)
                told["findings"] = told["unknown"] = ()
                before = Judgement(**told)
                yield _judged(store, workspaces[before.engine_uid], before)


def _refer(store: Store, workspaces: set[str], reference: Path) -> None:
    with reference.open("rb") as lines:
        facts, sequences = reference_file.read(lines)
    for workspace in workspaces:
        for row in store.references(workspace):
            store.delete_reference(workspace, row.reference_uid)
        store.add_reference(workspace, UID, facts, sequences, reference.stat().st_size, datetime.now(UTC))


def _judged(store: Store, workspace: str, before: Judgement) -> Judgement:
    now = datetime.fromisoformat(before.at)
    evidence = store.evidence(workspace, before.engine_uid, now, before.judge_s)
    assert evidence is not None, f"{before.case}: the store has no engine {before.engine_uid}"
    said = diagnose(evidence)
    return replace(
        before,
        state=said.state.word,
        findings=tuple((one.kind, one.fault_class, one.confidence) for one in said.findings),
        unknown=tuple(sorted(said.unknown)),
    )

"""What the rules of today say of the store that a case of the zoo left, at the moments of then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from specscope_server.diagnosis import diagnose
from specscope_server.store import open_store
from zoo import Judgement


def rejudged(file: Path) -> Iterator[Judgement]:
    """Yield the judgements of a kept store again, in the order of then."""
    store = open_store(f"sqlite:///{file}")
    try:
        workspaces = {uid: workspace for workspace, uid in store.engine_uids()}
        for line in file.with_suffix(".jsonl").read_text().splitlines():
            told: dict[str, Any] = json.loads(line)
            told["findings"] = told["unknown"] = ()
            before = Judgement(**told)
            now = datetime.fromisoformat(before.at)
            uid = before.engine_uid
            evidence = store.evidence(workspaces[uid], uid, now, before.judge_s)
            assert evidence is not None, f"{file} has no engine {uid}"
            said = diagnose(evidence)
            yield replace(
                before,
                state=said.state.word,
                findings=tuple((one.kind, one.fault_class, one.confidence) for one in said.findings),
                unknown=tuple(sorted(said.unknown)),
            )
    finally:
        store.close()

"""The real tracer sends, the real server understands: every span and point, to the same numbers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from serverkit.command import environment
from serverkit.live import Live, serving
from specscope import convention as c
from specscope import records as r
from specscope_server.ingest import traces
from wirekit import golden, traffic

STORY = list(traffic.story())
STEPS = [record for record in STORY if isinstance(record, r.VerifyStep)]


def test_golden_request_is_understood_wholly() -> None:
    frozen = bytes.fromhex((golden.FOLDER / "request.hex").read_text().replace("\n", ""))
    export = ExportTraceServiceRequest.FromString(frozen)
    batches, tally = traces.batches_of(export)
    assert (tally.rejected, tally.foreign, tally.explain()) == (0, 0, "")
    names = {s.name for rs in export.resource_spans for ss in rs.scope_spans for s in ss.spans}
    assert names == {c.SPAN_ENGINE, c.SPAN_REQUEST, c.SPAN_STEPS, c.SPAN_ROLLUP, c.SPAN_RANKS}
    for kind in ("engines", "requests", "chunks", "rollups", "ranks"):
        assert any(getattr(batch, kind) for batch in batches), kind


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server that an engine process has told the fixed story, start to end."""
    with serving(f"sqlite:///{tmp_path_factory.mktemp('story') / 'store.db'}") as found:
        done = subprocess.run(
            [sys.executable, "-m", "wirekit.engine", found.url, "story"],
            cwd=golden.FOLDER.parents[1],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        yield found


def test_nothing_is_rejected_or_unknown(live: Live) -> None:
    ingest = live.get("/api/v1/status")["ingest"]
    for signal in ("traces", "metrics"):
        assert ingest[signal]["accepted"] > 0
        assert (ingest[signal]["rejected"], ingest[signal]["foreign"]) == (0, 0), ingest
    assert ingest["refused"] == {}


@pytest.mark.parametrize("name", ["long", "health"])
def test_request_has_the_numbers_that_were_recorded(live: Live, name: str) -> None:
    uid = traffic.uid(name)
    mine = [(s, s.uids.index(uid)) for s in STEPS if uid in s.uids]
    told = live.get(f"/api/v1/requests/{uid}")
    assert (told["request"]["rid"], told["request"]["state"]) == (name, "finished")
    kept = [(s, i) for s, i in mine if not any(s.overshoot)]
    totals = told["request"]["totals"]
    assert totals["verify_steps"] == len(kept)
    for total in ("drafted_depth", "drafted_nodes", "accepted", "bonus", "committed"):
        assert totals[total] == sum(getattr(s, total)[i] for s, i in kept), total
    assert [step["accepted"] for step in told["steps"]] == [s.accepted[i] for s, i in mine]
    assert [step["draft_tokens"] for step in told["steps"]] == [
        list((s.draft_tokens or ())[i]) for s, i in mine
    ]
    assert told["extends"]
    assert told["boundaries"]


def test_engine_counts_what_user_requests_did(live: Live) -> None:
    [engine] = live.get("/api/v1/engines", window_s=86_400)["items"]
    health = traffic.uid("health")
    rows = [(s, i) for s in STEPS if not any(s.overshoot) for i, u in enumerate(s.uids) if u != health]
    assert engine["verify_steps"] == len(rows)
    assert engine["counts"]["accepted"] == sum(s.accepted[i] for s, i in rows)
    assert engine["speculation"] is True
    assert engine["ledger"]
    detail = live.get(f"/api/v1/engines/{engine['engine_uid']}")
    assert detail["config"] == traffic.CONFIG

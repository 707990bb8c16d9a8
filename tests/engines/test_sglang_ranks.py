"""Several ranks, replicas and instances, and the caller's trace, on real engines and a real server.

Three engines of one model tell one server at the same time: ``tp`` has two tensor-parallel ranks, ``dp`` two
data-parallel replicas, ``traced`` makes spans of its own. Tensor and data parallelism run over gloo.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from serverkit.live import Live, serving
from sglang_engine import CHAIN, Server, speculation
from specscope import convention as c
from specscope_server.diagnosis import diagnose
from specscope_server.diagnosis.model import Evidence, RankEvidence
from specscope_server.store.model import EngineRow, RequestDetail, RequestRow
from specscope_server.store.model import RequestFilter as Where
from tiny_prompts import references

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]

TWO_CORES = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
HEADER = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
TESTED = (0, 1, 6, 7, 12, 13)
"""References, two of each domain."""

PLANTED = '''
"""An SGLang plugin of the tests: one rank drafts another token in one engine step.

That rank really drafts it: its target embeds it, its verify judges it, its KV cache keeps it.
"""

import itertools
import os
import pathlib


def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    calls = itertools.count(1)

    def other(original, worker, batch, *args, **kwargs):
        from sglang.srt.runtime_context import get_parallel

        made = original(worker, batch, *args, **kwargs)
        if get_parallel().tp_rank == 1 and next(calls) == int(os.environ["PLANTED_CALL"]):
            made.draft_token[1] = (made.draft_token[1] + 1) % 100
            pathlib.Path(os.environ["PLANTED_FILE"]).write_text(str(batch.forward_iter))
        return made

    HookRegistry.register(
        "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker.draft", other, HookType.AROUND
    )
'''


def environment(live: Live, name: str, **more: str) -> dict[str, str]:
    return {
        "SPECSCOPE_ENDPOINT": live.url,
        "SPECSCOPE_NAME": name,
        "SPECSCOPE_DETAIL": "tokens",
    } | more


def engine_of(live: Live, name: str) -> EngineRow:
    (one,) = engines_of(live, name)
    return one


def engines_of(live: Live, name: str) -> list[EngineRow]:
    """One engine, or none before the server has heard of it."""
    return [e for e in live.store.engines("default", since()) if e.name == name]


def since() -> datetime:
    return datetime.now(UTC) - timedelta(hours=1)


def evidence(live: Live, name: str) -> Evidence:
    found = live.store.evidence("default", engine_of(live, name).engine_uid, datetime.now(UTC), 3600)
    assert found is not None
    return found


def ranks(live: Live, name: str) -> RankEvidence:
    (one,) = evidence(live, name).ranks
    return one


def requests(live: Live, name: str) -> list[RequestRow]:
    where = Where(engine_uid=engine_of(live, name).engine_uid, kind=c.KIND_USER)
    return list(live.store.requests(where, 100).items)


def request(live: Live, name: str, rid: str) -> RequestDetail:
    (row,) = (r for r in requests(live, name) if r.rid == rid)
    found = live.store.request("default", row.uid)
    assert found is not None
    return found


def wait(what: str, done: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"it never came: {what}"
        time.sleep(0.5)


def ask(server: Server) -> dict[int, Any]:
    """The tested references, by number, one after the other, each under the caller's trace."""
    answers: dict[int, Any] = {}
    for number in TESTED:
        body = {
            "rid": f"my_own_rid-{number}",
            "input_ids": references()[number].prompt,
            "sampling_params": {"temperature": 0, "max_new_tokens": 48, "ignore_eos": True},
        }
        answers[number] = server.post("/generate", body, more=HEADER)
    return answers


def settled(live: Live, name: str) -> None:
    """Wait until the tested requests have ended, and for what comes each second after that."""
    wait(
        f"the end of what {name} was asked",
        lambda: (
            bool(engines_of(live, name))
            and sum(r.state == c.STATE_FINISHED for r in requests(live, name)) >= len(TESTED)
        ),
    )
    ended = datetime.now(UTC)
    wait(
        f"two heartbeats of {name}",
        lambda: all(p.last_event > ended + timedelta(seconds=2) for p in engine_of(live, name).processes),
    )


@dataclass(frozen=True)
class World:
    """A server and what three engines answered."""

    live: Live
    answers: dict[str, dict[int, Any]]
    lines: dict[str, list[str]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    answers: dict[str, dict[int, Any]] = {}
    lines: dict[str, list[str]] = {}
    with serving(f"sqlite:///{tmp_path_factory.mktemp('server') / 'store.db'}", grpc=True) as live:
        # SGLang's own exporter speaks gRPC unless told otherwise.
        own_spans = ["--enable-trace", "--otlp-traces-endpoint", live.settings.grpc_address]
        engines: dict[str, tuple[list[str], dict[str, str]]] = {
            "tp": (["--tp", "2"], TWO_CORES),
            "dp": (["--dp-size", "2"], TWO_CORES),
            "traced": (own_spans, {}),
        }
        # Two of them run at the same time, which is what telling them apart takes.
        first = Server(
            tmp_path_factory.mktemp("traced"),
            speculation(CHAIN) + engines["traced"][0],
            environment(live, "traced", **engines["traced"][1]),
        )
        with first:
            for name in ("tp", "dp"):
                arguments, more = engines[name]
                folder = tmp_path_factory.mktemp(name)
                with Server(
                    folder, speculation(CHAIN) + arguments, environment(live, name, **more)
                ) as server:
                    if name == "tp":
                        with ThreadPoolExecutor(2) as pool:
                            both = {"tp": pool.submit(ask, server), "traced": pool.submit(ask, first)}
                            answers |= {one: asked.result() for one, asked in both.items()}
                        settled(live, "traced")
                    else:
                        answers[name] = ask(server)
                    settled(live, name)
                    lines[name] = server.ours()
            lines["traced"] = first.ours()
        yield World(live, answers, lines)


@pytest.mark.parametrize("name", ["tp", "dp", "traced"])
def test_tokens_are_those_of_one_rank(world: World, name: str) -> None:
    for number, answer in world.answers[name].items():
        assert answer["output_ids"] == references()[number].continuation, number


def test_both_ranks_are_heard_and_agree_on_every_step(world: World) -> None:
    processes = engine_of(world.live, "tp").processes
    assert sorted((p.tp, p.dp, p.pp, p.serving_role) for p in processes) == [
        (0, 0, 0, "both"),
        (1, 0, 0, "both"),
    ]
    told = ranks(world.live, "tp")
    # The requests' own steps, and those of the warm-up.
    steps = sum(r.totals.verify_steps for r in requests(world.live, "tp"))
    assert steps == sum(len(references()[number].accepted) for number in TESTED)
    assert told.heard == (0, 1) and told.size == 2
    assert told.compared == told.proposals_compared >= steps
    assert (told.proposals_differ, told.accepts_differ, told.alone) == (0, 0, 0)
    said = diagnose(evidence(world.live, "tp"))
    assert "rank_divergence" not in {*said.unknown, *(f.kind for f in said.findings)}


def test_one_rank_tells_of_requests(world: World) -> None:
    (teller,) = {p.process_uid for p in engine_of(world.live, "tp").processes if p.tp == 0}
    assert len(requests(world.live, "tp")) == len(TESTED)
    assert {p.requests.get(c.KIND_USER) for p in engine_of(world.live, "tp").processes} == {len(TESTED)}
    assert teller


def test_the_engine_page_says_what_the_ranks_came_to(world: World) -> None:
    page = world.live.client.get(f"/engines/{engine_of(world.live, 'tp').engine_uid}").text
    (said,) = re.findall(r"Ranks: ([^<]*)\.</p>", page)
    assert said == f"2 of 2 ranks heard, {ranks(world.live, 'tp').compared:,} steps compared, 0 differ"
    alone = world.live.client.get(f"/engines/{engine_of(world.live, 'traced').engine_uid}").text
    assert "Ranks: " not in alone


def test_replicas_are_attributes_of_one_instance(world: World) -> None:
    engine = engine_of(world.live, "dp")
    assert sorted((p.tp, p.dp, p.pp) for p in engine.processes) == [(0, 0, 0), (0, 1, 0)]
    # Each replica is a rank alone: it has nobody to agree with.
    assert evidence(world.live, "dp").ranks == ()
    served = [p.requests.get(c.KIND_USER, 0) for p in engine.processes]
    assert sum(served) == len(TESTED) == engine.requests[c.KIND_USER]
    assert min(served) > 0
    assert len({r.uid for r in requests(world.live, "dp")}) == len(TESTED)


def test_instances_of_one_model_are_told_apart(world: World) -> None:
    engines = [engine_of(world.live, name) for name in ("tp", "dp", "traced")]
    assert len({e.model for e in engines}) == 1
    assert len({e.instance for e in engines}) == len({e.engine_uid for e in engines}) == 3
    # Two engines ran at the same time and were asked under the same request ids.
    overlap = [engines[0].processes[0], engines[2].processes[0]]
    assert max(p.started for p in overlap) < min(p.last_event for p in overlap)
    for one in engines:
        rows = requests(world.live, one.name)
        assert {r.rid for r in rows} == {f"my_own_rid-{number}" for number in TESTED}
        assert {r.engine for r in rows} == {one.name}
        assert one.requests[c.KIND_USER] == len(TESTED)
    uids = [r.uid for name in ("tp", "dp", "traced") for r in requests(world.live, name)]
    assert len(set(uids)) == 3 * len(TESTED)


@pytest.mark.parametrize("name", ["tp", "dp"])
def test_the_callers_trace_is_kept_without_the_engine_tracing(world: World, name: str) -> None:
    for number in TESTED:
        row = request(world.live, name, f"my_own_rid-{number}").request
        assert (row.trace_id, row.parent_span_id) == (TRACE, CALLER)


def test_the_engines_own_spans_are_in_the_same_trace(world: World) -> None:
    details = [request(world.live, "traced", f"my_own_rid-{number}") for number in TESTED]
    for detail in details:
        row = detail.request
        by_id = {span.span_id: span for span in detail.spans}
        assert row.trace_id == TRACE
        # Ours hangs below the engine's span of this request, and that one below the caller's.
        root = by_id[row.parent_span_id]
        assert root.parent_id == CALLER
        assert root.service == "sglang"
        # SGLang tells the part of the rid behind its last underscore.
        assert root.attributes["rid"] == row.rid.rpartition("_")[2]
        below = [span for span in detail.spans if span.parent_id == root.span_id]
        assert any(span.name.startswith("Scheduler") for span in below)
    assert len({detail.request.parent_span_id for detail in details}) == len(TESTED)


def test_the_request_page_shows_the_trace(world: World) -> None:
    row = request(world.live, "traced", "my_own_rid-0").request
    page = world.live.client.get(f"/requests/{row.uid}").text
    _, _, table = page.partition('<table class="trace">')
    names = re.findall(r'<td class="depth-(\d+)( ours)?"[^>]*>\s*([^<]*?)\s*</td>', table)
    depths = {name: int(depth) for depth, _, name in names}
    assert depths[c.SPAN_REQUEST] == 1
    assert depths["Req 0" if "Req 0" in depths else next(n for n in depths if n.startswith("Req"))] == 0
    assert any(name.startswith("Scheduler") and depth == 1 for name, depth in depths.items())
    assert any(name == "decode_forward" and depth == 2 for name, depth in depths.items())
    assert f"span <code>{CALLER}</code> of the caller, was not received" in page


def test_a_rank_that_drafts_something_else_is_found_at_its_step(tmp_path: Path) -> None:
    info = tmp_path / "planted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nplanted = planted:register\n")
    (tmp_path / "planted.py").write_text(PLANTED)
    where = tmp_path / "step"
    planted = {"PYTHONPATH": str(tmp_path), "PLANTED_CALL": "25", "PLANTED_FILE": str(where)}
    with (
        serving(f"sqlite:///{tmp_path / 'store.db'}") as live,
        Server(
            tmp_path, [*speculation(CHAIN), "--tp", "2"], environment(live, "apart", **TWO_CORES, **planted)
        ) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        # Ranks that part may wait for each other for ever: nobody here waits for the answers.
        asked = pool.submit(ask, server)
        wait("the planted draft", lambda: where.exists() and where.read_text() != "")
        step = int(where.read_text())
        wait(
            "its difference",
            lambda: (
                bool(engines_of(live, "apart"))
                and any(one.first_step is not None for one in evidence(live, "apart").ranks)
            ),
        )
        told = ranks(live, "apart")
        assert (told.first_step, told.boundary, told.apart) == (step, c.DRAFT_PROPOSE, (0, 1))
        assert told.steps is not None and told.steps[0] < step
        said = diagnose(evidence(live, "apart"))
        (found,) = (f for f in said.findings if f.kind == "rank_divergence")
        assert (found.fault_class, found.confidence, found.boundary) == ("F19", "certain", c.DRAFT_PROPOSE)
        assert f"At engine step {step} the ranks 0 and 1 proposed different drafts" in found.sentence
        page = live.client.get(f"/engines/{engine_of(live, 'apart').engine_uid}").text
        assert f"from step {step:,} on" in page
        server.__exit__()
        asked.exception()

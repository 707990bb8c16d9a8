"""A fleet for the pages: facts as the receiver writes them, made deterministically, kept by the real store.

Each engine takes one request after another until now, step by step; every number a page shows comes from
these steps through the same rollups, chunks and ledgers that a tracer sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from specscope import chunks, identity
from specscope import convention as c
from specscope.contracts import PREFILL, VERIFY, Contract, Shape, contract
from specscope.records import Crossing, Expectation
from specscope.rollup import Rollup, StepFacts
from specscope_server.store.port import Store
from specscope_server.store.told import (
    Batch,
    BoundaryTotal,
    Chunk,
    EngineReport,
    Heartbeat,
    ProcessFacts,
    RequestReport,
    RequestTotals,
    RollupIncrement,
)

S = 1_000_000_000
WIDTH = 128
HEARTBEAT_EVERY_S = 30
SLOT_S = 35
"""Seconds within which a new request surely starts: the longest takes 28, the pause after it 3."""


@dataclass
class Engine:
    """What an engine of the fleet is and what befalls it."""

    name: str
    instance: str
    workspace: str = "default"
    environment: str = "production"
    model: str = "tiny-target"
    depth: int = 4
    nodes: int = 4
    accept: tuple[float, ...] = (0.71, 0.76, 0.8, 0.74)
    """Chance that a position is accepted given the one before was."""
    started_s: int = 2400
    """Seconds before now that it started."""
    heard_s: int = 0
    """Seconds before now that it was last heard."""
    quiet: tuple[tuple[int, int], ...] = ()
    """Spans, in seconds before now, without a request."""
    kind: str = c.KIND_USER
    requests: bool = True
    bypassed: bool = False
    """fc is bypassed because no aux hidden states are captured."""
    blind: Mapping[str, str] = field(default_factory=dict[str, str])
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])
    hook_errors: Mapping[str, int] = field(default_factory=dict[str, int])
    speculation: bool = True
    detail: str = c.DETAIL_STEPS
    rids: tuple[str, ...] = ()
    """rids of its newest requests, newest last."""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More of its configuration than every engine has."""
    events: tuple[tuple[int, str, Mapping[str, Any]], ...] = ()
    """What it told after its start: seconds before now, event, more of its configuration."""
    passes: Mapping[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    """Timed passes by ``kind|slice of the batch``: how many, and their mean time in ms."""
    long_steps: int = 0
    """Verify steps of its newest finished request, 0: as the others."""


@dataclass
class _Run:
    engine: Engine
    process: str
    contract: Contract
    expected: Counter[Expectation] = field(default_factory=Counter[Expectation])
    observed: Counter[Crossing] = field(default_factory=Counter[Crossing])
    requests: Counter[str] = field(default_factory=Counter[str])
    rollup: Rollup = field(default_factory=Rollup)
    reports: list[RequestReport] = field(default_factory=list[RequestReport])
    chunks: list[Chunk] = field(default_factory=list[Chunk])
    beats: list[Heartbeat] = field(default_factory=list[Heartbeat])
    named: int = 0


def request_uid(engine: Engine, rid: str, ordinal: int) -> str:
    """Return the uid that a request of the fleet has."""
    return identity.request_uid(engine.instance, 0, rid, ordinal)


@dataclass(frozen=True)
class Told:
    """What an engine has told so far: who it is and its last heartbeat."""

    process: ProcessFacts
    last: Heartbeat

    def pulse(self, store: Store, now: datetime) -> None:
        """Send its state once more, as a tracer does while its engine is idle."""
        beat = replace(self.last, event_ns=int(now.timestamp() * S))
        store.write([Batch(self.process, heartbeats=(beat,))], now)


def write(store: Store, engine: Engine, now: datetime, seed: int = 1) -> Told:
    """Write one engine's whole story until ``now`` into the store."""
    now_ns = int(now.timestamp()) * S
    start_ns = now_ns - engine.started_s * S
    process = ProcessFacts(
        workspace=engine.workspace,
        environment=engine.environment,
        instance=engine.instance,
        process_uid=identity.process_uid(engine.instance, "scheduler", identity.Ranks(), 4242, start_ns),
        role="scheduler",
        pid=4242,
        start_ns=start_ns,
        tp=0,
        dp=0,
        pp=0,
        serving_role="both",
        service_name=engine.name,
        engine_name="sglang",
        engine_version="0.5.23",
        tracer_version="0.1.0",
        detail=engine.detail,
    )
    agreed = contract("EAGLE3", Shape(engine.depth, fc=True, map=True))
    run = _Run(engine, process.process_uid, agreed)
    _live(run, Random(seed), start_ns, now_ns - engine.heard_s * S)
    batch = Batch(
        process,
        engines=tuple(_reports(engine, start_ns, now_ns)),
        requests=tuple(run.reports),
        chunks=tuple(run.chunks),
        rollups=_increments(run.rollup),
        heartbeats=tuple(run.beats),
    )
    store.write([batch], now - timedelta(seconds=engine.heard_s))
    return Told(process, run.beats[-1])


def _increments(rollup: Rollup) -> tuple[RollupIncrement, ...]:
    return tuple(RollupIncrement(i, bucket, rows) for i, (bucket, rows) in enumerate(rollup.take()))


def _live(run: _Run, random: Random, start_ns: int, end_ns: int) -> None:
    engine = run.engine
    at, beat, number = start_ns + 20 * S, start_ns + 5 * S, 0
    while at < end_ns:
        before_now = (end_ns - at) // S
        while beat < at:
            run.beats.append(_beat(run, beat))
            beat += HEARTBEAT_EVERY_S * S
        paused = any(first >= before_now >= last for first, last in engine.quiet)
        if not engine.requests or paused:
            at += 10 * S
            continue
        number += 1
        at = _request(run, random, number, at, end_ns) + random.randrange(1, 4) * S
    run.beats.append(_beat(run, end_ns))


def _beat(run: _Run, at: int) -> Heartbeat:
    engine = run.engine
    totals = [BoundaryTotal(b, s, "", n, None) for (b, s), n in sorted(run.expected.items())]
    totals += [BoundaryTotal(b, s, m, None, n) for (b, s, m), n in sorted(run.observed.items())]
    return Heartbeat(
        at,
        tuple(totals),
        {b: (b not in engine.blind, engine.blind.get(b, "")) for b in c.BOUNDARIES},
        requests=dict(run.requests),
        dropped=engine.dropped,
        hook_errors=engine.hook_errors,
        queued=3,
        export_failures=0,
        engine_thread_ns=1_200_000,
        speculation=engine.speculation,
        passes={name: count for name, (count, _) in engine.passes.items()},
        pass_ns={name: round(count * ms * 1e6) for name, (count, ms) in engine.passes.items()},
    )


def _cross(run: _Run, kind: str, expected: Counter[Expectation], observed: Counter[Crossing]) -> None:
    """Count one pass, in the process' ledger and in the request's own."""
    for key, count in run.contract.of(kind).items():
        lost = run.engine.bypassed and key[0] in (c.AUX_CAPTURE, c.DRAFT_FC)
        for ledger in (run.expected, expected):
            ledger[key] += count
        if not lost and key[0] not in run.engine.blind:
            for seen in (run.observed, observed):
                seen[*key, c.EAGER] += count


def _extend(run: _Run, random: Random, step: int, at: int, after: str, rows: int) -> chunks.ExtendRow:
    bypassed = run.engine.bypassed
    return chunks.ExtendRow(
        step=step,
        t=at,
        after=after,
        mode=c.EAGER,
        fed_width=WIDTH if bypassed else 3 * WIDTH,
        dtype="float32",
        aux_states=0 if bypassed else 3,
        fc_in=3 * WIDTH,
        fc_ran=0 if bypassed else 1,
        rows=rows,
        mean=random.gauss(0.5, 0.02),
        std=random.gauss(1.6 if bypassed else 23.5, 0.4),
        rms=random.gauss(1.7 if bypassed else 23.6, 0.4),
        max_abs=abs(random.gauss(8 if bypassed else 120, 6)),
        nonfinite=0,
        zero_rows=0,
    )


def _step(
    run: _Run, random: Random, step: int, at: int, context: int, harder: float
) -> tuple[chunks.StepRow, int]:
    engine = run.engine
    accepted = 0
    chances = (0.05, 0.1, 0.1, 0.1) if engine.bypassed else engine.accept
    while accepted < engine.depth and random.random() < chances[min(accepted, len(chances) - 1)] * harder:
        accepted += 1
    row = chunks.StepRow(
        step=step,
        t=at,
        mode=c.EAGER,
        batch_size=1,
        row=0,
        context=context,
        drafted_depth=engine.depth,
        drafted_nodes=engine.nodes,
        accepted=accepted,
        bonus=1,
        committed=accepted + 1,
        overshoot=0,
        weight_version=0,
        ids_min=random.randrange(3, 90),
        ids_max=random.randrange(200, 511),
        ids_distinct=random.randrange(2, engine.depth + 1),
        ids_mode_share=1 / engine.depth,
        ids_even_share=random.randrange(engine.depth + 1) / engine.depth,
        ids_below_zero=0,
        ids_above_vocab=0,
        ids_repeats_last=0,
        **_sure(engine.depth, accepted, step),
    )
    run.rollup.add(
        at,
        StepFacts(engine.depth, engine.nodes, accepted, 1, accepted + 1, context, 0, 1, c.EAGER, 0, 0.0),
    )
    return row, accepted


def _sure(depth: int, accepted: int, step: int) -> dict[str, Any]:
    """Confidence as a draft has it that knows what it knows: surer of what is accepted."""
    if step % 2:
        return {}
    sure = [9000 - 400 * (step % 7) if at < accepted else 2500 + 300 * (step % 5) for at in range(depth)]
    found: dict[str, Any] = {"draft_top1": sure, "draft_entropy": [(10_000 - one) // 2 for one in sure]}
    if accepted < depth:
        found |= {"target_rank": 1 + step % 6, "target_prob": 0.01 * (1 + step % 9)}
        found |= {"draft_prob": 0.02 * (1 + step % 8), "outside_draft_vocab": int(step % 10 == 0)}
    return found


def _request(run: _Run, random: Random, number: int, at: int, end_ns: int) -> int:
    """Run one request and return when it ended."""
    engine = run.engine
    to_come = (end_ns - at) // (SLOT_S * S)
    named = to_come < len(engine.rids) - run.named
    rid = engine.rids[run.named] if named else f"chat-{number:05d}"
    run.named += named
    uid = request_uid(engine, rid, number)
    run.requests[engine.kind] += 1
    expected: Counter[Expectation] = Counter()
    observed: Counter[Crossing] = Counter()
    prompt = random.randrange(20, 400)
    _cross(run, PREFILL, expected, observed)
    wanted = 0 if engine.kind == c.KIND_HEALTH_CHECK else random.randrange(30, 75)
    pause = 360_000_000
    if engine.long_steps and to_come < 1:
        wanted, pause = engine.long_steps, max(1, (end_ns - at - S) // (engine.long_steps + 1))
    steps: list[chunks.StepRow] = []
    extends = [_extend(run, random, number * 1000, at, "prefill", prompt)]
    harder = random.uniform(0.75, 1.0)
    totals = Counter[str]()
    t = at + 40_000_000
    for i in range(wanted):
        t += pause
        if t >= end_ns:
            break
        _cross(run, VERIFY, expected, observed)
        step, accepted = _step(run, random, number * 1000 + 1 + i, t, prompt + i + totals["accepted"], harder)
        steps.append(step)
        extends.append(_extend(run, random, number * 1000 + 1 + i, t, "verify", accepted + 1))
        totals["accepted"] += accepted
        totals["zero"] += accepted == 0
    n = len(steps)
    ended = n == wanted
    state = c.STATE_FINISHED if ended else c.STATE_RUNNING
    run.reports.append(
        RequestReport(
            uid=uid,
            rid=f"HEALTH_CHECK_{number}" if engine.kind == c.KIND_HEALTH_CHECK else rid,
            trace_id=f"{identity.trace_id(uid):032x}",
            state=state,
            kind=engine.kind,
            model=engine.model,
            arrival_ns=at,
            end_ns=t if ended else None,
            prompt_tokens=prompt,
            output_tokens=n + totals["accepted"] + 1,
            cached_tokens=0,
            temperature=0.0,
            max_tokens=256,
            finish_reason="stop" if ended else None,
            queue_s=0.0021,
            first_token_s=0.184,
            totals=RequestTotals(
                n, n * engine.depth, n * engine.nodes, totals["accepted"], n, n + totals["accepted"],
                totals["zero"], 0, 1,
            ),
            boundaries=chunks.pack_boundaries(expected, observed),
        )
    )  # fmt: skip
    if engine.detail != c.DETAIL_SUMMARY:
        for seq, first in enumerate(range(0, max(n, 1), chunks.MAX_STEPS)):
            part = steps[first : first + chunks.MAX_STEPS]
            fed = extends[first : first + chunks.MAX_STEPS]
            if part or fed:
                packed = chunks.pack_steps(part, tokens=False), chunks.pack_extends(fed)
                run.chunks.append(Chunk(uid, seq, first, fed[0].t, fed[-1].t, *packed))
    return t


def _reports(engine: Engine, start_ns: int, now_ns: int) -> Iterator[EngineReport]:
    told = [(start_ns + S, c.EVENT_START, engine.config)]
    told += [(now_ns - ago * S, event, more) for ago, event, more in engine.events]
    for at, event, more in told:
        yield EngineReport(at, event, engine.model, engine.speculation, {**_config(engine), **more})


def _config(engine: Engine) -> dict[str, Any]:
    eagle: dict[str, Any] = {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}
    if engine.bypassed:
        eagle["use_aux_hidden_state"] = False
    return {
        "versions": {"sglang": "0.5.23", "torch": "2.13.0", "specscope": "0.1.0"},
        "arguments": {
            "model_path": "models/tiny/target",
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": "models/tiny/draft",
            "speculative_num_steps": engine.depth,
            "speculative_eagle_topk": 1 if engine.nodes == engine.depth else 4,
            "speculative_num_draft_tokens": engine.nodes + 1,
            "context_length": 1024,
            "mem_fraction_static": 0.3,
        },
        "target": {"architecture": "LlamaForCausalLM", "hidden_size": WIDTH, "layers": 8, "vocab_size": 512},
        "draft": {
            "architecture": "LlamaForCausalLMEagle3",
            "hidden_size": WIDTH,
            "draft_vocab_size": 320,
            "eagle_config": eagle,
        },
        "speculative": {"algorithm": "EAGLE3", "num_steps": engine.depth},
        "capture": {
            "layer_ids": [] if engine.bypassed else [2, 4, 5],
            "aux_states": 0 if engine.bypassed else 3,
        },
        "fc": {"in": 3 * WIDTH, "out": WIDTH},
        "d2t": {"present": True, "draft_vocab_size": 320},
        "vocab_size": 512,
    }


HOSTILE = (
    '"><img src=x onerror=alert(1)>',
    "<script>alert('rid')</script>",
    "{{ 7*7 }}{% raw %}",
    "../../../etc/passwd?q=1#x",
    "‮moc.live‬ \u0000 \u200b zero width",
    "%3Cscript%3Ealert(1)%3C/script%3E&amp;<b>bold</b>",
    "r" * 300,
)
"""rids that try to be more than text."""
HOSTILE_NAME = "hostile <b>&amp;<script>alert(2)</script>" + "n" * 90


def fleet() -> list[Engine]:
    """Return engines in every state that a page must tell apart."""
    return [
        Engine("chat-healthy", "i-healthy", quiet=((1500, 1100),), rids=("find-me-42",)),
        Engine("chat-canary", "i-canary", bypassed=True, started_s=900, rids=("broken-7",)),
        Engine(
            "code-tree",
            "i-tree",
            started_s=1500,
            model="tiny-target-tree",
            nodes=12,
            accept=(0.88, 0.87, 0.7, 0.68),
            dropped={"queue full": 41},
            hook_errors={"draft.extend": 2},
            blind={c.DRAFT_FORWARD: "calls inside a captured graph cannot be seen"},
        ),
        Engine("night-batch", "i-idle", requests=False, started_s=2400),
        Engine("standby", "i-checks", kind=c.KIND_HEALTH_CHECK, started_s=600),
        Engine("retired", "i-silent", started_s=1500, heard_s=420),
        Engine("plain", "i-off", speculation=False, requests=False),
        Engine(
            "eu-blind",
            "i-blind",
            environment="staging",
            requests=True,
            started_s=600,
            blind=dict.fromkeys(c.BOUNDARIES, "no such symbol in sglang 0.6.0: EagleDraftWorker.draft"),
        ),
        Engine("elsewhere", "i-elsewhere", workspace="research", started_s=300, rids=("research-1",)),
        Engine("summary-only", "i-summary", detail=c.DETAIL_SUMMARY, started_s=700, rids=("summary-1",)),
        Engine("long-stories", "i-long", started_s=700, long_steps=3000, rids=("three-thousand",)),
        Engine(HOSTILE_NAME, "i-hostile", model="<i>m</i>" + "m" * 200, started_s=400, rids=HOSTILE),
    ]  # fmt: skip

"""Facts to write, with as few words as a test needs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from specscope import columns, hidden
from specscope.chunks import ExtendRow, StepRow, pack_extends, pack_ranks, pack_steps
from specscope.hidden import HiddenRow
from specscope.hidden_rollup import Key as Place
from specscope.hidden_rollup import Sums
from specscope.rollup import ALL, STEP, Counts, Key
from specscope_server.store.told import (
    Batch,
    BoundaryTotal,
    Chunk,
    EngineReport,
    ForeignSpan,
    Heartbeat,
    LogRecord,
    ProcessFacts,
    PromptText,
    RankReport,
    RequestReport,
    RequestTotals,
    RollupIncrement,
)
from specscope_server.store.values import engine_uid, to_ns

NOW = datetime(2026, 3, 1, 12, 0, 3, tzinfo=UTC)
NOW_NS = to_ns(NOW)
SECOND = 1_000_000_000
SIDES = ("proposals", "accepts")

PROCESS = ProcessFacts(
    workspace="default",
    environment="test",
    instance="launch",
    process_uid="p0",
    role="scheduler",
    pid=100,
    start_ns=NOW_NS - 3600 * SECOND,
    tp=0,
    dp=0,
    pp=0,
    serving_role="both",
    service_name="",
    engine_name="sglang",
    engine_version="0.5.23",
    tracer_version="0.1.0",
    detail="steps",
)
ENGINE = engine_uid("default", "test", "launch")
REPORT = EngineReport(NOW_NS - 3599 * SECOND, "start", "tiny", True, {"draft": {"layers": 1}})


def ago(seconds: float) -> datetime:
    """Return a time before :data:`NOW`."""
    return NOW - timedelta(seconds=seconds)


def ago_ns(seconds: float) -> int:
    """Return a time before :data:`NOW`, in ns since 1970."""
    return NOW_NS - round(seconds * SECOND)


def request(uid: str = "u0", **changes: Any) -> RequestReport:
    """Return a finished request with three verify steps, one draft of nine accepted."""
    base = RequestReport(
        uid=uid,
        rid=f"rid-{uid}",
        trace_id=f"trace-{uid}",
        state="finished",
        kind="user",
        model="tiny",
        arrival_ns=ago_ns(20),
        end_ns=ago_ns(18),
        prompt_tokens=10,
        output_tokens=4,
        cached_tokens=0,
        temperature=0.0,
        max_tokens=16,
        finish_reason="length",
        queue_s=0.25,
        first_token_s=0.5,
        totals=RequestTotals(
            verify_steps=3,
            drafted_depth=9,
            drafted_nodes=9,
            accepted=1,
            bonus=3,
            committed=4,
            zero_accept_steps=2,
            prefill_passes=1,
        ),
    )
    return replace(base, **changes)


def step(number: int, **changes: Any) -> StepRow:
    """Return a verify step of depth 3, one draft accepted."""
    base = StepRow(
        step=number,
        t=ago_ns(20) + number,
        mode="eager",
        batch_size=1,
        row=0,
        context=10 + number,
        drafted_depth=3,
        drafted_nodes=3,
        accepted=1,
        bonus=1,
        committed=2,
        overshoot=0,
        weight_version=0,
    )
    return replace(base, **changes)


def extend(number: int, **changes: Any) -> ExtendRow:
    """Return a draft extend after verify, whose fc ran."""
    base = ExtendRow(
        step=number,
        t=ago_ns(20) + number,
        after="verify",
        mode="eager",
        fed_width=96,
        dtype="bfloat16",
        aux_states=3,
        fc_in=96,
        fc_ran=1,
    )
    return replace(base, **changes)


def chunk(
    uid: str = "u0",
    seq: int = 0,
    steps: Sequence[StepRow] = (),
    extends: Sequence[ExtendRow] = (),
    looks: Sequence[HiddenRow] = (),
    **changes: Any,
) -> Chunk:
    """Return a chunk; its steps follow those of 64-step chunks before it unless told otherwise."""
    base = Chunk(
        uid=uid,
        seq=seq,
        first_step=64 * seq,
        start_ns=ago_ns(20),
        end_ns=ago_ns(18),
        steps=pack_steps(steps, tokens=True) if steps else b"",
        extends=pack_extends(extends) if extends else b"",
        hidden=hidden.pack(looks) if looks else b"",
    )
    return replace(base, **changes)


def look(number: int, **changes: Any) -> HiddenRow:
    """Return what slot 0 of the draft's input held after a verify step: one row of rms 4."""
    base = HiddenRow(
        step=number,
        after="verify",
        mode="eager",
        place=hidden.FED,
        source="target_fed",
        draft_step=0,
        slot=0,
        position=10 + number,
        rows=1,
        mean=0.0,
        std=4.0,
        max_abs=9.0,
        nonfinite=0,
        zero_rows=0,
        equal_rows=0,
        levels=[512],
        fingerprints=[16, -16, 16, -16, 16, -16, 16, -16],
    )
    return replace(base, **changes)


def prompt(uid: str = "u0", ids: Sequence[int] = range(5, 15)) -> PromptText:
    """Return a prompt of ten tokens."""
    found = np.array(ids, dtype="<i4")
    return PromptText(
        uid, len(ids), hashlib.sha256(found.tobytes()).hexdigest(), columns.encode({"id": list(ids)})
    )


def place(name: str = hidden.FED, *, source: str = "target_fed", draft_step: int = 0, slot: int = 0) -> Place:
    """Return where looks were taken after a verify step."""
    return name, source, draft_step, slot, "verify", "eager"


PLACE = place()


def looks(count: int = 10, rms: float = 4.0, **changes: Any) -> Sums:
    """Return sums over looks of two rows each, all of one size."""
    level = math.log2(rms)
    base = Sums(
        looks=count,
        rows=2 * count,
        levelled=count,
        sum_square=2 * count * rms**2,
        max_abs=3 * rms,
        sum_level=count * level,
        sum_level2=count * level**2,
    )
    return replace(base, **changes)


def increment(seq: int, bucket_ago: int = 20, **counts: int) -> RollupIncrement:
    """Return a rollup of ``counts`` (default: 3 steps, 1 of 9 drafts accepted) with its first position."""
    told = Counts(**(counts or {"steps": 3, "drafted_depth": 9, "accepted": 1, "bonus": 3, "zero_steps": 2}))
    rows: dict[Key, Counts] = {
        (ALL, "", STEP): told,
        (ALL, "", 0): Counts(steps=told.steps, accepted=told.accepted),
        ("context", "8-15", STEP): told,
    }
    return RollupIncrement(seq, NOW_NS // SECOND // 10 * 10 - bucket_ago, rows)


def hidden_increment(
    seq: int, told: Mapping[Place, Sums] | None = None, bucket_ago: int = 20
) -> RollupIncrement:
    """Return a rollup of hidden states alone (default: ten looks at one place)."""
    bucket = NOW_NS // SECOND // 10 * 10 - bucket_ago
    return RollupIncrement(seq, bucket, {}, {PLACE: looks()} if told is None else told)


def crossings(boundary: str, source: str, expected: int, **observed: int) -> tuple[BoundaryTotal, ...]:
    """Return ledger totals: what was expected and, by mode, observed."""
    told = [BoundaryTotal(boundary, source, mode, None, count) for mode, count in observed.items()]
    return (BoundaryTotal(boundary, source, "", expected, None), *told)


def heartbeat(seconds_ago: float = 1, **changes: Any) -> Heartbeat:
    """Return a heartbeat of a healthy process."""
    base = Heartbeat(event_ns=ago_ns(seconds_ago), armed={"draft.fc": (True, "")}, queued=0, speculation=True)
    return replace(base, **changes)


def rank_steps(
    first: int, count: int = 4, *, size: int = 2, other: Sequence[int] = (), where: str = "accepts"
) -> RankReport:
    """Return ``count`` steps of a rank from ``first`` on, in ``other`` ones of which it leaves the others."""
    steps = range(first, first + count)
    sums = {name: [10 * step + (name == where and step in other) for step in steps] for name in SIDES}
    return RankReport(
        first, first + count - 1, size, ago_ns(5), pack_ranks(steps, sums["proposals"], sums["accepts"])
    )


def span(number: int, trace: str = "trace-u0", **changes: Any) -> ForeignSpan:
    """Return another tool's span of a trace, ``number`` ns after its first one."""
    base = ForeignSpan(
        trace_id=trace,
        span_id=f"{number:016x}",
        parent_id="" if number == 0 else f"{0:016x}",
        name="decode",
        service="sglang",
        scope="sglang",
        start_ns=ago_ns(20) + number,
        end_ns=ago_ns(19) + number,
        failed=False,
        attributes={"rid": "a"},
    )
    return replace(base, **changes)


def log_record(number: int, trace: str = "trace-u0", **changes: Any) -> LogRecord:
    """Return a log record of a trace, ``number`` ns after its first one."""
    base = LogRecord(
        trace_id=trace,
        record_id=f"{number:032x}",
        span_id=f"{0:016x}",
        time_ns=ago_ns(20) + number,
        severity=9,
        service="shop",
        scope="app",
        body="asked",
        attributes={"n": number},
    )
    return replace(base, **changes)


def batch(*facts: Any, process: ProcessFacts = PROCESS, **changes: Any) -> Batch:
    """Return a batch of facts of any kind, told by a process (changed as told)."""

    def of(kind: type[Any]) -> tuple[Any, ...]:
        return tuple(fact for fact in facts if isinstance(fact, kind))

    made = Batch(
        replace(process, **changes),
        engines=of(EngineReport),
        requests=of(RequestReport),
        chunks=of(Chunk),
        rollups=of(RollupIncrement),
        heartbeats=of(Heartbeat),
        ranks=of(RankReport),
        prompts=of(PromptText),
    )
    told = (made.engines, made.requests, made.chunks, made.rollups, made.heartbeats, made.ranks, made.prompts)
    assert sum(map(len, told)) == len(facts), "a fact of an unknown kind"
    return made

"""Exports as the tracer sends them, made by the tracer itself: 64 requests at once, chunks of 64 steps.

Its pipeline turns records into spans and the SDK's encoder those into OTLP, at detail ``steps``, in batches
of half a second as its sender does: chunks, requests every 5 s and at their end, rollups every second. That
takes seconds, so that the exports of some requests are made once, from their start to their end, and then
told again as other requests': nothing of those is stored yet, and their bytes are as many. Looks at hidden
states are left out: a tracer has them in every 32nd step.
"""

from __future__ import annotations

import gzip
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from specscope import chunks, identity
from specscope import convention as c
from specscope import records as r
from specscope.clock import Anchor
from specscope.exporter.pipeline import Pipeline
from specscope.frames import Hello
from specscope.settings import Settings
from wirekit.traffic import CONTRACT, engine, extend, seen

REQUESTS = 64
STEPS = 512
"""Verify steps of each request."""
STEP_NS = 8_000_000
BATCH_NS = 512_000_000
DEPTH = 3
VOCABULARY = 128_256


@dataclass(frozen=True)
class Body:
    """One export: as protobuf, and as sent over HTTP; with its verify steps."""

    plain: bytes
    zipped: bytes
    steps: int


def _pipeline(wall: int, out: Callable[[ReadableSpan], None]) -> Pipeline:
    instance, ranks = "benchmark", identity.Ranks()
    hello = Hello(
        settings=Settings(instance=instance),
        instance=instance,
        process=identity.process_uid(instance, "scheduler", ranks, 1, wall),
        pid=1,
        start_ns=wall,
        role="scheduler",
        ranks=ranks,
        engine_name="sglang",
        engine_version="0.5.23",
        anchor=Anchor(0, wall),
    )
    return Pipeline(hello, out)


def _verify(
    dice: random.Random, step: int, at: int, uids: tuple[str, ...], contexts: list[int]
) -> r.VerifyStep:
    """A chain of three drafts for each request; the ids are facts in the columns at this level, not ids."""
    size = len(uids)
    accepted = tuple(min(dice.randrange(DEPTH + 2), DEPTH) for _ in uids)
    drafts = tuple(tuple(dice.randrange(VOCABULARY) for _ in range(DEPTH)) for _ in uids)
    return r.VerifyStep(
        t_ns=at,
        step=step,
        mode=c.GRAPH,
        batch_size=size,
        uids=uids,
        rows=tuple(range(size)),
        context=tuple(contexts),
        drafted_depth=(DEPTH,) * size,
        drafted_nodes=(DEPTH,) * size,
        accepted=accepted,
        bonus=(1,) * size,
        committed=tuple(count + 1 for count in accepted),
        expected=CONTRACT.verify,
        crossed=seen(mode=c.GRAPH),
        draft_tokens=drafts,
        parents=((-1, 0, 1),) * size,
        accepted_path=tuple(tuple(range(count)) for count in accepted),
        output_ids=tuple(
            (*ids[:count], dice.randrange(VOCABULARY)) for ids, count in zip(drafts, accepted, strict=True)
        ),
    )


def templates(seed: int = 0) -> list[ExportTraceServiceRequest]:
    """The exports of 64 requests, from their start to their end."""
    dice, spans = random.Random(seed), list[ReadableSpan]()
    wall = time.time_ns() // 60_000_000_000 * 60_000_000_000 - 60_000_000_000
    pipeline = _pipeline(wall, spans.append)
    made: list[ExportTraceServiceRequest] = []
    pipeline.take(engine(0), 0)
    names = tuple(f"request-{row}" for row in range(REQUESTS))
    uids = tuple(identity.request_uid("benchmark", 0, name, 0) for name in names)
    contexts = [dice.randrange(20, 4000) for _ in names]
    for name, uid, prompt in zip(names, uids, contexts, strict=True):
        ids = tuple(dice.randrange(VOCABULARY) for _ in range(prompt))
        pipeline.take(r.RequestStarted(0, uid, name, c.KIND_USER, wall, prompt, 0.0, 4096, None, ids), 0)
    cached = (0,) * REQUESTS
    pipeline.take(r.PrefillPass(0, 0, uids, cached, CONTRACT.prefill, seen(dict(CONTRACT.prefill))), 0)
    at = told = 0
    committed = [0] * REQUESTS
    for step in range(1, STEPS + 1):
        at += STEP_NS + dice.randrange(-400_000, 400_000)
        record = _verify(dice, step, at, uids, contexts)
        pipeline.take(record, at)
        contexts = [context + count for context, count in zip(contexts, record.committed, strict=True)]
        committed = [total + count for total, count in zip(committed, record.committed, strict=True)]
        if step == STEPS:
            for uid, tokens in zip(uids, committed, strict=True):
                pipeline.take(r.RequestFinished(at, uid, c.STATE_FINISHED, "stop", tokens, 0.01, 0.2), at)
        else:
            pipeline.take(extend(step, at + 100_000, names, instance="benchmark"), at)
        pipeline.tick(at, last=step == STEPS)
        if at - told >= BATCH_NS or step == STEPS:
            told = at
            made.append(encode_spans(spans))
            spans.clear()
    return made


def _steps_in(message: ExportTraceServiceRequest) -> int:
    return sum(
        len(chunks.unpack_steps(pair.value.bytes_value))
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        for pair in span.attributes
        if pair.key == c.CHUNK_STEPS
    )


def bodies(count: int, engines: int = 4) -> Iterator[Body]:
    """``count`` exports of ``engines`` engines in turn; none tells what another has told."""
    made = templates()
    steps = [_steps_in(message) for message in made]
    for number in range(count):
        cycle, place = divmod(number, len(made))
        message = ExportTraceServiceRequest()
        message.CopyFrom(made[place])
        _tell_as(message, cycle % engines, cycle)
        plain = message.SerializeToString()
        yield Body(plain, gzip.compress(plain), steps[place])


def _tell_as(message: ExportTraceServiceRequest, engine_number: int, cycle: int) -> None:
    """Let an export be of another engine and of other requests, the ``cycle``-th of this engine's."""
    process = f"{engine_number:032x}"
    renamed = {c.INSTANCE: f"benchmark-{engine_number}", c.PROCESS: process}
    for resource in message.resource_spans:
        for pair in resource.resource.attributes:
            if pair.key in renamed:
                pair.value.string_value = renamed[pair.key]
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            for pair in span.attributes:
                if pair.key == c.REQUEST_UID:
                    uid = f"{cycle:08x}{pair.value.string_value[8:]}"
                    pair.value.string_value = uid
                    span.trace_id = identity.trace_id(uid).to_bytes(16, "big")
                elif pair.key == c.GEN_AI_REQUEST_ID:
                    pair.value.string_value = f"chatcmpl-{cycle}-{pair.value.string_value}"
                elif pair.key == c.ROLLUP_SEQ:
                    pair.value.int_value += cycle * 1000

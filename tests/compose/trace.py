"""One finished request as the tracer tells of it: an OTLP trace export to send and to find again."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from specscope import convention as c
from specscope import identity

VERIFY_STEPS, DEPTH = 10, 4
ACCEPTED = 21
"""Of 40 drafted: acceptance length (21 + 10) / 10 = 3.1, acceptance rate 21 / 40 = 0.525."""
MODEL = "compose-test-model"


@dataclass(frozen=True)
class Sent:
    """A trace export and what to look for afterwards."""

    body: bytes
    uid: str
    rid: str


def finished_request() -> Sent:
    """A request that ended just now, told by a process that no other call names."""
    now = time.time_ns()
    started = now - 2 * 10**9
    instance = identity.new_instance()
    ranks = identity.Ranks()
    rid = f"compose-test-{uuid.uuid4().hex[:8]}"
    uid = identity.request_uid(instance, ranks.dp, rid, 0)
    export = ExportTraceServiceRequest()
    told = export.resource_spans.add()
    told.resource.attributes.extend(
        _attributes(
            {
                c.SERVICE_NAME: "compose-test",
                c.WIRE: c.WIRE_VERSION,
                c.TRACER_VERSION: "0",
                c.WORKSPACE: "default",
                c.ENVIRONMENT: "default",
                c.INSTANCE: instance,
                c.PROCESS: identity.process_uid(instance, "scheduler", ranks, os.getpid(), started),
                c.PROCESS_PID: os.getpid(),
                c.PROCESS_START: started,
                c.ROLE: "scheduler",
                c.RANK_TP: ranks.tp,
                c.RANK_DP: ranks.dp,
                c.RANK_PP: ranks.pp,
                c.SERVING_ROLE: ranks.serving_role,
                c.ENGINE_NAME: "sglang",
                c.ENGINE_VERSION: "0.5.23",
                c.DETAIL: c.DETAIL_SUMMARY,
            }
        )
    )
    scope = told.scope_spans.add()
    scope.scope.name = c.SCOPE_NAME
    span = scope.spans.add()
    span.name = c.SPAN_REQUEST
    span.trace_id = identity.trace_id(uid).to_bytes(16, "big")
    span.span_id = identity.request_span_id(uid).to_bytes(8, "big")
    span.start_time_unix_nano = started
    span.end_time_unix_nano = now
    span.attributes.extend(
        _attributes(
            {
                c.GEN_AI_OPERATION: "text_completion",
                c.GEN_AI_PROVIDER: "sglang",
                c.GEN_AI_REQUEST_ID: rid,
                c.MODEL: MODEL,
                c.GEN_AI_INPUT_TOKENS: 12,
                c.GEN_AI_OUTPUT_TOKENS: ACCEPTED + VERIFY_STEPS + 1,
                c.REQUEST_UID: uid,
                c.REQUEST_STATE: c.STATE_FINISHED,
                c.REQUEST_KIND: c.KIND_USER,
                c.REQUEST_ARRIVAL: started,
                c.REQUEST_VERIFY_STEPS: VERIFY_STEPS,
                c.REQUEST_DRAFTED_DEPTH: VERIFY_STEPS * DEPTH,
                c.REQUEST_DRAFTED_NODES: VERIFY_STEPS * DEPTH,
                c.REQUEST_ACCEPTED: ACCEPTED,
                c.REQUEST_BONUS: VERIFY_STEPS,
                c.REQUEST_COMMITTED: ACCEPTED + VERIFY_STEPS,
                c.REQUEST_ZERO_STEPS: 0,
                c.REQUEST_OVERSHOOT: 0,
                c.REQUEST_PREFILLS: 1,
            }
        )
    )
    return Sent(export.SerializeToString(), uid, rid)


def _attributes(values: dict[str, str | int]) -> list[KeyValue]:
    return [
        KeyValue(
            key=key,
            value=AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value),
        )
        for key, value in values.items()
    ]

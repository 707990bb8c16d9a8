"""Other tools' spans: the engine's own, or a caller's. Kept small, never refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status
from specscope import convention as c

from specscope_server.ingest import genai, plain
from specscope_server.ingest.resource import DEFAULT
from specscope_server.ingest.values import Attributes, Invalid, Tally, time_ns
from specscope_server.store.told import ForeignSpan, SpanBatch

TRACE_BYTES: Final = 16
SPAN_BYTES: Final = 8


def spans_of(resource_spans: ResourceSpans, tally: Tally) -> SpanBatch | None:
    """Return the spans of other scopes than ours, ``None`` when there are none.

    One that cannot be placed in a trace is left out with a note.
    """
    others = [scope for scope in resource_spans.scope_spans if scope.scope.name != c.SCOPE_NAME]
    total = sum(len(scope.spans) for scope in others)
    if not total:
        return None
    kept: list[ForeignSpan] = []
    try:
        workspace, service = sender(resource_spans.resource)
    except Invalid as error:
        tally.notes[f"spans of another tool were not kept: {error}"] += total
        return None
    for scope in others:
        for span in scope.spans:
            try:
                kept.append(_span(span, service, plain.name(scope.scope.name)))
            except Invalid as error:
                tally.notes[f"a span of another tool was not kept: {error}"] += 1
    return SpanBatch(workspace, tuple(kept)) if kept else None


def sender(resource: Resource) -> tuple[str, str]:
    """Return the workspace and the service of another tool.

    Raises:
        Invalid: one of them is no name.
    """
    found = Attributes.of(resource.attributes, Tally())
    return found.name(c.WORKSPACE, DEFAULT), found.text(c.SERVICE_NAME, limit=plain.MAX_NAME)


def is_id(value: bytes, size: int) -> bool:
    """Say whether this is an id. OTLP has 16 bytes for a trace and 8 for a span, not all zero, and no others.

    SGLang and other tools with ids of 64 bits send those with eight zeros before them, which is one. An id
    that is itself shorter is none: padded here it might be taken for another trace's.
    """
    return len(value) == size and any(value)


def _span(span: Span, service: str, scope: str) -> ForeignSpan:
    ids: Sequence[tuple[str, bytes, int]] = (
        ("trace id", span.trace_id, TRACE_BYTES),
        ("span id", span.span_id, SPAN_BYTES),
    )
    for what, value, size in ids:
        if not is_id(value, size):
            raise Invalid(f"its {what} is not {size} bytes that are not all zero")
    start = time_ns(span.start_time_unix_nano, "its start")
    request_id, response_id = genai.ids(span.attributes)
    return ForeignSpan(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex() if is_id(span.parent_span_id, SPAN_BYTES) else "",
        name=plain.name(span.name),
        service=service,
        scope=scope,
        start_ns=start,
        end_ns=max(start, time_ns(span.end_time_unix_nano, "its end")),
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        attributes=genai.renamed(plain.attributes(span.attributes)),
        request_id=request_id,
        response_id=response_id,
    )

"""Other tools' spans of the same traces: the engine's own, or a caller's. Kept small, never refused."""

from __future__ import annotations

from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status
from specscope import convention as c

from specscope_server.ingest.resource import DEFAULT
from specscope_server.ingest.values import Attributes, Invalid, Tally, clean, time_ns
from specscope_server.store.told import ForeignSpan, SpanBatch

MAX_ATTRIBUTES: Final = 24
"""Attributes kept of one span, the first ones; SGLang sends up to a dozen."""
MAX_NAME: Final = 200
MAX_VALUE: Final = 200
"""Characters kept of a name or an attribute's value. What is cut is another tool's, which has it whole."""


def spans_of(resource_spans: ResourceSpans, tally: Tally) -> SpanBatch | None:
    """Return the spans of other scopes than ours, ``None`` when there are none.

    One that cannot be placed in a trace is left out with a note.
    """
    others = [scope for scope in resource_spans.scope_spans if scope.scope.name != c.SCOPE_NAME]
    total = sum(len(scope.spans) for scope in others)
    if not total:
        return None
    resource = Attributes(resource_spans.resource.attributes, Tally())
    kept: list[ForeignSpan] = []
    try:
        workspace = resource.name(c.WORKSPACE, DEFAULT)
        service = resource.text(c.SERVICE_NAME, limit=MAX_NAME)
    except Invalid as error:
        tally.notes[f"spans of another tool were not kept: {error}"] += total
        return None
    for scope in others:
        for span in scope.spans:
            try:
                kept.append(_span(span, service, clean(scope.scope.name)[:MAX_NAME]))
            except Invalid as error:
                tally.notes[f"a span of another tool was not kept: {error}"] += 1
    return SpanBatch(workspace, tuple(kept)) if kept else None


def _span(span: Span, service: str, scope: str) -> ForeignSpan:
    for what, value, size in (("trace id", span.trace_id, 16), ("span id", span.span_id, 8)):
        if len(value) != size or not any(value):
            raise Invalid(f"its {what} is not {size} bytes that are not all zero")
    start = time_ns(span.start_time_unix_nano, "its start")
    return ForeignSpan(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex() if len(span.parent_span_id) == 8 else "",
        name=clean(span.name)[:MAX_NAME],
        service=service,
        scope=scope,
        start_ns=start,
        end_ns=max(start, time_ns(span.end_time_unix_nano, "its end")),
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        attributes={
            clean(pair.key)[:MAX_NAME]: _plain(pair.value) for pair in span.attributes[:MAX_ATTRIBUTES]
        },
    )


def _plain(value: AnyValue) -> Any:
    """Return numbers and truth values as they are, everything else as text."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    found = getattr(value, kind)
    if kind == "double_value":
        return found if abs(found) < 1e308 else str(found)
    if kind in ("bool_value", "int_value"):
        return found
    if kind == "array_value":
        text = ", ".join(str(_plain(one)) for one in value.array_value.values[:MAX_ATTRIBUTES])
    elif kind == "string_value":
        text = value.string_value
    else:  # bytes, or a mapping: nothing that a line could show
        text = kind.removesuffix("_value")
    return clean(text)[:MAX_VALUE]

"""What a caller's own tools told of a request: spans of a trace of theirs, and what they logged in it."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import sha256

from specscope_server.store.port import Store
from specscope_server.store.told import ForeignSpan, LogBatch, LogRecord, SpanBatch
from specscope_server.store.values import to_ns

BODIES = ("asked", "no answer after <b>1 s</b>\nasked again", "x" * 900)


def write(store: Store, workspace: str, rid: str, now: datetime) -> None:
    """Tell of a call that took the last two hours, so that it was there whenever the request was."""
    trace_id = sha256(rid.encode()).hexdigest()[:32]
    start = to_ns(now - timedelta(hours=2))

    def span(number: int, name: str, response_id: str = "") -> ForeignSpan:
        return ForeignSpan(
            trace_id=trace_id,
            span_id=f"{number:016x}",
            parent_id=f"{number - 1:016x}" if number > 1 else "",
            name=name,
            service="agent" * 12,
            scope="openai",
            start_ns=start + number,
            end_ns=to_ns(now),
            failed=number == 2,
            attributes={"gen_ai.usage.input_tokens": 12},
            response_id=response_id,
        )

    spans = (span(1, f"chat {rid}", rid), *(span(number, "retry" * number) for number in range(2, 17)))
    records = tuple(
        LogRecord(
            trace_id=trace_id,
            record_id=f"{number:032x}",
            span_id=f"{1:016x}",
            time_ns=start + number,
            severity=9 + 4 * number,
            service="agent",
            scope="app",
            body=body,
            attributes={},
        )
        for number, body in enumerate(BODIES)
    )
    store.write([SpanBatch(workspace, spans), LogBatch(workspace, records)], now)

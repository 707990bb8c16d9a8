"""A caller with the real SDK, in a trace of its own: its span and its log stand on the request's page."""

from __future__ import annotations

from pathlib import Path

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from serverkit import otlp
from serverkit.live import Live, serving
from specscope import convention as c
from specscope_server.store import request_names as names


def call(live: Live, response_id: str) -> str:
    """Call a model as an instrumented agent would; return the trace id."""
    resource = Resource({"service.name": "agent"})
    tracing, logging = TracerProvider(resource=resource), LoggerProvider(resource=resource)
    tracing.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{live.url}/v1/traces")))
    logging.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(f"{live.url}/v1/logs")))
    logger = logging.get_logger("agent")
    with tracing.get_tracer("openai").start_as_current_span("chat tiny") as span:
        with tracing.get_tracer("http").start_as_current_span("POST"):
            logger.emit(LogRecord(body="asked <tiny>", severity_number=SeverityNumber.WARN))
        span.set_attribute(c.GEN_AI_RESPONSE_ID, response_id)
        span.set_attribute("gen_ai.usage.prompt_tokens", 12)
        trace_id = f"{span.get_span_context().trace_id:032x}"
    logger.emit(LogRecord(body="of no trace"))
    tracing.shutdown()
    logging.shutdown()
    return trace_id


def test_a_caller_in_a_trace_of_its_own_is_found(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path / 'store.db'}") as live:
        told = otlp.traces(otlp.request_span(1), otlp.request_span(2))
        assert live.export(told).status_code == 200
        trace_id = call(live, "rid-1")
        uid = otlp.request_uid(1)
        detail = live.store.request("default", uid)
        assert detail is not None
        [joined] = detail.joined
        assert (joined.trace_id, joined.rule) == (trace_id, names.BY_RESPONSE)
        assert [span.name for span in joined.spans] == ["chat tiny", "POST"]
        assert joined.spans[0].attributes[c.GEN_AI_INPUT_TOKENS] == 12
        assert [record.body for record in detail.logs] == ["asked <tiny>"]
        assert [item["uid"] for item in live.get("/api/v1/requests", text=trace_id)["items"]] == [uid]
        page = live.client.get(f"/requests/{uid}").text
        assert f"Joined from trace <code>{trace_id}</code>" in page
        assert "asked &lt;tiny&gt;" in page
        other = live.store.request("default", otlp.request_uid(2))
        assert other is not None
        assert (other.joined, other.logs) == ((), ())

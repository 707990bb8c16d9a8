"""Log records of traces are kept small and once; what is no trace's is counted and left."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from serverkit import otlp
from specscope_server.ingest import logs
from specscope_server.store.trace_rows import MAX_BODY

TRACE = b"\1" * 16
SPAN = b"\2" * 8


def record(body: Any = "loaded", attributes: dict[str, Any] | None = None, **changes: Any) -> LogRecord:
    told = LogRecord(
        trace_id=TRACE,
        span_id=SPAN,
        time_unix_nano=1_800_000_000_000_000_000,
        severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
        attributes=otlp.attributes(attributes or {}),
    )
    told.body.CopyFrom(body if isinstance(body, AnyValue) else AnyValue(string_value=body))
    for name, value in changes.items():
        setattr(told, name, value)
    return told


def export(*records: LogRecord, scope: str = "app", **resource: Any) -> ExportLogsServiceRequest:
    told = ResourceLogs(scope_logs=[ScopeLogs(scope=InstrumentationScope(name=scope), log_records=records)])
    told.resource.attributes.extend(otlp.attributes({"service.name": "shop"} | resource))
    return ExportLogsServiceRequest(resource_logs=[told])


def ids(*records: LogRecord, **more: Any) -> list[str]:
    [batch], _ = logs.read(export(*records, **more))
    return [one.record_id for one in batch.records]


def test_a_record_of_a_trace_is_kept() -> None:
    [batch], tally = logs.read(export(record(attributes={"rid": "a", "n": 3}, severity_number=17)))
    [kept] = batch.records
    assert (batch.workspace, tally.foreign, tally.accepted, tally.rejected) == ("default", 1, 0, 0)
    assert (kept.trace_id, kept.span_id, kept.time_ns) == (TRACE.hex(), SPAN.hex(), 1_800_000_000_000_000_000)
    assert (kept.severity, kept.service, kept.scope, kept.body) == (17, "shop", "app", "loaded")
    assert kept.attributes == {"rid": "a", "n": 3}


def test_one_without_a_trace_is_counted_and_nothing_is_said() -> None:
    batches, tally = logs.read(export(*(record(trace_id=none) for none in (b"", bytes(16), b"1"))))
    assert (batches, tally.foreign, tally.explain()) == ([], 3, "")


def test_the_same_record_has_the_same_id_and_another_has_not() -> None:
    again = record()
    again.observed_time_unix_nano = 5
    one, two = ids(record(), again)
    assert one == two, "each collector says anew when it observed it"
    others = [
        record("other"),
        record(time_unix_nano=7),
        record(span_id=b""),
        record(severity_number=10),
        record(attributes={"a": 1}),
        record(severity_text="info"),
        record("x" * MAX_BODY + "1"),
        record("x" * MAX_BODY + "2"),
    ]
    assert len({one, *ids(*others), *ids(record(), scope="other")}) == len(others) + 2
    untimed = [record(time_unix_nano=0, observed_time_unix_nano=at) for at in (1, 2)]
    assert len(set(ids(*untimed))) == 2


def test_hostile_values_do_no_harm() -> None:
    nested = AnyValue(string_value="end")
    for _ in range(25):  # protobuf itself ends at 100 messages in one another
        nested = AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="k", value=nested)]))
    told = export(
        record("a\0" + "x" * 9000),
        record(nested),
        record(AnyValue(bytes_value=b"\0")),
        record(AnyValue(), event_name="session.start"),
        record(AnyValue(kvlist_value=KeyValueList(values=otlp.attributes({"a": 1, "b": ["c"]})))),
        record(time_unix_nano=(1 << 64) - 1, span_id=b"short"),
        record(attributes={f"n{number}": "y" * 900 for number in range(900)}),
    )
    [batch], tally = logs.read(told)
    cut, deep, raw, event, mapping, absurd, many = batch.records
    assert (len(cut.body), cut.body[:3], deep.body) == (MAX_BODY, "a\ufffdx", "k=kvlist")
    assert (raw.body, event.body, mapping.body) == ("bytes", "session.start", "a=1, b=c")
    assert (absurd.time_ns, absurd.span_id) == (0, "")
    assert (len(many.attributes), len(many.attributes["n0"])) == (24, 200)
    assert tally.rejected == 0


def test_an_unknown_severity_is_none() -> None:
    told = record()
    told.MergeFromString(b"\x10\x63")  # severity_number 99: an open enum takes any number
    [batch], _ = logs.read(export(told))
    assert [one.severity for one in batch.records] == [0]


def test_a_workspace_that_is_no_name_keeps_nothing() -> None:
    batches, tally = logs.read(export(record(), **{"specscope.workspace": "a\0b"}))
    assert (batches, tally.foreign, tally.rejected) == ([], 1, 0)
    assert "log records were not kept: specscope.workspace" in tally.explain()

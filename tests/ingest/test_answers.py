"""Each status code of OTLP/HTTP, on a real server: body, type, headers, and nothing stored by halves."""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from google.protobuf import json_format
from google.rpc import code_pb2  # pyright: ignore[reportMissingTypeStubs]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from serverkit import otlp
from serverkit.live import JSON, PROTOBUF, Live, serving, status_of
from serverkit.tables import contents
from specscope import convention as c
from specscope_server.ingest import otlp_http
from specscope_server.ingest.body import Admission, Limits
from specscope_server.ingest.receiver import Receiver
from specscope_server.store import open_store

MIB = 1 << 20


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One server for the module; small limits, and a body must come within half a second."""
    url = f"sqlite:///{tmp_path_factory.mktemp('answers') / 'store.db'}"
    with serving(url, max_body_mb=1, max_inflated_mb=2, body_seconds=0.5, waiting_exports=1) as found:
        yield found


GOOD = otlp.traces(otlp.request_span(1))
BODY = GOOD.SerializeToString()


def post(live: Live, body: bytes = BODY, path: str = "/v1/traces", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return live.client.post(path, content=body, headers={"Content-Type": PROTOBUF, **named})


REFUSED: list[tuple[str, dict[str, Any], int, int, str]] = [
    ("malformed", {"body": b"\xff" * 30}, 400, code_pb2.INVALID_ARGUMENT, "protobuf"),
    ("not gzip", {"Content_Encoding": "gzip"}, 400, code_pb2.INVALID_ARGUMENT, "gzip"),
    (
        "cut off gzip",
        {"body": gzip.compress(BODY)[:-4], "Content_Encoding": "gzip"},
        400,
        code_pb2.INVALID_ARGUMENT,
        "cut off",
    ),
    (
        "all of it invalid",
        {"body": otlp.traces(otlp.request_span(**{c.REQUEST_UID: "x"})).SerializeToString()},
        400,
        code_pb2.INVALID_ARGUMENT,
        c.REQUEST_UID,
    ),
    ("unsupported signal", {"path": "/v1/profiles"}, 404, code_pb2.NOT_FOUND, "/v1/traces"),
    ("too large as sent", {"body": bytes(MIB + 1)}, 413, code_pb2.INVALID_ARGUMENT, "--max-body-mb"),
    (
        "too large inflated",
        {"body": gzip.compress(bytes(2 * MIB + 1)), "Content_Encoding": "gzip"},
        413,
        code_pb2.INVALID_ARGUMENT,
        "after decompression",
    ),
    (
        "deflate",
        {"Content_Encoding": "deflate"},
        415,
        code_pb2.INVALID_ARGUMENT,
        "Content-Encoding must be one of identity, gzip, zstd",
    ),
]


@pytest.mark.parametrize(
    ("request_", "status", "code", "says"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_refusal_is_a_status_in_protobuf_and_stores_nothing(
    live: Live, request_: dict[str, Any], status: int, code: int, says: str
) -> None:
    before = contents(live.settings.db)
    answer = post(live, **request_)
    assert answer.status_code == status, answer.text
    told = status_of(answer)
    assert told.code == code
    assert says in told.message
    assert contents(live.settings.db) == before


def test_unsupported_encoding_names_the_supported_ones(live: Live) -> None:
    assert post(live, Content_Encoding="deflate").headers["accept-encoding"] == "identity, gzip, zstd"


@pytest.mark.parametrize("kind", ["text/plain", "", "multipart/form-data", "application/x-protobuf2"])
def test_unknown_content_type_is_told_in_json(live: Live, kind: str) -> None:
    answer = post(live, Content_Type=kind)
    assert answer.status_code == 415
    assert answer.headers["content-type"] == JSON
    assert PROTOBUF in answer.json()["message"]
    assert answer.headers["accept"] == f"{PROTOBUF}, {JSON}"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods(live: Live, method: str) -> None:
    answer = live.client.request(method, "/v1/traces")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.json()["code"] == code_pb2.UNIMPLEMENTED


def test_too_large_without_content_length(live: Live) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(33):
            yield bytes(64 << 10)

    answer = live.client.post("/v1/traces", content=chunks(), headers={"Content-Type": PROTOBUF})
    assert answer.status_code == 413
    assert "more than" in status_of(answer).message


def _half(live: Live, kind: str = PROTOBUF) -> Any:
    """A connection whose body stays away after its first bytes."""
    connection = live.connect()
    head = (
        f"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: 1000\r\n\r\n"
    )
    connection.sendall(head.encode() + b"{" * 10)
    return connection


def _read(connection: Any) -> bytes:
    answer = b""
    while part := connection.recv(65536):
        answer += part
    return answer


def test_body_that_does_not_arrive(live: Live) -> None:
    with _half(live, JSON) as connection:
        answer = _read(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head.lower()
    told = json.loads(body)
    assert told["code"] == code_pb2.DEADLINE_EXCEEDED
    assert "10 bytes did" in told["message"]


def test_what_came_too_late_is_not_waited_for_once_more(tmp_path: Path) -> None:
    """Refused as it did not come in time, its end is not read: the answer would come as late again."""
    asked = 0

    async def receive() -> Any:
        nonlocal asked
        asked += 1
        if asked > 1:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": b"{", "more_body": True}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    limits = Limits(wire_bytes=1000, raw_bytes=1000, seconds=0.05)
    application = FastAPI()
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    try:
        otlp_http.install(application, Receiver(store, limits, Admission(1, 1000)))
        scope = {"type": "http", "method": "POST", "path": "/v1/traces", "query_string": b"",
                 "headers": [(b"content-type", JSON.encode())]}  # fmt: skip
        asyncio.run(application(scope, receive, send))
    finally:
        store.close()
    assert sent[0]["status"] == 408
    assert asked == 2


def test_too_many_waiting_are_asked_to_come_again(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path / 'store.db'}", waiting_exports=1) as live:
        with _half(live):
            while live.get("/api/v1/status")["ingest"]["waiting"] == 0:
                pass
            answer = post(live)
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
            assert status_of(answer).code == code_pb2.RESOURCE_EXHAUSTED
        while live.get("/api/v1/status")["ingest"]["waiting"]:
            pass
        assert post(live).status_code == 200
        assert live.get("/api/v1/status")["ingest"]["refused"] == {"429": 1}


def test_locked_database_is_told_to_come_again_and_stores_nothing(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with serving(f"sqlite:///{file}") as live:
        before = contents(live.settings.db)
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            answer = post(live)
        finally:
            other.execute("ROLLBACK")
            other.close()
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        told = status_of(answer)
        assert told.code == code_pb2.UNAVAILABLE
        assert "lock" in told.message
        assert contents(live.settings.db) == before
        assert post(live).status_code == 200  # the same export, once the lock is gone
        assert [r["rid"] for r in live.get("/api/v1/requests")["items"]] == ["rid-1"]


def test_broken_database_leaves_the_data_with_the_client(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with serving(f"sqlite:///{file}") as live:
        other = sqlite3.connect(file)
        other.execute("DROP TABLE step_chunk")
        other.execute("DROP TABLE request")
        other.commit()
        other.close()
        answer = post(live)
        assert answer.status_code == 503  # retryable by OTLP; a 500 would make exporters drop the export
        told = status_of(answer)
        assert told.code == code_pb2.UNAVAILABLE
        assert "request" not in told.message  # details stay in the log


def test_success_is_the_empty_message_in_either_type(live: Live) -> None:
    answer = post(live)
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, PROTOBUF, b"")
    body = json.dumps({"resourceSpans": []}).encode()
    answer = post(live, body, Content_Type="application/json; charset=utf-8")
    assert (answer.status_code, answer.headers["content-type"], answer.json()) == (200, JSON, {})
    answer = post(live, otlp.metrics(*otlp.heartbeat_metrics()).SerializeToString(), "/v1/metrics")
    assert (answer.status_code, answer.content) == (200, b"")


def test_partial_success_counts_and_explains_and_the_rest_is_stored(live: Live) -> None:
    bad = otlp.rollup_span(**{c.ROLLUP_ROWS: b"SPSC" + bytes(20)})
    answer = post(live, otlp.traces(otlp.request_span(7), bad, bad).SerializeToString())
    assert answer.status_code == 200
    told = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert told.rejected_spans == 2
    assert c.SPAN_ROLLUP in told.error_message
    assert "(2 times)" in told.error_message
    assert [r["rid"] for r in live.get("/api/v1/requests", rid="rid-7")["items"]] == ["rid-7"]


def test_partial_success_of_metrics_in_json(live: Live) -> None:
    bad = otlp.total(c.METRIC_REQUESTS, otlp.point(-1, {c.LABEL_KIND: "user"}))
    good = otlp.gauge(c.METRIC_QUEUED, otlp.point(1))
    body = json_format.MessageToJson(otlp.metrics(bad, good)).encode()
    answer = post(live, body, "/v1/metrics", Content_Type=JSON)
    assert answer.json()["partialSuccess"]["rejectedDataPoints"] == "1"
    told = json_format.ParseDict(answer.json(), ExportMetricsServiceResponse())
    assert "not a count" in told.partial_success.error_message


def test_cut_text_is_a_warning_without_rejection(live: Live) -> None:
    answer = live.export(otlp.traces(otlp.request_span(8, **{c.GEN_AI_REQUEST_ID: "r" * 600})))
    told = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert told.rejected_spans == 0
    assert "cut to 512" in told.error_message


def test_foreign_spans_are_taken_counted_and_kept_apart(live: Live) -> None:
    before = contents(live.settings.db)
    seen = live.get("/api/v1/status")["ingest"]["traces"]["foreign"]
    answer = live.export(otlp.traces(otlp.request_span(9), scope="another tool"))
    assert (answer.status_code, answer.content) == (200, b"")
    assert live.get("/api/v1/status")["ingest"]["traces"]["foreign"] == seen + 1
    after = contents(live.settings.db)
    assert len(after.pop("span")) == len(before.pop("span")) + 1
    assert after == before


def test_a_foreign_span_that_is_in_no_trace_is_a_warning(live: Live) -> None:
    span = otlp.request_span(9)
    span.trace_id = b"short"
    answer = live.export(otlp.traces(span, scope="another tool"))
    told = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, told.rejected_spans) == (200, 0)
    assert "a span of another tool was not kept: its trace id is not 16 bytes" in told.error_message


def test_the_same_refusal_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = otlp.traces(otlp.request_span(1), otlp.request_span(2, **{c.REQUEST_UID: "x"}))
    worse = otlp.traces(otlp.request_span(2, **{c.REQUEST_UID: "x"}))
    with serving(f"sqlite:///{tmp_path / 'store.db'}") as live:
        for export, status in ((bad, 200), (worse, 400)):
            for _ in range(5):
                assert live.export(export).status_code == status
        told = live.get("/api/v1/status")["ingest"]
    assert told["traces"]["rejected"] == 10
    assert c.REQUEST_UID in told["last_reason"]
    logged = [r.getMessage() for r in caplog.records if r.name.startswith("specscope_server.ingest")]
    assert len(logged) == 2
    assert "rejected 1 items of traces" in logged[0] and "refused with 400" in logged[1]

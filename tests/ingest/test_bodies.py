"""Bodies: inflated within the limit, decoded in both encodings, refused with the right status."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from serverkit import otlp
from specscope_server.ingest.body import Admission, gunzip
from specscope_server.ingest.content import Format
from specscope_server.ingest.decode import decode
from specscope_server.ingest.refusal import Refusal


def test_gunzip_reads_members_one_after_another() -> None:
    assert gunzip(gzip.compress(b"one ") + gzip.compress(b"two"), 100) == b"one two"


def test_gunzip_takes_exactly_the_limit_and_no_byte_more() -> None:
    packed = gzip.compress(b"x" * 5_000_000)
    assert len(gunzip(packed, 5_000_000)) == 5_000_000
    with pytest.raises(Refusal) as caught:
        gunzip(packed, 4_999_999)
    assert caught.value.status == 413


def test_bomb_is_never_inflated_past_the_limit() -> None:
    bomb = gzip.compress(bytes(64 << 20), 1)
    tracemalloc.start()
    try:
        with pytest.raises(Refusal):
            gunzip(bomb, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [b"plain", gzip.compress(b"hello" * 100)[:-1], gzip.compress(b"hello")[:5], zlib.compress(b"hello")],
    ids=["not gzip", "trailer cut", "header cut", "zlib"],
)
def test_damaged_gzip_is_malformed(data: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        gunzip(data, 1000)
    assert caught.value.status == 400


def test_wrong_checksum_is_malformed() -> None:
    packed = bytearray(gzip.compress(b"hello"))
    packed[-5] ^= 1
    with pytest.raises(Refusal) as caught:
        gunzip(bytes(packed), 1000)
    assert caught.value.status == 400


def test_endless_gzip_members_are_refused() -> None:
    with pytest.raises(Refusal) as caught:
        gunzip(gzip.compress(b"") * 800_000, 1 << 20)
    assert caught.value.status == 400


def as_json(export: ExportTraceServiceRequest) -> dict[str, Any]:
    """OTLP's own JSON: as protobuf's, with ids in hex."""
    document = json_format.MessageToDict(export)
    for resource_spans in document["resourceSpans"]:
        for scope_spans in resource_spans["scopeSpans"]:
            for span, original in zip(
                scope_spans["spans"], export.resource_spans[0].scope_spans[0].spans, strict=True
            ):
                span["traceId"] = original.trace_id.hex()
                span["spanId"] = original.span_id.hex().upper()  # either case is allowed
    return document


def test_json_says_the_same_as_protobuf() -> None:
    export = otlp.traces(otlp.request_span(1), otlp.steps_span(2), otlp.rollup_span(), otlp.engine_span())
    document = as_json(export)
    document["fieldOfTheFuture"] = {"traceId": "0f"}
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["another"] = [1, {}]
    decoded = decode(json.dumps(document).encode(), Format.JSON, ExportTraceServiceRequest())
    assert decoded == export
    assert decode(export.SerializeToString(), Format.PROTOBUF, ExportTraceServiceRequest()) == export


def _document(span: dict[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"resourceSpans": 3}',
        b'{"resourceSpans": [null]}',
        b'\xff\xfe{"resourceSpans": []}',
        b"[" * 100_000,
        b'{"resourceSpans": NaN}',
        b'{"a": ' + b"9" * 5000 + b"}",
        _document({"traceId": "xyz"}),
        _document({"spanId": "abc"}),
        _document({"startTimeUnixNano": "99999999999999999999999"}),
        _document({"name": "a\ud800"}),
        _document({"name": 5}),
        _document({"attributes": [{"key": "a", "value": {"bytesValue": 3}}]}),
    ],
)
def test_malformed_json_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        decode(body, Format.JSON, ExportTraceServiceRequest())
    assert caught.value.status == 400
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    "body",
    [b"\xff" * 20, b"\x0a\x05abc", b"\x0a" * 300, b"\x0a\x08\x12\x06\x12\x04\x2a\x02\xff\xfe"],
    ids=["junk", "cut off", "nonsense", "invalid UTF-8 in a name"],
)
def test_malformed_protobuf_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        decode(body, Format.PROTOBUF, ExportTraceServiceRequest())
    assert caught.value.status == 400


def test_unknown_protobuf_fields_are_ignored() -> None:
    export = otlp.traces(otlp.request_span())
    body = export.SerializeToString() + b"\xfa\x3f\x03new"  # field 1023, length 3
    decoded = decode(body, Format.PROTOBUF, ExportTraceServiceRequest())
    assert decoded.resource_spans == export.resource_spans


def test_admission_gives_back_what_it_lent_even_after_a_refusal() -> None:
    admission = Admission(requests=2, total_bytes=100)
    with admission.enter() as first:
        first.hold(60)
        with pytest.raises(Refusal) as caught, admission.enter() as second:
            second.hold(41)
        assert caught.value.status == 429
        assert (admission.waiting, admission.waiting_bytes) == (1, 60)
        with admission.enter(), pytest.raises(Refusal), admission.enter():
            pass
    assert (admission.waiting, admission.waiting_bytes) == (0, 0)

"""Bodies: inflated within the limit, decoded in both encodings, refused with the right status."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import threading
import tracemalloc
import zlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from backports import zstd
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from serverkit import otlp
from specscope_server.ingest.body import FEED, Admission, Arrived, Limits, Ticket, arriving, inflating
from specscope_server.ingest.content import Format
from specscope_server.ingest.decode import decode
from specscope_server.ingest.inflate import STEP, Encoding, Inflater
from specscope_server.ingest.refusal import Refusal


def packed_zstd(data: bytes, level: int = 3) -> bytes:
    return zstd.compress(data, level)


PACKERS = {Encoding.GZIP: gzip.compress, Encoding.ZSTD: packed_zstd}
BOTH = pytest.mark.parametrize("encoding", PACKERS, ids=lambda e: e.value)


def inflate(encoding: Encoding, data: bytes, limit: int, step: int = 1 << 30) -> bytes:
    """Inflate a body that comes ``step`` bytes at a time."""
    inflater = Inflater(encoding, limit)
    for start in range(0, len(data), step):
        inflater.feed(data[start : start + step])
    return inflater.finish()


@BOTH
@pytest.mark.parametrize("step", [1, 7, 1 << 30])
def test_frames_are_read_one_after_another_however_they_come(encoding: Encoding, step: int) -> None:
    pack = PACKERS[encoding]
    data = pack(b"one ") + pack(b"") + pack(b"two" * 1000)
    assert inflate(encoding, data, 10_000, step) == b"one " + b"two" * 1000


@BOTH
@pytest.mark.parametrize("size", [STEP - 1, STEP, STEP + 1, 3 * STEP, 5_000_000])
def test_takes_exactly_the_limit_and_no_byte_more(encoding: Encoding, size: int) -> None:
    packed = PACKERS[encoding](b"x" * size)
    assert len(inflate(encoding, packed, size)) == size
    with pytest.raises(Refusal) as caught:
        inflate(encoding, packed, size - 1)
    assert caught.value.status == 413


@BOTH
def test_bomb_is_stopped_within_a_step_of_the_limit(encoding: Encoding) -> None:
    bomb = PACKERS[encoding](bytes(64 << 20), 1)
    inflater = Inflater(encoding, 1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(Refusal):
            inflater.feed(bomb)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert inflater.size <= (1 << 20) + STEP


DAMAGED = {
    "plain": b"plain text that is neither",
    "gzip without its trailer": gzip.compress(b"hello" * 100)[:-1],
    "half a gzip header": gzip.compress(b"hello")[:5],
    "zlib": zlib.compress(b"hello"),
    "zstd without its end": packed_zstd(bytes(range(256)) * 100)[:-1],
    "half a zstd header": packed_zstd(b"hello")[:3],
}


@BOTH
@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_damaged_or_another_encoding_is_malformed(encoding: Encoding, what: str) -> None:
    with pytest.raises(Refusal) as caught:
        inflate(encoding, DAMAGED[what], 100_000, step=10)
    assert caught.value.status == 400
    assert encoding.value in caught.value.message


def test_a_zstd_window_that_takes_more_memory_than_the_rfc_allows_is_refused() -> None:
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    data = packer.compress(b"hello") + packer.flush()
    with pytest.raises(Refusal) as caught:
        inflate(Encoding.ZSTD, data, 100_000)
    assert caught.value.status == 400
    allowed = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 23})
    assert inflate(Encoding.ZSTD, allowed.compress(b"hello") + allowed.flush(), 100) == b"hello"


@BOTH
def test_wrong_checksum_is_malformed(encoding: Encoding) -> None:
    if encoding is Encoding.GZIP:
        packed = bytearray(gzip.compress(b"hello"))
        packed[-5] ^= 1
    else:
        packed = bytearray(zstd.compress(b"hello", options={zstd.CompressionParameter.checksum_flag: 1}))
        packed[-1] ^= 1
    with pytest.raises(Refusal) as caught:
        inflate(encoding, bytes(packed), 1000)
    assert caught.value.status == 400


@BOTH
def test_endless_frames_are_refused(encoding: Encoding) -> None:
    with pytest.raises(Refusal) as caught:
        inflate(encoding, PACKERS[encoding](b"") * 800_000, 1 << 20)
    assert caught.value.status == 400


def test_the_plain_body_has_the_same_limit() -> None:
    assert inflate(Encoding.IDENTITY, b"abc", 3, step=1) == b"abc"
    with pytest.raises(Refusal) as caught:
        inflate(Encoding.IDENTITY, b"abcd", 3)
    assert caught.value.status == 413


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


def test_enums_in_json_are_integers() -> None:
    """MUST: so OTLP writes them. (A name, which senders must not write, is read all the same.)"""
    told = {"kind": 2, "status": {"code": 2}}
    named = {"kind": "SPAN_KIND_SERVER", "status": {"code": "STATUS_CODE_ERROR"}}
    for document in (told, named):
        export = decode(_document(document), Format.JSON, ExportTraceServiceRequest())
        span = export.resource_spans[0].scope_spans[0].spans[0]
        assert (span.kind, span.status.code) == (2, 2)


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


class _Stuttering:
    """A body in parts, as a slow sender's; ``held`` is what the ticket held when each part was asked for."""

    def __init__(self, data: bytes, step: int, ticket: Ticket) -> None:
        self.parts = [data[start : start + step] for start in range(0, len(data), step)]
        self.ticket = ticket
        self.held: list[int] = []

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        for part in self.parts:
            self.held.append(self.ticket.size)
            yield part


async def _inflated(data: bytes, limits: Limits, admission: Admission) -> tuple[Arrived, list[int], set[int]]:
    threads: set[int] = set()

    async def elsewhere(feed: Callable[[bytes], None], part: bytes) -> None:
        def step() -> None:
            threads.add(threading.get_ident())
            feed(part)

        await asyncio.to_thread(step)

    with admission.enter() as ticket:
        stream = _Stuttering(data, 64 << 10, ticket)
        parts = arriving(aiter(stream), None, limits, ticket)
        arrived = await inflating(parts, Inflater(Encoding.GZIP, limits.raw_bytes), ticket, elsewhere)
        return arrived, stream.held, threads


LIMITS = Limits(wire_bytes=16 << 20, raw_bytes=32 << 20, seconds=30)


def test_a_body_is_inflated_while_it_arrives_and_not_in_the_event_loop() -> None:
    raw = random.Random(1).randbytes(3 << 20)
    admission = Admission(1, 64 << 20)
    arrived, held, threads = asyncio.run(_inflated(gzip.compress(raw), LIMITS, admission))
    assert len(arrived.rest) < FEED
    assert arrived.inflate() == raw
    assert threads and threading.get_ident() not in threads
    # What came was not kept beside what it became.
    assert max(held) < len(raw) + 2 * FEED
    assert (admission.waiting, admission.waiting_bytes) == (0, 0)


def test_a_bomb_is_refused_before_the_rest_of_it_is_read() -> None:
    bomb = gzip.compress(bytes(512 << 20), 1)
    admission = Admission(1, 64 << 20)
    with pytest.raises(Refusal) as caught:
        asyncio.run(_inflated(bomb + bytes(8 << 20), LIMITS, admission))
    assert caught.value.status == 413
    assert (admission.waiting, admission.waiting_bytes) == (0, 0)


def test_what_a_body_became_counts_against_what_may_wait() -> None:
    noise = random.Random(1).randbytes(FEED)  # so that a first step is inflated before all has come
    body = gzip.compress(bytes(20 << 20)) + gzip.compress(noise)
    with pytest.raises(Refusal) as caught:
        asyncio.run(_inflated(body, LIMITS, Admission(1, 10 << 20)))
    assert caught.value.status == 429

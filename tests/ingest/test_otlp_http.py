"""OTLP/HTTP by the specification: each MUST that binds a server, in the order of the text."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from backports import zstd
from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status  # pyright: ignore[reportMissingTypeStubs]
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from serverkit import exports, otlp
from serverkit.live import JSON, PROTOBUF, Live, serving, status_of
from serverkit.tables import contents
from specscope import convention as c

MIB = 1 << 20
EVERY = pytest.mark.parametrize("signal", exports.NAMES)
REJECTING = pytest.mark.parametrize("signal", ["traces", "metrics"])
"""No single log record is rejected: what is not of a trace is left out, which is no error."""
WARNING = pytest.mark.parametrize("signal", ["traces", "logs"])
TYPES = pytest.mark.parametrize("kind", [PROTOBUF, JSON])


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    url = f"sqlite:///{tmp_path_factory.mktemp('http') / 'store.db'}"
    with serving(url, max_body_mb=1, max_inflated_mb=2) as found:
        yield found


def encoded(message: Message, kind: str) -> bytes:
    """A body; the ids of OTLP's JSON are hex, which base64 is not."""
    if kind == PROTOBUF:
        return message.SerializeToString()
    document = json_format.MessageToDict(message)
    _ids_in_hex(document, message)
    return json.dumps(document).encode()


def _ids_in_hex(document: Any, message: Any) -> None:
    for field, value in message.ListFields():
        told = document[field.json_name]
        if field.name in ("trace_id", "span_id", "parent_span_id"):
            document[field.json_name] = value.hex()
        elif field.message_type is not None:
            several = field.is_repeated
            for inner, part in zip(told if several else [told], value if several else [value], strict=True):
                _ids_in_hex(inner, part)


def post(
    live: Live, signal: str, message: Message | bytes, kind: str = PROTOBUF, **headers: str
) -> httpx.Response:
    body = message if isinstance(message, bytes) else encoded(message, kind)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return live.client.post(exports.PATHS[signal], content=body, headers={"Content-Type": kind, **named})


def read(answer: httpx.Response, into: Any) -> Any:
    """The message of an answer, in the type that it names."""
    if answer.headers["content-type"] == JSON:
        return json_format.Parse(answer.content, into())
    return into.FromString(answer.content)


@EVERY
@TYPES
@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
def test_no_compression_and_gzip_are_supported(live: Live, signal: str, kind: str, encoding: str) -> None:
    """MUST: every server takes uncompressed and gzip. (zstd is ours.)"""
    pack = {"identity": bytes, "gzip": gzip.compress, "zstd": zstd.compress}[encoding]
    body = pack(encoded(exports.good(signal), kind))
    assert post(live, signal, body, kind, Content_Encoding=encoding).status_code == 200


@EVERY
@TYPES
def test_content_type_of_the_answer_is_that_of_the_request(live: Live, signal: str, kind: str) -> None:
    """MUST: x-protobuf for binary bodies, application/json for JSON ones, and the same one back."""
    answer = post(live, signal, exports.good(signal), kind)
    assert answer.headers["content-type"] == kind
    refused = post(live, signal, b"\xff", kind)
    assert (refused.status_code, refused.headers["content-type"]) == (400, kind)


def test_ids_in_json_are_hex_of_either_case_and_enums_are_integers(live: Live) -> None:
    """MUST: enum values travel as integers; ids are case-insensitive hex."""
    export = otlp.traces(otlp.request_span(21), scope="another tool")
    span = export.resource_spans[0].scope_spans[0].spans[0]
    span.kind = Span.SPAN_KIND_SERVER
    document = json.loads(encoded(export, JSON))
    [told] = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    told |= {"kind": 2, "status": {"code": 2}, "traceId": told["traceId"].upper()}
    assert post(live, "traces", json.dumps(document).encode(), JSON).json() == {}
    [row] = [row for row in contents(live.settings.db)["span"] if span.trace_id.hex() in row]
    assert span.span_id.hex() in row


@EVERY
def test_unknown_json_fields_are_as_if_they_were_not_there(live: Live, signal: str) -> None:
    """MUST: a JSON receiver ignores fields whose names it does not know."""
    document = json.loads(encoded(exports.good(signal, 22), JSON))
    document["aFieldOfTheFuture"] = {"deep": [[{}]]}
    for resource in next(iter(v for k, v in document.items() if k.startswith("resource"))):
        resource["another"] = 1.5
    answer = post(live, signal, json.dumps(document).encode(), JSON)
    assert (answer.status_code, answer.json()) == (200, {})


@EVERY
def test_unknown_protobuf_fields_are_ignored(live: Live, signal: str) -> None:
    """MUST: versions of OTLP interoperate, which for an old server means to pass over new fields."""
    body = exports.good(signal).SerializeToString() + b"\xfa\x3f\x03new"  # field 1023
    answer = post(live, signal, body)
    assert (answer.status_code, answer.content) == (200, b"")


@TYPES
@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
def test_a_body_over_the_limit_is_413_also_when_it_is_so_after_decompression(
    live: Live, kind: str, encoding: str
) -> None:
    """MUST: the size is limited, after decompression too, and 413 says so."""
    body = {
        "identity": lambda: bytes(MIB + 1),
        "gzip": lambda: gzip.compress(bytes(2 * MIB + 1)),
        "zstd": lambda: zstd.compress(bytes(2 * MIB + 1)),
    }[encoding]()
    answer = post(live, "traces", body, kind, Content_Encoding=encoding)
    assert answer.status_code == 413
    assert "--max-" in read(answer, Status).message


def test_the_answer_is_limited_whatever_there_is_to_say(live: Live) -> None:
    """MUST: an answer has a size that a client reads (4 MiB); ours gives the most frequent reasons alone."""
    bad = [otlp.request_span(n, **{c.REQUEST_VERIFY_STEPS: (1 << 60) + n}) for n in range(800)]
    answer = post(live, "traces", otlp.traces(otlp.request_span(23), *bad))
    told = exports.responses("traces").FromString(answer.content).partial_success
    assert told.rejected_spans == 800
    assert "more" in told.error_message
    assert len(answer.content) < 16 << 10


@TYPES
def test_an_error_is_limited_whatever_was_sent(live: Live, kind: str) -> None:
    """MUST: an answer's size is limited: also of an error about many bad values, or a very long one."""
    bad = [otlp.request_span(n, **{c.REQUEST_VERIFY_STEPS: (1 << 60) + n}) for n in range(800)]
    long = otlp.request_span(**{c.REQUEST_UID: "x" * (MIB // 2)})
    for export in (otlp.traces(*bad), otlp.traces(long)):
        body = gzip.compress(encoded(export, kind))
        answer = post(live, "traces", body, kind, Content_Encoding="gzip")
        assert answer.status_code == 400
        assert read(answer, Status).message
        assert len(answer.content) < 16 << 10


@EVERY
@TYPES
def test_success_is_200_with_the_signals_message_and_no_partial_success(
    live: Live, signal: str, kind: str
) -> None:
    """MUST: 200, an Export<signal>ServiceResponse, ``partial_success`` unset; also for an empty export."""
    for message in (exports.good(signal), type(exports.good(signal))()):
        answer = post(live, signal, message, kind)
        assert answer.status_code == 200
        assert not read(answer, exports.responses(signal)).HasField("partial_success")


@REJECTING
@TYPES
def test_partial_success_is_200_with_the_count_and_the_reason(live: Live, signal: str, kind: str) -> None:
    """MUST: 200, the same message, ``partial_success`` with how much was rejected (and SHOULD: why)."""
    answer = post(live, signal, exports.partly(signal), kind)
    assert answer.status_code == 200
    told = read(answer, exports.responses(signal))
    assert exports.rejected(signal, told) == 2
    assert "(2 times)" in told.partial_success.error_message


@WARNING
@TYPES
def test_a_warning_rejects_nothing_and_has_words(live: Live, signal: str, kind: str) -> None:
    """MUST: a warning about what was taken has 0 rejected and a message that is not empty."""
    answer = post(live, signal, exports.warned(signal), kind)
    assert answer.status_code == 200
    told = read(answer, exports.responses(signal))
    assert told.HasField("partial_success")
    assert exports.rejected(signal, told) == 0
    assert told.partial_success.error_message


@EVERY
@TYPES
def test_what_cannot_be_decoded_is_400_and_says_what_is_bad(live: Live, signal: str, kind: str) -> None:
    """MUST: bad data is 400, each 4xx and 5xx body is a ``Status`` (SHOULD: with BadRequest in it)."""
    answer = post(live, signal, b"\xff{", kind)
    assert answer.status_code == 400
    told = read(answer, Status)
    assert told.message
    [detail] = told.details
    why = BadRequest()
    assert detail.Unpack(why)
    assert why.field_violations[0].description


@REJECTING
@TYPES
def test_an_export_that_is_all_bad_is_400(live: Live, signal: str, kind: str) -> None:
    """MUST: data that is invalid for good, with nothing beside it that could be taken, is 400."""
    answer = post(live, signal, exports.bad(signal), kind)
    assert answer.status_code == 400
    assert read(answer, Status).message


@EVERY
@TYPES
def test_failures_are_status_messages_whatever_they_are(live: Live, signal: str, kind: str) -> None:
    """MUST: a request that fails is 4xx or 5xx with a ``Status``: here method, path and encoding."""
    path = exports.PATHS[signal]
    headers = {"Content-Type": kind}
    for answer, status in (
        (live.client.put(path, headers=headers), 405),
        (live.client.post(f"{path}/more", headers=headers), 404),
        (post(live, signal, b"", kind, Content_Encoding="br"), 415),
    ):
        assert answer.status_code == status
        assert read(answer, Status).message


@EVERY
def test_without_the_token_nothing_is_read(tmp_path: Any, signal: str) -> None:
    """As HTTP has it: 401 with the scheme that is asked for. Pages do not need the token."""
    token = "0123456789abcdef-secret"
    with serving(f"sqlite:///{tmp_path / 'store.db'}", ingest_token=token) as live:
        for given in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": f"Basic {token}"},
            {"a": token},
        ):
            answer = post(live, signal, exports.good(signal), **given)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert token not in status_of(answer).message
        answer = post(live, signal, exports.good(signal), authorization=f"bearer {token}")
        assert answer.status_code == 200
        assert live.get("/api/v1/status")["ingest"]["refused"] == {"401": 4}
        assert token not in repr(live.settings)


def test_what_may_be_sent_again_says_when_within_5_seconds(tmp_path: Any) -> None:
    """SHOULD: throttling is 429 or 503; MAY: ``Retry-After``, here of at most 5 s."""
    with serving(f"sqlite:///{tmp_path / 'store.db'}", waiting_exports=0) as live:
        answer = post(live, "traces", exports.good("traces"))
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 5
        assert exports.retry_delay_s(status_of(answer)) == int(answer.headers["retry-after"])

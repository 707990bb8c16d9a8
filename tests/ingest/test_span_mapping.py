"""OTLP spans become the store's facts; hostile values are refused one span at a time."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from serverkit import otlp
from specscope import chunks, columns, rollup
from specscope import convention as c
from specscope_server.ingest import traces
from specscope_server.ingest.values import MAX_COUNT, MAX_TIME_NS
from specscope_server.store.told import SpanBatch


def test_request_span_tells_identity_state_and_totals() -> None:
    [batch], tally = traces.batches_of(otlp.traces(otlp.request_span(3)))
    [report] = batch.requests
    assert (tally.accepted, tally.rejected, tally.foreign) == (1, 0, 0)
    assert report.uid == otlp.request_uid(3)
    assert (report.rid, report.state, report.kind) == ("rid-3", "finished", "user")
    assert report.trace_id == otlp.request_span(3).trace_id.hex()
    assert report.arrival_ns == otlp.now_ns() - 5_000_000_000 + 3
    assert report.end_ns == otlp.now_ns() + 1_000_000
    assert (report.prompt_tokens, report.output_tokens, report.finish_reason) == (12, 20, "length")
    assert (report.cached_tokens, report.temperature, report.queue_s) == (None, None, None)
    assert (report.totals.verify_steps, report.totals.accepted, report.totals.bonus) == (8, 12, 8)


def test_resource_names_the_process() -> None:
    about = otlp.resource(specscope__rank__tp=3, specscope__environment=None)
    [batch], _ = traces.batches_of(otlp.traces(otlp.request_span(), about=about))
    process = batch.process
    assert (process.process_uid, process.instance, process.role) == (
        otlp.process(),
        otlp.INSTANCE,
        "scheduler",
    )
    assert (process.pid, process.tp, process.dp, process.serving_role) == (otlp.PID, 3, 0, "both")
    assert (process.workspace, process.environment, process.engine_name) == ("default", "default", "sglang")


def test_steps_span_is_a_chunk_and_a_report_of_a_running_request() -> None:
    span = otlp.steps_span(1)
    [batch], _ = traces.batches_of(otlp.traces(span))
    [report], [chunk] = batch.requests, batch.chunks
    assert (report.uid, report.state, report.end_ns) == (otlp.request_uid(1), "running", None)
    assert (chunk.uid, chunk.seq, chunk.first_step) == (report.uid, 0, 0)
    assert chunks.unpack_steps(chunk.steps) == otlp.step_rows()
    assert (chunk.start_ns, chunk.end_ns) == (span.start_time_unix_nano, span.end_time_unix_nano)


def test_engine_span() -> None:
    [batch], _ = traces.batches_of(otlp.traces(otlp.engine_span()))
    [report] = batch.engines
    assert (report.event, report.model, report.speculation) == ("start", "tiny-target", True)
    assert report.event_ns == otlp.now_ns()
    assert report.config["speculative"]["num_steps"] == 3


def test_rollup_span() -> None:
    [batch], _ = traces.batches_of(otlp.traces(otlp.rollup_span(5)))
    [increment] = batch.rollups
    assert (increment.seq, increment.bucket) == (5, rollup.bucket_start(otlp.now_ns()))
    assert dict(increment.rows) == otlp.rollup_rows()


def test_other_tools_spans_are_counted_apart() -> None:
    batches, tally = traces.batches_of(otlp.traces(otlp.request_span(), scope="sglang"))
    assert (batches, tally.foreign, tally.rejected) == ([], 1, 0)


def test_rank_span() -> None:
    [batch], tally = traces.batches_of(otlp.traces(otlp.rank_span([7, 9], size=4)))
    [report] = batch.ranks
    assert (tally.accepted, tally.rejected) == (1, 0)
    assert (report.first_step, report.last_step, report.size) == (7, 9, 4)
    assert report.event_ns == otlp.now_ns()
    assert chunks.unpack_ranks(report.sums) == [(7, 70, None), (9, 90, None)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({c.RANKS_STEPS: None}, "is missing"),
        ({c.RANKS_SIZE: None}, "is missing"),
        ({c.RANKS_SIZE: 1}, "not from 2 to"),
        ({c.RANKS_STEPS: b"nonsense"}, "SPSC"),
        ({c.RANKS_STEPS: chunks.pack_ranks([], [], [])}, "has no step"),
        ({c.RANKS_STEPS: chunks.pack_ranks([1 << 60], [1], [1])}, "beyond"),
        ({c.RANKS_STEPS: chunks.pack_ranks(range(300), range(300), range(300))}, "over the limit of 256"),
    ],
)
def test_bad_rank_span(changed: dict[str, Any], message: str) -> None:
    batches, tally = traces.batches_of(otlp.traces(otlp.rank_span([7], **changed)))
    assert (batches, tally.rejected) == ([], 1)
    assert message in tally.explain()


def test_of_a_request_the_caller_is_kept_and_of_a_chunk_it_is_not() -> None:
    spans = (otlp.request_span(3), otlp.steps_span(3))
    for span in spans:
        span.parent_span_id = bytes.fromhex("00f067aa0ba902b7")
    [batch], _ = traces.batches_of(otlp.traces(*spans))
    assert [report.parent_span_id for report in batch.requests] == ["00f067aa0ba902b7", ""]


def test_other_tools_spans_are_kept_small() -> None:
    span = otlp.span(
        "POST /generate\0" + "x" * 900,
        {"rid": "r" * 900, "n": 3, "ok": True, "s": 0.5, "list": ["a", "b"], "raw": b"\0"}
        | {f"more.{number}": number for number in range(40)},
    )
    span.parent_span_id = bytes(7) + b"\1"
    span.status.code = Status.STATUS_CODE_ERROR
    [batch], tally = traces.read(otlp.traces(span, scope="sglang"))
    assert isinstance(batch, SpanBatch)
    [kept] = batch.spans
    assert (batch.workspace, tally.foreign) == ("default", 1)
    assert (kept.trace_id, kept.span_id, kept.parent_id) == (
        span.trace_id.hex(),
        span.span_id.hex(),
        "0" * 15 + "1",
    )
    assert (kept.scope, kept.failed, len(kept.name), len(kept.attributes)) == ("sglang", True, 200, 24)
    assert "\0" not in kept.name
    assert kept.attributes["rid"] == "r" * 200
    assert {name: kept.attributes[name] for name in ("n", "ok", "s", "list", "raw")} == {
        "n": 3,
        "ok": True,
        "s": 0.5,
        "list": "a, b",
        "raw": "bytes",
    }


def test_span_of_a_newer_tracer_is_taken_and_not_kept() -> None:
    [batch], tally = traces.batches_of(otlp.traces(otlp.span("spec_decode.future", {}), otlp.request_span()))
    assert (tally.accepted, tally.foreign, tally.rejected) == (1, 1, 0)
    assert len(batch.requests) == 1


def _damaged(blob: bytes) -> bytes:
    return blob[:-1] + bytes((blob[-1] ^ 1,))


def _rollup(**counts: int) -> bytes:
    return rollup.pack({(rollup.ALL, "", rollup.STEP): rollup.Counts(**counts)})


def _slice(name: str) -> bytes:
    return rollup.pack({(rollup.CONTEXT, name, rollup.STEP): rollup.Counts(steps=1)})


def _steps(codec: int = columns.ZLIB) -> bytes:
    return chunks.pack_steps(otlp.step_rows(), tokens=False, codec=codec)


def _claiming(size: int) -> bytes:
    """Return steps whose header claims a body of another size."""
    blob = _steps()
    return blob[:8] + size.to_bytes(4, "little") + blob[12:]


BOMB = columns.encode({"dimension": [""] * 2_000_000}, codec=columns.ZLIB)

BAD_SPANS: dict[str, tuple[Span, str]] = {
    "rollup damaged": (
        otlp.rollup_span(**{c.ROLLUP_ROWS: _damaged(rollup.pack(otlp.rollup_rows()))}),
        "does not",
    ),
    "rollup not packed": (otlp.rollup_span(**{c.ROLLUP_ROWS: b"junk" * 9}), "SPSC"),
    "rollup missing": (otlp.rollup_span(**{c.ROLLUP_ROWS: None}), "missing"),
    "rollup bomb": (otlp.rollup_span(**{c.ROLLUP_ROWS: BOMB}), "over the limit"),
    "rollup count": (otlp.rollup_span(**{c.ROLLUP_ROWS: _rollup(steps=1 << 62)}), "too large"),
    "rollup slice with NUL": (otlp.rollup_span(**{c.ROLLUP_ROWS: _slice("a\0")}), "slice name"),
    "rollup slice too long": (otlp.rollup_span(**{c.ROLLUP_ROWS: _slice("a" * 65)}), "slice name"),
    "bucket off the grid": (otlp.rollup_span(**{c.ROLLUP_BUCKET: 1_700_000_001}), "multiple of 10"),
    "bucket absurd": (otlp.rollup_span(**{c.ROLLUP_BUCKET: 1 << 62}), c.ROLLUP_BUCKET),
    "negative sequence": (otlp.rollup_span(**{c.ROLLUP_SEQ: -1}), c.ROLLUP_SEQ),
    "steps not packed": (otlp.steps_span(**{c.CHUNK_STEPS: b"junk" * 9}), c.CHUNK_STEPS),
    "steps without a body": (otlp.steps_span(**{c.CHUNK_STEPS: _steps()[:16]}), "body of 0 bytes"),
    "steps of a newer version": (
        otlp.steps_span(**{c.CHUNK_STEPS: b"SPSC\x02" + _steps()[5:]}),
        "version 2",
    ),
    "steps over the limit": (
        otlp.steps_span(**{c.CHUNK_STEPS: _claiming(chunks.MAX_RAW + 1)}),
        "over the limit",
    ),
    "steps stored plain and cut": (
        otlp.steps_span(**{c.CHUNK_STEPS: _steps(columns.PLAIN)[:-1]}),
        "that it claims",
    ),
    "extends of no rows and columns": (otlp.steps_span(**{c.CHUNK_EXTENDS: _claiming(5)}), c.CHUNK_EXTENDS),
    "steps of an unknown codec": (
        otlp.steps_span(**{c.CHUNK_STEPS: b"SPSC\x01\x09" + bytes(10)}),
        "codec 9",
    ),
    "boundaries damaged": (otlp.request_span(**{c.REQUEST_BOUNDARIES: b"SPSC"}), c.REQUEST_BOUNDARIES),
    "no uid": (otlp.request_span(**{c.REQUEST_UID: None}), c.REQUEST_UID),
    "uid too short": (otlp.request_span(**{c.REQUEST_UID: "abc"}), "32 lower-case hex"),
    "uid a number": (otlp.request_span(**{c.REQUEST_UID: 7}), "is a int"),
    "unknown state": (otlp.request_span(**{c.REQUEST_STATE: "sleeping"}), "none of running"),
    "negative count": (otlp.request_span(**{c.REQUEST_ACCEPTED: -1}), c.REQUEST_ACCEPTED),
    "count past the limit": (otlp.request_span(**{c.REQUEST_ACCEPTED: MAX_COUNT + 1}), c.REQUEST_ACCEPTED),
    "tokens past 32 bits": (otlp.request_span(**{c.GEN_AI_INPUT_TOKENS: 1 << 31}), c.GEN_AI_INPUT_TOKENS),
    "temperature NaN": (otlp.request_span(**{c.GEN_AI_TEMPERATURE: float("nan")}), c.GEN_AI_TEMPERATURE),
    "arrival absurd": (otlp.request_span(**{c.REQUEST_ARRIVAL: MAX_TIME_NS + 1}), c.REQUEST_ARRIVAL),
    "reasons not texts": (otlp.request_span(**{c.GEN_AI_FINISH_REASONS: [1]}), "list of texts"),
    "start unset": (otlp.span(c.SPAN_REQUEST, otlp.request_values(0), start_ns=0), "span's start"),
    "end past 2^63": (
        otlp.span(c.SPAN_REQUEST, otlp.request_values(0), end_ns=(1 << 64) - 1),
        "span's end",
    ),
    "config not JSON": (otlp.engine_span(**{c.ENGINE_CONFIG: "{"}), "is not JSON"),
    "config nested too deeply": (otlp.engine_span(**{c.ENGINE_CONFIG: "[" * 9999}), "is not JSON"),
    "config deeper than answers can be": (
        otlp.engine_span(**{c.ENGINE_CONFIG: '{"a":' * 300 + "1" + "}" * 300}),
        "nested more than 64 deep",
    ),
    "config a list": (otlp.engine_span(**{c.ENGINE_CONFIG: "[]"}), "JSON object"),
    "config huge": (otlp.engine_span(**{c.ENGINE_CONFIG: " " * 300_000}), "at most"),
    "event with NUL": (otlp.engine_span(**{c.ENGINE_EVENT: "sta\0rt"}), "cannot be printed"),
}


@pytest.mark.parametrize("name", BAD_SPANS)
def test_bad_span_alone_is_rejected_with_its_reason(name: str) -> None:
    bad, reason = BAD_SPANS[name]
    [batch], tally = traces.batches_of(otlp.traces(otlp.request_span(1), bad, otlp.request_span(2)))
    assert (tally.accepted, tally.rejected) == (2, 1)
    assert reason in tally.explain()
    assert bad.name in tally.explain()
    assert [r.rid for r in batch.requests] == ["rid-1", "rid-2"]
    assert (batch.engines, batch.chunks, batch.rollups) == ((), (), ())


def test_the_body_of_steps_is_not_opened_and_so_is_stored_as_it_came() -> None:
    damaged, many = _damaged(_steps()), columns.encode({"step": list(range(9999))})
    spans = (otlp.steps_span(1, **{c.CHUNK_STEPS: damaged}), otlp.steps_span(2, **{c.CHUNK_EXTENDS: many}))
    [batch], tally = traces.batches_of(otlp.traces(*spans))
    assert (tally.accepted, tally.rejected) == (2, 0)
    assert (batch.chunks[0].steps, batch.chunks[1].extends) == (damaged, many)


@pytest.mark.parametrize(
    ("field", "value"),
    [("trace_id", b""), ("trace_id", bytes(16)), ("span_id", b"123"), ("span_id", bytes(8))],
)
def test_ids_of_wrong_length_or_all_zero_are_rejected(field: str, value: bytes) -> None:
    bad = otlp.request_span()
    setattr(bad, field, value)
    _, tally = traces.batches_of(otlp.traces(bad))
    assert (tally.accepted, tally.rejected) == (0, 1)
    assert field.replace("_", " ") in tally.explain()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"specscope__process": None}, "specscope.process is missing"),
        ({"specscope__instance": ""}, "specscope.instance is missing"),
        ({"specscope__instance": "x" * 129}, "at most 128"),
        ({"specscope__wire": None}, "specscope.wire is missing"),
        ({"specscope__wire": 2}, "update the server"),
        ({"specscope__wire": 0}, "update the tracer"),
        ({"specscope__process__role": "cook"}, "none of api"),
        ({"process__pid": -4}, "process.pid"),
        ({"specscope__process__start_time_ns": 0}, "start_time_ns"),
        ({"specscope__rank__tp": 1 << 40}, "specscope.rank.tp"),
        ({"specscope__workspace": "a\0b"}, "cannot be printed"),
    ],
)
def test_bad_resource_rejects_all_of_its_spans_and_no_others(changed: dict[str, Any], reason: str) -> None:
    export = ExportTraceServiceRequest()
    bad = otlp.traces(otlp.request_span(1), otlp.rollup_span(), about=otlp.resource(**changed))
    export.resource_spans.extend(bad.resource_spans)
    export.resource_spans.extend(otlp.traces(otlp.request_span(2)).resource_spans)
    [batch], tally = traces.batches_of(export)
    assert (tally.accepted, tally.rejected) == (1, 2)
    assert reason in tally.explain()
    assert [r.rid for r in batch.requests] == ["rid-2"]


def test_reason_that_quotes_the_client_is_bounded() -> None:
    key = (rollup.CONTEXT, "x" * 100_000, rollup.STEP)
    doubled = columns.encode(
        {"dimension": [key[0]] * 2, "slice": [key[1]] * 2, "position": [key[2]] * 2}
        | {name: [1, 1] for name in rollup.COUNT_FIELDS}
    )
    _, tally = traces.batches_of(otlp.traces(otlp.rollup_span(**{c.ROLLUP_ROWS: doubled})))
    assert tally.rejected == 1
    assert 300 < len(tally.explain()) < 310


def test_texts_are_cleaned_and_cut_with_a_note() -> None:
    rid = "a\0b" + "é" * 600
    [batch], tally = traces.batches_of(otlp.traces(otlp.request_span(**{c.GEN_AI_REQUEST_ID: rid})))
    assert batch.requests[0].rid == "a\ufffdb" + "é" * 509
    assert tally.rejected == 0
    assert "cut to 512" in tally.explain()


def test_config_is_cleaned_of_what_databases_refuse() -> None:
    text = r'{"a\u0000": "x\u0000\ud800", "b": [1e999, NaN, 3]}'
    [batch], _ = traces.batches_of(otlp.traces(otlp.engine_span(**{c.ENGINE_CONFIG: text})))
    assert batch.engines[0].config == {"a\ufffd": "x\ufffd?", "b": ["inf", "nan", 3]}


def test_of_a_rank_blob_only_our_columns_are_kept() -> None:
    told = {"step": [1, 2], "proposals": [3, None], "accepts": [None, 4], "junk": ["x" * 100_000] * 2}
    blob: dict[str, Any] = {c.RANKS_STEPS: columns.encode(told, codec=0)}
    [batch], _ = traces.batches_of(otlp.traces(otlp.rank_span([1], **blob)))
    [report] = batch.ranks
    assert len(report.sums) < 1000
    assert chunks.unpack_ranks(report.sums) == [(1, 3, None), (2, None, 4)]

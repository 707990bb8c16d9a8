"""The golden files of wire version 1: ``python -m wirekit.golden`` (in ``tests``) writes them anew.

They freeze the wire. Writing them anew changes what every receiver of version 1 must understand; it is
right only before the first release of a version, or for a new ``vN`` folder.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics.export import NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan
from specscope import chunks, columns, hidden, hidden_rollup, identity, rollup
from specscope import convention as c
from specscope.exporter import spans as spans_module
from specscope.exporter.metrics import build as build_metrics
from specscope.exporter.pipeline import Pipeline

from wirekit import traffic
from wirekit.receiver import spans_of

FOLDER: Final = Path(__file__).parents[1] / "wire" / "v1"
VERSION: Final = "0.0.0"
"""Stands for the tracer's version in the golden request, which must not change with each release."""

TABLES: Final[dict[str, tuple[dict[str, Any], tuple[str, ...]]]] = {
    "empty": ({}, ()),
    "no_rows": ({"step": [], "mode": []}, ()),
    "widths": (
        {
            "one": [-128, 127],
            "two": [-129, 128],
            "four": [-32769, 32768],
            "eight": [-(1 << 63), (1 << 63) - 1],
        },
        (),
    ),
    "differences": (
        {"t": [1_790_000_000_000_000_000, 1_790_000_000_020_000_000, 1_790_000_000_019_000_000]},
        ("t",),
    ),
    "absent": (
        {
            "count": [0, None, 3],
            "share": [None, 0.5, 0.0],
            "mode": ["", None, "graph"],
            "ids": [[], [1], None],
        },
        (),
    ),
    "texts": ({"mode": ["graph", "eager", "graph", "größer"]}, ()),
    "lists": ({"draft_tokens": [[5, 6, 70_000], [], [-1]]}, ()),
    "floats": ({"rms": [0.1, -1e30, 586.0]}, ()),
}
PASSES: Final = tuple((kind, bits) for kind in c.PASS_KINDS for bits in (1, 3))
"""Kinds of timed passes by the bits of the size of the batch."""
RIDS: Final = ("cmpl-1", "größer", "", "a" * 300)


def identities() -> dict[str, Any]:
    """Return ids of every kind with the facts that they are made of."""
    ranks = identity.Ranks(tp=1, dp=2, pp=3, serving_role="decode")
    process = identity.process_uid(traffic.INSTANCE, "worker", ranks, 4242, traffic.WALL)
    uids = [identity.request_uid(traffic.INSTANCE, dp, rid, dp) for dp, rid in enumerate(RIDS)]
    ordinals = identity.ArrivalOrdinals()
    return {
        "process": [[traffic.INSTANCE, "worker", 1, 2, 3, "decode", 4242, traffic.WALL], process],
        "requests": [[[traffic.INSTANCE, dp, rid, dp], uids[dp]] for dp, rid in enumerate(RIDS)],
        "trace_ids": [f"{identity.trace_id(uid):032x}" for uid in uids],
        "request_span_ids": [f"{identity.request_span_id(uid):016x}" for uid in uids],
        "chunk_span_ids": [f"{identity.chunk_span_id(process, uids[0], seq):016x}" for seq in range(3)],
        "engine_span_ids": [
            f"{identity.process_span_id(process, c.SPAN_ENGINE, seq):016x}" for seq in range(3)
        ],
        "process_trace_id": f"{identity.process_trace_id(process):032x}",
        "ordinals": [[rid, ordinals.next(rid)] for rid in (*RIDS, *RIDS, RIDS[0])],
    }


def tables(codec: int) -> dict[str, Any]:
    """Return the tables above with their blobs as hex."""
    return {
        name: {
            "columns": table,
            "differences": list(delta),
            "blob": columns.encode(table, delta=delta, codec=codec).hex(),
        }
        for name, (table, delta) in TABLES.items()
    }


def spans() -> list[ReadableSpan]:
    """Return the spans of the fixed story, payloads packed without compression."""
    found: list[ReadableSpan] = []
    pipeline = Pipeline(traffic.hello(), found.append, codec=columns.PLAIN)
    for record in traffic.story():
        pipeline.take(record, record.t_ns)
    pipeline.take_beat(traffic.beat())
    pipeline.tick(traffic.MONOTONIC + 1000 * traffic.MS, last=True)
    return found


def request() -> ExportTraceServiceRequest:
    """Return the fixed story as one export."""
    message = encode_spans(spans())
    for resource in message.resource_spans:
        for attribute in resource.resource.attributes:
            if attribute.key == c.TRACER_VERSION:
                attribute.value.string_value = VERSION
        for scope in resource.scope_spans:
            scope.scope.version = VERSION
    return message


def readable(message: ExportTraceServiceRequest) -> list[dict[str, Any]]:
    """Return an export as JSON-able values, every blob decoded."""
    found: list[dict[str, Any]] = []
    for span in spans_of(message):
        one = asdict(span)
        one["attributes"] = {key: _readable(key, value) for key, value in span.attributes.items()}
        found.append(one)
    return found


def _readable(key: str, value: Any) -> Any:
    if key == c.CHUNK_STEPS:
        return [asdict(row) for row in chunks.unpack_steps(value)]
    if key == c.CHUNK_EXTENDS:
        return [asdict(row) for row in chunks.unpack_extends(value)]
    if key == c.CHUNK_HIDDEN:
        return [asdict(row) for row in hidden.unpack(value)]
    if key == c.CHUNK_PROMPT:
        return chunks.unpack_prompt(value)
    if key == c.ROLLUP_HIDDEN:
        return [[*k, *asdict(sums).values()] for k, sums in sorted(hidden_rollup.unpack(value).items())]
    if key == c.REQUEST_BOUNDARIES:
        expected, observed = chunks.unpack_boundaries(value)
        return [[*k, n] for k, n in sorted(expected.items())], [[*k, n] for k, n in sorted(observed.items())]
    if key == c.RANKS_STEPS:
        looks = [chunks.unpack_rank_looks(value, name) for name in chunks.RANK_LOOKS]
        rows = zip(chunks.unpack_ranks(value), *looks, strict=True)
        return [[*row, *(look for look in told if look is not None)] for row, *told in rows]
    if key == c.ROLLUP_ROWS:
        return [[*k, *asdict(counts).values()] for k, counts in sorted(rollup.unpack(value).items())]
    return value


def metrics() -> list[dict[str, Any]]:
    """Return every metric of a heartbeat of a process that ends, point by point."""
    beat = replace(
        traffic.beat(dropped={"queue_full": 1}),
        missed={"late": 2},
        pass_times=dict.fromkeys(PASSES, (70, 910)),
    )
    told = build_metrics(
        spans_module.resource(traffic.hello(), None),
        traffic.WALL,
        traffic.WALL + 1,
        beat,
        speculation=True,
        dropped={"rejected": 3},
        export_failures=4,
        ended_ns=traffic.WALL + 1,
    )
    found: list[dict[str, Any]] = []
    for of_resource in told.resource_metrics:
        for metric in (one for scope in of_resource.scope_metrics for one in scope.metrics):
            kind = type(metric.data).__name__.lower()
            for point in metric.data.data_points:
                assert isinstance(point, NumberDataPoint)
                one = {"name": metric.name, "kind": kind, "unit": metric.unit}
                found.append(one | {"labels": dict(point.attributes or {}), "value": point.value})
    return found


def rollup_rows() -> dict[rollup.Key, rollup.Counts]:
    """Return the rollup of the fixed story."""
    for span in spans():
        if span.name == c.SPAN_ROLLUP and span.attributes:
            blob = span.attributes[c.ROLLUP_ROWS]
            assert isinstance(blob, bytes)
            return rollup.unpack(blob)
    raise AssertionError("the fixed story has no rollup")


def plain(value: Any) -> Any:
    """Return a value as JSON gives it back: tuples as lists."""
    return json.loads(json.dumps(value))


def write() -> None:
    """Write all golden files."""
    FOLDER.mkdir(parents=True, exist_ok=True)

    def put(name: str, value: Any) -> None:
        text = json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True)
        (FOLDER / name).write_text(text + "\n", encoding="utf-8")

    put("identity.json", identities())
    put("metrics.json", metrics())
    put("columns.json", {"zlib": tables(columns.ZLIB), "plain": tables(columns.PLAIN)})
    rows = rollup_rows()
    put(
        "rollup.json",
        {
            "rows": [[*key, *asdict(counts).values()] for key, counts in sorted(rows.items())],
            "zlib": rollup.pack(rows, codec=columns.ZLIB).hex(),
        },
    )
    message = request()
    (FOLDER / "request.hex").write_text(_lines(message.SerializeToString(deterministic=True).hex()))
    put("request.json", readable(message))


def _lines(text: str) -> str:
    return "".join(text[at : at + 100] + "\n" for at in range(0, len(text), 100))


if __name__ == "__main__":
    write()

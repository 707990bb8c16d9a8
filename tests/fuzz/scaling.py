"""Traps by size: inputs that grow, measured as they double. Time must grow with the bytes, and no faster.

Each family gives a request of about ``n`` things. It is doubled until a request takes half a second of CPU
or reaches the receiver's limit; the exponent is that of the last doublings (1: linear, 2: quadratic). What
the whole limit would cost is told too: one export is decoded at a time, and the others wait for it.
"""

from __future__ import annotations

import gzip
import json
import math
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import zstandard
from google.protobuf.message import Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from serverkit import otlp
from specscope import columns
from specscope import convention as c

from fuzz.blobs import sealed
from fuzz.case import JSON, Case
from fuzz.world import World

LIMIT: Final = 16 << 20
"""Bytes of a body as sent, the receiver's default."""
ENOUGH_S: Final = 0.5
FOLLOWED_S: Final = 10.0
STEEP: Final = 1.5
"""Exponent from which on a family is called steep; noise on a busy machine gives up to 1.2."""
LONG_S: Final = 60.0
"""Seconds of CPU for one export of the largest size that are called long."""

_ZSTD = (("content-type", "application/x-protobuf"), ("content-encoding", "zstd"))


def _proto(message: Message, path: str = "/v1/traces") -> Case:
    return Case(message.SerializeToString(), path)


def _json(text: str, path: str = "/v1/traces") -> Case:
    return Case(text.encode(), path, headers=(("content-type", JSON),))


def _tag(number: int, body: bytes) -> bytes:
    """A protobuf field of bytes; lets a body be built that no library would build quickly."""
    size, length = len(body), b""
    while size > 127:
        length += bytes((size & 127 | 128,))
        size >>= 7
    return bytes((number << 3 | 2,)) + length + bytes((size,)) + body


def _spans(n: int, span: bytes, scope: str = c.SCOPE_NAME) -> Case:
    scoped = _tag(1, _tag(1, scope.encode())) + n * _tag(2, span)
    resource = _tag(1, otlp.resource().SerializeToString())
    return Case(_tag(1, resource + _tag(2, scoped)))


def _with(name: str, blob: bytes, base: Callable[..., Any], n: int) -> Case:
    """``n`` spans of ours that carry a blob."""
    return _spans(n, base(**{name: blob}).SerializeToString())


def _bare(body: bytes) -> bytes:
    return sealed(body, columns.ZSTD)


def _column(name: str, kind: int, data: bytes) -> bytes:
    return bytes((len(name),)) + name.encode() + struct.pack("<BBI", kind, 0, len(data)) + data


def _texts(n: int) -> bytes:
    """A blob of one column with a table of ``n`` empty texts and no row."""
    data = struct.pack("<I", n) + bytes(4 * n) + b"\0"
    return _bare(struct.pack("<IH", 0, 1) + _column("boundary", 2, data))


def _lists(n: int) -> bytes:
    """A blob of one row that is a list of ``n`` numbers."""
    data = b"\3" + struct.pack("<q", n) + struct.pack("<I", n) + b"\0" + bytes(n)
    return _bare(struct.pack("<IH", 1, 1) + _column("boundary", 3, data))


def _empty_columns(n: int) -> bytes:
    return _bare(struct.pack("<IH", 0, min(n, 65_535)) + min(n, 65_535) * _column("", 0, b"\0"))


def _nested(depth: int) -> Case:
    value = AnyValue(int_value=1)
    for _ in range(min(depth, 48)):
        outer = AnyValue()
        outer.array_value.values.append(value)
        value = outer
    span = otlp.request_span(0)
    span.attributes.add(key="deep", value=value)
    return _spans(depth, span.SerializeToString(), "other")


def _attributes(n: int, key: Callable[[int], str]) -> Case:
    span = otlp.request_span(0)
    pairs = (KeyValue(key=key(i), value=AnyValue(int_value=i)).SerializeToString() for i in range(n))
    return _spans(1, span.SerializeToString() + b"".join(_tag(9, pair) for pair in pairs))


def _json_spans(n: int, span: str) -> Case:
    spans = ",".join([span] * n)
    return _json('{"resourceSpans":[{"scopeSpans":[{"scope":{"name":"x"},"spans":[' + spans + "]}]}]}")


def _reasons(n: int) -> Case:
    """``n`` spans that are rejected, each for a reason of its own."""
    spans = (otlp.request_span(0, **{c.GEN_AI_INPUT_TOKENS: -1 - i}) for i in range(n))
    return _spans(1, b"") if n == 0 else _join(one.SerializeToString() for one in spans)


def _join(spans: Iterable[bytes], scope: str = c.SCOPE_NAME) -> Case:
    scoped = _tag(1, _tag(1, scope.encode())) + b"".join(_tag(2, span) for span in spans)
    return Case(_tag(1, _tag(1, otlp.resource().SerializeToString()) + _tag(2, scoped)))


def _points(n: int, *, same: bool) -> Case:
    labels = ({c.LABEL_KIND: "x" if same else f"kind-{i}"} for i in range(n))
    points = [otlp.point(1, one) for one in labels]
    return _proto(otlp.metrics(otlp.total(c.METRIC_REQUESTS, *points)), "/v1/metrics")


def _beats(n: int) -> Case:
    """``n`` heartbeats in one export."""
    points = [otlp.point(1.0 + i, time_ns=otlp.now_ns() + i * 1000) for i in range(n)]
    return _proto(otlp.metrics(otlp.gauge(c.METRIC_HEARTBEAT, *points)), "/v1/metrics")


def _zipped(raw: bytes, n: int) -> Case:
    """``n`` gzip members."""
    headers = (("content-type", JSON), ("content-encoding", "gzip"))
    return Case(gzip.compress(raw, mtime=0) * n, headers=headers)


def _frames(raw: bytes, n: int) -> Case:
    return Case(zstandard.compress(raw) * n, headers=_ZSTD)


def _config(text: str) -> Case:
    return _proto(otlp.traces(otlp.engine_span(**{c.ENGINE_CONFIG: text})))


FAMILIES: Final[dict[str, Callable[[int], Case]]] = {
    "empty spans": lambda n: _spans(n, b""),
    "empty spans of another tool": lambda n: _spans(n, b"", "other"),
    "request spans of one request": lambda n: _spans(n, otlp.request_span(0).SerializeToString()),
    "spans of another tool": lambda n: _spans(n, otlp.request_span(0).SerializeToString(), "other"),
    "resources": lambda n: Case(_tag(1, b"") * n),
    "scopes": lambda n: Case(_tag(1, _tag(2, b"") * n)),
    "attributes": lambda n: _attributes(n, "key-{}".format),
    "attributes of one key": lambda n: _attributes(n, lambda _: "same"),
    "nested values": _nested,
    "rejections, each for its own reason": _reasons,
    "points of one series": lambda n: _points(n, same=True),
    "points, each a series": lambda n: _points(n, same=False),
    "heartbeats": _beats,
    "unknown fields": lambda n: Case(_tag(15, b"x") * n),
    "chunk spans with small bombs": lambda n: _with(c.CHUNK_STEPS, _bare(bytes(4 << 20)), _steps, n),
    "rollup spans with small bombs": lambda n: _with(c.ROLLUP_ROWS, _bare(bytes(1 << 20)), _rollup, n),
    "request spans with tables of texts": lambda n: _with(
        c.REQUEST_BOUNDARIES, _texts(1_000_000), _request, n
    ),
    "request spans with long lists": lambda n: _with(c.REQUEST_BOUNDARIES, _lists(4_000_000), _request, n),
    "request spans with empty columns": lambda n: _with(
        c.REQUEST_BOUNDARIES, _empty_columns(65_535), _request, n
    ),
    "JSON spans": lambda n: _json_spans(n, "{}"),
    "JSON unknown fields": lambda n: _json("{" + ",".join(f'"f{i}":{i}' for i in range(n)) + "}"),
    "JSON depth": lambda n: _json('{"a":' + "[" * n + "]" * n + "}"),
    "JSON strings with escapes": lambda n: _json('{"a":"%s"}' % ("\\u00e4" * n)),
    "JSON digits": lambda n: _json('{"a":%s}' % ("9" * n)),
    "JSON fraction": lambda n: _json('{"a":0.%s}' % ("9" * n)),
    "JSON exponent": lambda n: _json('{"a":1e%s}' % ("9" * n)),
    "JSON ids": lambda n: _json_spans(1, '{"traceId":"%s"}' % ("ab" * n)),
    "JSON white space": lambda n: _json(" " * n + "{}"),
    "configuration depth": lambda n: _config("[" * n + "]" * n),
    "configuration width": lambda n: _config(json.dumps({str(i): i for i in range(n)})),
    "gzip members": lambda n: _zipped(b"{}", n),
    "empty gzip members": lambda n: _zipped(b"", n),
    "zstd frames": lambda n: _frames(b"", n),
    "headers": lambda n: Case(b"", headers=tuple((f"x-{i}", "y") for i in range(min(n, 2000)))),
    "query": lambda n: Case(b"", "/api/v1/requests?text=" + "x" * n, "GET", ()),
    "query parameters": lambda n: Case(b"", "/api/v1/requests?" + "&".join(["text=x"] * n), "GET", ()),
}


def _steps(**changed: Any) -> Any:
    return otlp.steps_span(0, **changed)


def _rollup(**changed: Any) -> Any:
    return otlp.rollup_span(0, **changed)


def _request(**changed: Any) -> Any:
    return otlp.request_span(0, **changed)


@dataclass(frozen=True)
class Growth:
    """How a family grew: the largest request, its bytes and CPU seconds, the exponent, the longest of all."""

    name: str
    count: int
    size: int
    seconds: float
    exponent: float
    status: int
    longest_s: float

    @property
    def whole_s(self) -> float:
        """CPU seconds of a body of the largest size, were it to grow on as it did."""
        if self.status == 413 or self.size < 4096:
            return self.longest_s
        return self.seconds * (LIMIT / self.size) ** max(1.0, self.exponent)

    @property
    def complaint(self) -> str:
        """What is wrong with it, empty when nothing is."""
        if self.status >= 500:
            return f"answered with {self.status}"
        if self.exponent > STEEP and self.seconds > ENOUGH_S / 2:
            return "steep"
        return "long" if self.whole_s > LONG_S else ""


def grow(world: World, name: str, most_s: float = ENOUGH_S) -> Growth:
    """Double a family until it takes ``most_s`` seconds of CPU or is refused for its size."""
    sizes: list[tuple[int, float]] = []
    n, status, took = 1, 0, 0.0
    while True:
        case = FAMILIES[name](n)
        took, status = min(_time(world, case) for _ in range(2 if took < 0.1 else 1))
        sizes.append((len(case.body) + len(case.path), took))
        whole = took * LIMIT / max(1, len(case.body))
        # What would be long is followed further: a limit may end it before it is.
        enough = took > most_s and (whole <= LONG_S or took > FOLLOWED_S)
        if enough or status == 413 or len(case.body) > LIMIT // 2 or n >= 1 << 24:
            break
        n *= 2
    recent = [pair for pair in sizes if pair[1] > took / 10][-4:]
    (first, low), (last, high) = recent[0], recent[-1]
    exponent = math.log(high / low) / math.log(last / first) if last > 1.5 * first and low else 0.0
    return Growth(name, n, sizes[-1][0], took, exponent, status, max(pair[1] for pair in sizes))


def _time(world: World, case: Case) -> tuple[float, int]:
    began = time.process_time()
    answer = world.ask(case)
    return time.process_time() - began, answer.status

"""Mutations that keep the structure: of protobuf messages, JSON documents, framing and headers.

A flipped bit hardly ever gets past a checksum, a compressor or a parser. These go behind them: they take a
case apart as far as it can be read, change one thing, and put it together again.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import quote

import zstandard
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from specscope import columns

from fuzz.blobs import INFLATED, MOST, NUMBERS, Dice, bytewise, packed
from fuzz.case import JSON, PROTOBUF, Case, parse

REALS: Final = (0.0, -0.0, 1e-320, 1e38, 1e39, 1e300, 1e308, math.nan, math.inf, -math.inf, -1.0, 0.5)
TEXTS: Final = (
    *("", "\0", "a\0b", "x" * 129, "y" * 600, "ä" * 300, "\U0010ffff", "\u202e", "\r\n", "%00", "../../x"),
    *(
        "'; DROP TABLE request; --",
        "{{7*7}}",
        "<script>",
        "NaN",
        "-1",
        "1e999",
        "9" * 5000,
        "null",
        "[" * 200,
    ),
    *("f" * 32, "F" * 32, "0" * 32, "running", "finished", "user", "scheduler", "start"),
)
TYPES: Final = (PROTOBUF, JSON, "", "text/plain", "application/json; charset=latin-1", "application/grpc")
ENCODINGS: Final = ("gzip", "zstd", "identity", "", "br", "deflate", "gzip, gzip", "GZIP", "x" * 300)
PATHS: Final = ("/v1/traces", "/v1/metrics", "/v1/logs", "/v1/", "/v1/traces/", "/v1/%00", "/v1/traces?x=1")
METHODS: Final = ("POST", "GET", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH")
MESSAGES: Final[dict[str, type[Message]]] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


# --- protobuf -----------------------------------------------------------------------------------------


def message(found: Message, dice: Dice) -> None:
    """Change one field somewhere in a message."""
    places = _places(found)
    if not places:
        return
    parent, field = dice.choice(places)
    if not field.is_repeated:
        _set(parent, field, dice)
        return
    values = getattr(parent, field.name)
    way = dice.randrange(5)
    if way == 0 and len(values):
        del values[dice.randrange(len(values))]
    elif way == 1 and len(values):
        times = dice.choice((1, 2, 16, 200)) if found.ByteSize() < 20_000 else 1
        one = dice.choice(values)
        values.extend([one] * times)
    elif way == 2:
        del values[:]
    elif field.type != FieldDescriptor.TYPE_MESSAGE and len(values):
        values[dice.randrange(len(values))] = _scalar(field, dice)
    elif len(values) and field.message_type is not None:
        message(dice.choice(values), dice)


def _places(found: Message) -> list[tuple[Message, Any]]:
    """Every (message, field) that is set, down to all depths; a huge message gives its first ones."""
    places: list[tuple[Message, Any]] = []
    pending = [found]
    while pending and len(places) < 3000:
        node = pending.pop()
        for field, value in node.ListFields():
            places.append((node, field))
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                pending.extend(value if field.is_repeated else [value])
        # Fields that are not set may be, too.
        places += [(node, field) for field in node.DESCRIPTOR.fields[:2]]
    return places


def _set(parent: Message, field: Any, dice: Dice) -> None:
    if field.type == FieldDescriptor.TYPE_BYTES and (old := getattr(parent, field.name)):
        setattr(parent, field.name, packed(old, dice) if old[:4] == columns.MAGIC else bytewise(old, dice))
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        if dice.random() < 0.3:
            parent.ClearField(field.name)
        elif isinstance(getattr(parent, field.name), AnyValue):
            _any_value(getattr(parent, field.name), dice)
        else:
            getattr(parent, field.name).SetInParent()
    elif dice.random() < 0.1:
        parent.ClearField(field.name)
    else:
        setattr(parent, field.name, _scalar(field, dice))


def _any_value(value: AnyValue, dice: Dice) -> None:
    way = dice.randrange(7)
    if way == 0:
        value.string_value = dice.choice(TEXTS)
    elif way == 1:
        value.int_value = _fit(dice.choice(NUMBERS), 64, signed=True)
    elif way == 2:
        value.double_value = dice.choice(REALS)
    elif way == 3:
        value.bool_value = bool(dice.randrange(2))
    elif way == 4:
        value.bytes_value = dice.randbytes(dice.choice((0, 1, 16, 2000)))
    elif way == 5:
        for _ in range(dice.choice((1, 10, 45, 90))):  # protobuf itself stops at a hundred
            value.array_value.SetInParent()
            value = value.array_value.values.add()
    else:
        for number in range(dice.choice((0, 1, 50, 1000))):
            pair = value.kvlist_value.values.add()
            pair.key, pair.value.int_value = str(number % 7), number


def _fit(number: int, bits: int, *, signed: bool) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if signed and number >> (bits - 1) else number


def _scalar(field: Any, dice: Dice) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        text = dice.choice(TEXTS)
        return (
            dice.randbytes(dice.choice((0, 8, 16, 17))) if field.type == FieldDescriptor.TYPE_BYTES else text
        )
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return dice.choice(REALS)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return bool(dice.randrange(2))
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return dice.choice((0, 1, 2, 3, 99))
    wide = kind in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
    signed = kind in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_INT32)
    return _fit(dice.choice(NUMBERS), 64 if wide else 32, signed=signed)


# --- JSON ---------------------------------------------------------------------------------------------


def document(found: Any, dice: Dice) -> Any:
    """Change one value somewhere in a JSON document, and return it."""
    places: list[tuple[Any, Any]] = []
    pending: list[Any] = [found]
    while pending and len(places) < 3000:
        node = pending.pop()
        for key in keys_of(node):
            places.append((node, key))
            pending.append(node[key])
    if not places:
        return _any_json(dice)
    parent, key = dice.choice(places)
    way = dice.randrange(6)
    if way == 0:
        del parent[key]
    elif way == 1 and type(parent) is list:
        values = cast("list[Any]", parent)
        values.extend([values[key]] * dice.choice((1, 5, 100)))
    elif way == 2 and type(parent) is dict:
        parent[dice.choice(TEXTS[:-8])] = cast("dict[Any, Any]", parent).pop(key)
    else:
        parent[key] = _any_json(dice)
    return found


def keys_of(node: Any) -> list[Any]:
    """The keys of an object, the indices of a list; anything else has none."""
    if type(node) is dict:
        return list(cast("dict[Any, Any]", node))
    return list(range(len(cast("list[Any]", node)))) if type(node) is list else []


def _any_json(dice: Dice) -> Any:
    way = dice.randrange(7)
    if way == 0:
        deep: Any = 1
        for _ in range(dice.choice((5, 60, 110, 900))):
            deep = [deep] if dice.randrange(2) else {"arrayValue": {"values": [deep]}}
        return deep
    if way == 1:
        return {str(n): n for n in range(dice.choice((0, 3, 500)))}
    plain: tuple[Any, ...] = (
        dice.choice(TEXTS),
        dice.choice(NUMBERS),
        dice.choice(REALS),
        None,
        True,
        [],
        {},
    )
    return dice.choice(plain)


# --- whole cases --------------------------------------------------------------------------------------


def case(data: bytes, dice: Dice, other: Callable[[bytes], bytes] | None = None) -> bytes:
    """Change a request; ``other`` is another mutation of bytes, where the fuzzer has one."""
    found = parse(data)
    if found.method != "POST" or not found.path.startswith("/v1/"):
        return _query(found, dice).to_bytes()
    if dice.random() < 0.08:
        return _headers(found, dice).to_bytes()
    encoding = found.header("content-encoding")
    raw = _inflated(found.body, encoding)
    if raw is None:
        return Case(bytewise(found.body, dice), found.path, found.method, found.headers).to_bytes()
    for _ in range(dice.choice((1, 1, 2, 3))):
        raw = _content(raw, found, dice, other)[:MOST]
    body = _framed(raw, encoding, dice)
    return Case(body, found.path, found.method, found.headers).to_bytes()


def content(data: bytes, dice: Dice, other: Callable[[bytes], bytes] | None = None) -> bytes:
    """Change what a request without encoding says, and nothing else."""
    found = parse(data)
    raw = _content(found.body, found, dice, other)[:MOST]
    return Case(raw, found.path, found.method, found.headers).to_bytes()


def _content(raw: bytes, found: Case, dice: Dice, other: Callable[[bytes], bytes] | None) -> bytes:
    if dice.random() < 0.15:
        return other(raw) if other is not None and dice.random() < 0.5 else bytewise(raw, dice)
    if found.header("content-type").startswith(JSON):
        try:
            return json.dumps(document(json.loads(raw), dice)).encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError):
            return bytewise(raw, dice)
    kind = MESSAGES.get(found.path)
    if kind is None:
        return bytewise(raw, dice)
    read = kind()
    try:
        read.ParseFromString(raw)
        message(read, dice)
        return read.SerializeToString()
    except (DecodeError, ValueError, TypeError):
        return bytewise(raw, dice)


def _inflated(body: bytes, encoding: str) -> bytes | None:
    try:
        if encoding == "gzip":
            return zlib.decompressobj(31).decompress(body, INFLATED)
        if encoding == "zstd":
            return zstandard.ZstdDecompressor().stream_reader(body).read(INFLATED)
    except (zlib.error, zstandard.ZstdError):
        return None
    return body


def _framed(raw: bytes, encoding: str, dice: Dice) -> bytes:
    if encoding == "gzip":
        body = gzip.compress(raw, 1, mtime=0)
    elif encoding == "zstd":
        body = zstandard.ZstdCompressor(level=1).compress(raw)
    else:
        return raw
    if dice.random() > 0.1:
        return body
    way = dice.randrange(5)
    if way == 0:
        return body[: dice.randrange(len(body) + 1)]
    if way == 1:
        return body + dice.randbytes(dice.choice((1, 20, 300)))
    if way == 2:
        return body * dice.choice((2, 5, 120))
    if way == 3:
        return body + _framed(bytes(INFLATED), encoding, Dice(0))
    return bytewise(body, dice)


def _headers(found: Case, dice: Dice) -> Case:
    way = dice.randrange(6)
    if way == 0:
        return Case(found.body, dice.choice(PATHS), found.method, found.headers)
    if way == 1:
        return Case(found.body, found.path, dice.choice(METHODS), found.headers)
    if way == 2:
        headers = found.with_header("content-type", dice.choice(TYPES))
    elif way == 3:
        headers = found.with_header("content-encoding", dice.choice(ENCODINGS))
    elif way == 4:
        length = dice.choice((*map(str, NUMBERS), "x", "+1", "1e3", "9" * 400, "٣"))
        headers = found.with_header("content-length", length)
    else:
        headers = (*found.headers, ("x" * dice.choice((1, 300)), dice.choice(TEXTS)))
    return Case(found.body, found.path, found.method, headers)


QUERY_NAMES: Final = (
    *(
        "limit",
        "cursor",
        "text",
        "flag",
        "engine",
        "engine_uid",
        "workspace",
        "model",
        "state",
        "since",
        "until",
    ),
    *(
        "minutes",
        "window_s",
        "bucket_s",
        "first_step",
        "steps",
        "filter",
        "q",
        "dimension",
        "slice",
        "position",
    ),
    *("rid", "trace_id", "response_id", "active", "kind", "sort"),
)
QUERY_PATHS: Final = (
    *("requests", "engines", "series", "status", "alerts", "findings", "references"),
    *("requests/{}", "requests/{}/hidden", "requests/{}/reference", "engines/{}", "engines/{}/hidden"),
    *("engines/{}/reference", "references/{}"),
)


def _query(found: Case, dice: Dice) -> Case:
    path, _, query = found.path.partition("?")
    pairs = [pair for pair in query.split("&") if pair]
    for _ in range(dice.choice((1, 1, 2, 3))):
        way = dice.randrange(4)
        if way == 0:
            place = dice.choice(QUERY_PATHS).format(_quoted(_word(dice)))
            path = ("/api/v1/" if dice.randrange(3) else "/") + place
        elif way == 1 and pairs:
            del pairs[dice.randrange(len(pairs))]
        elif way == 2 and pairs:
            at = dice.randrange(len(pairs))
            pairs[at] = _quoted(bytewise(pairs[at].encode(), dice).decode("latin-1"), keep="=")
        else:
            pairs.append(f"{dice.choice(QUERY_NAMES)}={_quoted(_word(dice))}")
    return Case(b"", path + ("?" + "&".join(pairs) if pairs else ""), "GET", ())


def _word(dice: Dice) -> str:
    numbers = (str(dice.choice(NUMBERS)), str(dice.choice(REALS)))
    times = (
        "2026-11-30T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00+14:00",
        "2026-13-01",
        "now-1h",
    )
    return dice.choice((dice.choice(TEXTS), dice.choice(times), dice.choice(QUERY_NAMES), *numbers))


def _quoted(text: str, keep: str = "") -> str:

    return quote(text.encode("utf-8", "surrogatepass"), safe=keep)[:6000]

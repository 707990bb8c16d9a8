"""Spans of ours as protobuf reads them fastest: their attributes stay bytes, which Python reads itself.

A chunk has two dozen attributes, and protobuf makes three objects of each that is looked at: 26 µs a span of
the 64 that a chunk may take altogether. Here a span is one message with a list of bytes. What says the same
in one span after another (model, kind, small totals) is looked up by these bytes and not read again.

Only what OpenTelemetry's own messages have read before comes here, so every attribute is sound.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans

Value = object
"""``str``, ``bool``, ``int``, ``float``, ``bytes``, a list message of protobuf's, ``None``: unset."""


class LeanSpan(Protocol):
    """A span; fields as in OTLP, but ``attributes`` are serialized ``KeyValue`` messages."""

    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    name: str
    start_time_unix_nano: int
    end_time_unix_nano: int
    attributes: Sequence[bytes]


def _messages() -> Any:
    """Return the class of a scope's spans: OTLP's field numbers, without what is not read."""
    kind, label = FieldDescriptorProto, FieldDescriptorProto
    file = FileDescriptorProto(name="specscope_lean.proto", package="specscope.lean", syntax="proto3")
    span = file.message_type.add(name="Span")
    for name, number, of in (
        ("trace_id", 1, kind.TYPE_BYTES),
        ("span_id", 2, kind.TYPE_BYTES),
        ("parent_span_id", 4, kind.TYPE_BYTES),
        ("name", 5, kind.TYPE_STRING),
        ("start_time_unix_nano", 7, kind.TYPE_FIXED64),
        ("end_time_unix_nano", 8, kind.TYPE_FIXED64),
    ):
        span.field.add(name=name, number=number, type=of, label=label.LABEL_OPTIONAL)
    span.field.add(name="attributes", number=9, type=kind.TYPE_BYTES, label=label.LABEL_REPEATED)
    scope = file.message_type.add(name="ScopeSpans")
    scope.field.add(
        name="spans",
        number=2,
        type=kind.TYPE_MESSAGE,
        type_name=".specscope.lean.Span",
        label=label.LABEL_REPEATED,
    )
    pool = DescriptorPool()
    pool.Add(file)  # pyright: ignore[reportUnknownMemberType]
    return GetMessageClass(pool.FindMessageTypeByName("specscope.lean.ScopeSpans"))


_SCOPE: Final = _messages()


def spans_of(scope: ScopeSpans) -> Sequence[LeanSpan]:
    """Return the spans of a scope."""
    return cast("Sequence[LeanSpan]", _SCOPE.FromString(scope.SerializeToString()).spans)


_STRING, _BOOL, _INT, _DOUBLE, _BYTES = 0x0A, 0x10, 0x18, 0x21, 0x3A
"""Field and wire type of a value, as OTLP numbers them."""
MAX_KNOWN: Final = 8192
_MAX_KNOWN_BYTES: Final = 96
"""Attributes remembered, and how long each may be: 2 MB at most. When full it starts anew."""
_known: Final[dict[bytes, tuple[str, Value]]] = {}


def values_of(attributes: Sequence[bytes]) -> dict[str, Value]:
    """Return attributes by name; of a doubled one the last counts."""
    known = _known
    found: dict[str, Value] = {}
    for raw in attributes:
        pair = known.get(raw)
        if pair is None:
            pair = read(raw)
            if len(raw) <= _MAX_KNOWN_BYTES and type(pair[1]) in (str, int, bool, float):
                if len(known) >= MAX_KNOWN:
                    known.clear()
                known[raw] = pair
        found[pair[0]] = pair[1]
    return found


def read(raw: bytes) -> tuple[str, Value]:
    """Return name and value of a serialized ``KeyValue``.

    The way every exporter writes one is read here; any other (fields doubled, unknown or in another order)
    by protobuf.
    """
    size = len(raw)
    try:
        if raw[0] != _STRING or (after := 2 + raw[1]) > 129 or raw[after] != 0x12:
            return _by_protobuf(raw)
        length, at = _varint(raw, after + 1)
        if at + length != size:
            return _by_protobuf(raw)
        name, kind = raw[2:after].decode(), raw[at]
        at += 1
        if kind in (_STRING, _BYTES):
            length, at = _varint(raw, at)
            if at + length == size:
                return name, raw[at:] if kind == _BYTES else raw[at:].decode()
        elif kind == _INT:
            value, at = _varint(raw, at)
            if at == size and value < 1 << 64:
                return name, value if value < 1 << 63 else value - (1 << 64)
        elif kind == _DOUBLE and at + 8 == size:
            return name, struct.unpack_from("<d", raw, at)[0]
        elif kind == _BOOL and at + 1 == size and raw[at] < 2:
            return name, raw[at] == 1
    except IndexError:
        pass  # shorter than what every exporter writes
    return _by_protobuf(raw)


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, lowest first, and where it ends."""
    value = raw[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    shift = 7
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _by_protobuf(raw: bytes) -> tuple[str, Value]:
    pair = KeyValue.FromString(raw)
    kind = pair.value.WhichOneof("value")
    return pair.key, None if kind is None else getattr(pair.value, kind)


def remembered() -> int:
    """Return how many attributes are remembered."""
    return len(_known)

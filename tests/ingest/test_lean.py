"""Attributes read from their bytes are those that protobuf reads, however they are written."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans
from serverkit import otlp
from specscope_server.ingest import lean

values = st.one_of(
    st.text().map(lambda v: AnyValue(string_value=v)),
    st.booleans().map(lambda v: AnyValue(bool_value=v)),
    st.integers(-(1 << 63), (1 << 63) - 1).map(lambda v: AnyValue(int_value=v)),
    st.floats().map(lambda v: AnyValue(double_value=v)),
    st.binary(max_size=300).map(lambda v: AnyValue(bytes_value=v)),
    st.just(AnyValue()),
    st.just(AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=3)]))),
    st.just(AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="a")]))),
)
keys = st.one_of(st.text(max_size=5), st.just("k" * 127), st.just("k" * 128), st.just("größer" * 30))


def _by_protobuf(raw: bytes) -> tuple[str, Any]:
    pair = KeyValue.FromString(raw)
    kind = pair.value.WhichOneof("value")
    return pair.key, None if kind is None else getattr(pair.value, kind)


def _same(found: tuple[str, Any], wanted: tuple[str, Any]) -> bool:
    one, other = found[1], wanted[1]
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return found[0] == wanted[0] and type(one) is type(other) and (both_nan or one == other)


@given(keys, values)
def test_an_attribute_as_exporters_write_it(key: str, value: AnyValue) -> None:
    raw = KeyValue(key=key, value=value).SerializeToString()
    assert _same(lean.read(raw), _by_protobuf(raw))


@given(keys, values, values, st.binary(max_size=6))
def test_an_attribute_written_in_another_way(key: str, one: AnyValue, two: AnyValue, more: bytes) -> None:
    first, second = KeyValue(key=key, value=one), KeyValue(value=two)
    told = first.SerializeToString() + second.SerializeToString()  # fields merged, as protobuf has it
    odd = second.SerializeToString() + KeyValue(key=key).SerializeToString()  # in another order
    unknown = first.SerializeToString() + b"\xfa\x01" + bytes((len(more),)) + more  # field 31
    for raw in (told, odd, unknown, b""):
        assert _same(lean.read(raw), _by_protobuf(raw))


@given(st.binary(max_size=40))
def test_bytes_that_are_no_attribute_are_read_as_protobuf_does_or_refused_by_it(raw: bytes) -> None:
    try:
        wanted = _by_protobuf(raw)
    except Exception:
        return  # never comes here: OpenTelemetry's messages have refused it before
    assert _same(lean.read(raw), wanted)


@pytest.mark.parametrize("value", [True, 1, 1.0, "1", b"1"])
def test_what_is_remembered_keeps_its_type(value: Any) -> None:
    [raw] = [pair.SerializeToString() for pair in otlp.attributes({"same": value})]
    for _ in range(2):
        (found,) = lean.values_of([raw]).values()
        assert found == value
        assert type(found) is type(value)


def test_what_is_remembered_is_bounded() -> None:
    for number in range(20_000):
        [raw] = [pair.SerializeToString() for pair in otlp.attributes({"n": number})]
        assert lean.values_of([raw]) == {"n": number}
    assert 0 < lean.remembered() <= lean.MAX_KNOWN


def test_a_span_is_read_whole() -> None:
    span = otlp.steps_span(1)
    span.parent_span_id = bytes(range(8))
    [found] = lean.spans_of(ScopeSpans(spans=[span]))
    for name in (
        *("trace_id", "span_id", "parent_span_id", "name"),
        *("start_time_unix_nano", "end_time_unix_nano"),
    ):
        assert getattr(found, name) == getattr(span, name)
    assert lean.values_of(found.attributes) == {
        pair.key: _by_protobuf(pair.SerializeToString())[1] for pair in span.attributes
    }


def test_of_a_doubled_attribute_the_last_counts() -> None:
    pairs = [*otlp.attributes({"a": 1}), *otlp.attributes({"a": "two"})]
    assert lean.values_of([pair.SerializeToString() for pair in pairs]) == {"a": "two"}

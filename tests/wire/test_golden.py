"""Wire version 1 is frozen: the code reproduces its golden files and reads them to the same values."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from specscope import columns, rollup
from specscope import convention as c
from wirekit import golden

HEADER = struct.Struct("<4sBBHII")


def load(name: str) -> Any:
    return json.loads((golden.FOLDER / name).read_text(encoding="utf-8"))


def test_identities() -> None:
    assert golden.plain(golden.identities()) == load("identity.json")


def test_every_metric_keeps_its_name_kind_unit_and_labels() -> None:
    ours = golden.plain(golden.metrics())
    assert ours == load("metrics.json")
    assert {one["name"] for one in ours} == {
        name for label, name in vars(c).items() if label.startswith("METRIC_")
    }


COLUMNS = load("columns.json")


def inflated(blob: bytes) -> tuple[tuple[Any, ...], bytes]:
    """Return header and raw body: what is frozen. How zlib found the bytes is the library's affair."""
    return HEADER.unpack_from(blob), zlib.decompress(blob[HEADER.size :])


@pytest.mark.parametrize("name", COLUMNS["plain"])
def test_tables_are_packed_byte_for_byte(name: str) -> None:
    assert golden.plain(golden.tables(columns.PLAIN)[name]) == COLUMNS["plain"][name]
    ours = bytes.fromhex(golden.tables(columns.ZLIB)[name]["blob"])
    assert inflated(ours) == inflated(bytes.fromhex(COLUMNS["zlib"][name]["blob"]))


@pytest.mark.parametrize("codec", ["plain", "zlib"])
@pytest.mark.parametrize("name", COLUMNS["plain"])
def test_tables_are_read(codec: str, name: str) -> None:
    one = COLUMNS[codec][name]
    decoded = columns.decode(bytes.fromhex(one["blob"]))
    for column, values in one["columns"].items():
        assert (
            decoded[column] == pytest.approx(values, rel=1e-6)
            if name == "floats"
            else decoded[column] == values
        )


def test_rollups() -> None:
    frozen = load("rollup.json")
    blob = bytes.fromhex(frozen["zlib"])
    rows = {(d, s, p): rollup.Counts(*counts) for d, s, p, *counts in frozen["rows"]}
    assert rollup.unpack(blob) == rows == golden.rollup_rows()
    assert inflated(rollup.pack(rows, codec=columns.ZLIB)) == inflated(blob)


def frozen_request() -> bytes:
    return bytes.fromhex((golden.FOLDER / "request.hex").read_text().replace("\n", ""))


def test_a_whole_export_is_reproduced_byte_for_byte() -> None:
    assert golden.request().SerializeToString(deterministic=True) == frozen_request()


def test_a_whole_export_is_read() -> None:
    message = ExportTraceServiceRequest.FromString(frozen_request())
    assert golden.plain(golden.readable(message)) == load("request.json")

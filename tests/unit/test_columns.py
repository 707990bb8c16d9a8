"""The packed column codec: what goes in comes out, and nothing hostile does harm."""

import math
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from specscope import columns

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(codec="utf-8"))
CODECS = st.sampled_from([columns.PLAIN, columns.ZLIB, columns.ZSTD])


def column(rows: int) -> st.SearchStrategy[list[Any]]:
    def values(element: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
        return st.lists(st.none() | element, min_size=rows, max_size=rows)

    return st.one_of(
        values(INT64),
        values(st.floats(width=32, allow_nan=False)),
        values(TEXT),
        values(st.lists(INT64, max_size=5)),
    )


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Any]]:
    rows = draw(st.integers(0, 40))
    names = draw(st.lists(TEXT.filter(lambda t: len(t.encode()) <= 255), unique=True, max_size=6))
    return {name: draw(column(rows)) for name in names}


@given(tables(), CODECS, st.booleans())
def test_round_trip(table: dict[str, list[Any]], codec: int, delta: bool) -> None:
    blob = columns.encode(table, codec=codec, delta=tuple(table) if delta else ())
    assert columns.decode(blob) == table


def as_array(values: list[Any]) -> columns.Array:
    """The same column as arrays, with rubbish where there is no value."""
    there = [v is not None for v in values]
    present = None if all(there) else np.array(there)
    known = [v for v in values if v is not None]
    if isinstance(known[0], list):
        lengths = np.array([0 if v is None else len(v) for v in values])
        return columns.Array(
            np.array([x for v in known for x in v], dtype=np.int64), present, lengths=lengths
        )
    if isinstance(known[0], str):
        texts = ("unused", *dict.fromkeys(known))
        codes = np.array([0 if v is None else texts.index(v, 1) for v in values])
        return columns.Array(codes, present, texts=texts)
    if isinstance(known[0], float):
        return columns.Array(np.array([math.nan if v is None else v for v in values]), present)
    return columns.Array(np.array([7 if v is None else v for v in values], dtype=np.int64), present)


@given(tables(), st.booleans())
def test_arrays_are_packed_as_lists_are(table: dict[str, list[Any]], delta: bool) -> None:
    table = {name: values for name, values in table.items() if any(v is not None for v in values)}
    names = tuple(table) if delta else ()
    arrays = {name: as_array(values) for name, values in table.items()}
    packed = columns.encode(arrays, delta=names, codec=columns.PLAIN)
    assert packed == columns.encode(table, delta=names, codec=columns.PLAIN)


@given(st.lists(INT64, min_size=1, max_size=200))
def test_differences_hold_any_integers(values: list[int]) -> None:
    blob = columns.encode({"t": values}, delta=("t",))
    assert columns.decode(blob) == {"t": values}


def test_a_table_with_a_large_column_between_small_ones_comes_back() -> None:
    own_block = columns.OWN_BLOCK
    table: dict[str, columns.Column] = {
        "first": [1] * own_block,
        "large": [(i * 7919) % 127 for i in range(own_block)],
        "text": ["x"] * own_block,
        "larger": [float(i) for i in range(own_block)],
        "last": [i % 3 for i in range(own_block)],
    }
    blob = columns.encode(table, codec=columns.ZSTD)
    assert columns.decode(blob) == table
    with pytest.raises(columns.CodecError):
        columns.decode(blob[:-20])


def test_absent_is_not_zero_not_empty() -> None:
    table: dict[str, columns.Column] = {
        "count": [0, None],
        "share": [0.0, None],
        "mode": ["", None],
        "ids": [[], None],
    }
    assert columns.decode(columns.encode(table)) == table


def test_nan_and_infinity_survive() -> None:
    decoded = columns.decode(columns.encode({"x": [math.nan, math.inf, -math.inf, 1e39]}))["x"]
    assert isinstance(decoded[0], float)
    assert math.isnan(decoded[0])
    assert decoded[1:] == [math.inf, -math.inf, math.inf]


def test_clocks_cost_little_as_differences() -> None:
    times = [1_790_000_000_000_000_000 + 20_000_000 * i + i % 97 for i in range(64)]
    as_differences = columns.encode({"t": times}, delta=("t",), codec=columns.PLAIN)
    assert len(as_differences) < len(columns.encode({"t": times}, codec=columns.PLAIN)) * 0.6


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a": [1], "b": [1, 2]}, "differ in length"),
        ({"a": [1 << 63]}, "'a': not integers of 64 bits"),
        ({"a": [1, 1.5]}, "'a': not integers of 64 bits"),
        ({"a": [1.5, "x"]}, "'a'"),
        ({"a": ["x", 1]}, "'a'"),
        ({"a": [[1], 2]}, "'a'"),
        ({"a": [object()]}, "'a': a object cannot be packed"),
        ({"a" * 256: [1]}, "at most 255 bytes"),
    ],
)
def test_what_cannot_be_packed_is_named(table: dict[str, Any], message: str) -> None:
    with pytest.raises(columns.CodecError, match=message):
        columns.encode(table)


def test_unknown_codec_is_refused() -> None:
    with pytest.raises(columns.CodecError, match="codec 9 is not available"):
        columns.encode({"a": [1]}, codec=9)
    blob = bytearray(columns.encode({"a": [1]}, codec=columns.PLAIN))
    blob[5] = 9
    with pytest.raises(columns.CodecError, match="codec 9 is not available"):
        columns.decode(bytes(blob))


def test_newer_version_is_refused() -> None:
    blob = bytearray(columns.encode({"a": [1]}))
    blob[4] = 2
    with pytest.raises(columns.CodecError, match="version 2 is unknown here"):
        columns.decode(bytes(blob))


def sealed(body: bytes, *, size: int | None = None) -> bytes:
    """Return a plain blob whose header fits ``body``, so that only the body can be wrong."""
    header = struct.pack("<4sBBHII", b"SPSC", 1, columns.PLAIN, 0, len(body) if size is None else size, 0)
    return header[:12] + struct.pack("<I", zlib.crc32(body)) + body


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_decoded_never_worse(blob: bytes) -> None:
    for data in (blob, b"SPSC" + blob, sealed(blob)):
        try:
            decoded = columns.decode(data)
        except columns.CodecError:
            continue
        assert len({len(c) for c in decoded.values()}) <= 1


@given(tables(), CODECS, st.data())
def test_a_flipped_bit_never_passes_unnoticed(
    table: dict[str, list[Any]], codec: int, data: st.DataObject
) -> None:
    blob = bytearray(columns.encode(table, codec=codec))
    at = data.draw(st.integers(0, len(blob) - 1))
    assume(at not in (6, 7))  # the two reserved bytes of the header
    blob[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        decoded = columns.decode(bytes(blob))
    except columns.CodecError:
        return
    assert decoded == table  # e.g. a bit of the compressor's that means nothing


@given(tables(), st.data())
def test_a_flipped_bit_under_a_right_checksum_stays_within_the_codec(
    table: dict[str, list[Any]], data: st.DataObject
) -> None:
    body = bytearray(columns.encode(table, codec=columns.PLAIN)[16:])
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        decoded = columns.decode(sealed(bytes(body)))
    except columns.CodecError:
        return
    assert len({len(c) for c in decoded.values()}) <= 1


@pytest.mark.parametrize("codec", [columns.ZLIB, columns.ZSTD])
def test_a_bomb_is_cut_off_at_the_limit(codec: int) -> None:
    blob = columns.encode({"a": [0] * 1_000_000}, codec=codec)
    assert len(blob) < 10_000
    with pytest.raises(columns.CodecError, match="over the limit"):
        columns.decode(blob, max_raw=500_000)
    lying = bytearray(blob)
    lying[8:12] = struct.pack("<I", 1000)
    with pytest.raises(columns.CodecError, match="length and checksum"):
        columns.decode(bytes(lying), max_raw=500_000)


def test_row_counts_that_the_bytes_cannot_hold_are_refused() -> None:
    body = struct.pack("<IH", 0xFFFFFFFF, 0)
    with pytest.raises(columns.CodecError, match="4294967295 rows"):
        columns.decode(sealed(body))


def test_numpy_integers_are_taken() -> None:
    ids: Any = [np.int32(3), np.int64(4)]
    assert columns.decode(columns.encode({"a": ids})) == {"a": [3, 4]}


def test_zlib_is_written_where_zstandard_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "zstandard", None)
    blob = columns.encode({"a": [1, 2]})
    assert blob[5] == columns.ZLIB
    assert columns.decode(blob) == {"a": [1, 2]}
    monkeypatch.undo()
    zstd = columns.encode({"a": [1, 2]}, codec=columns.ZSTD)
    monkeypatch.setattr(columns, "zstandard", None)
    with pytest.raises(columns.CodecError, match="install zstandard"):
        columns.decode(zstd)


@given(tables(), CODECS, st.booleans())
def test_arrays_hold_what_lists_do(table: dict[str, list[Any]], codec: int, delta: bool) -> None:
    blob = columns.encode(table, codec=codec, delta=tuple(table) if delta else ())
    told = columns.arrays(blob)
    assert columns.decode(columns.encode(told, codec=codec)) == table
    first = next(iter(table), "")
    assert columns.arrays(blob, only={first}).keys() == table.keys() & {first}

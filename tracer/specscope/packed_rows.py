"""Dataclass rows as packed columns and back: what :mod:`specscope.chunks` and others have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final, cast

from specscope import columns

MAX_RAW: Final = 4 << 20
"""Bytes of raw body that unpacking accepts; 64 steps of a 64-node tree with all ids take 0.1 MiB."""


def types_of(row: type[Any]) -> dict[str, type]:
    """Return the kind of each field of a row: ``int``, ``str``, ``float`` or ``list`` (of whole numbers)."""
    kinds = {"int": int, "str": str, "float": float, "list[int]": list, "Sequence[int]": list}
    return {f.name: kinds[str(f.type).removesuffix(" | None")] for f in fields(row)}


def pack(
    rows: Sequence[object],
    names: Sequence[str],
    types: Mapping[str, type],
    *,
    delta: Sequence[str] = (),
    codec: int | None = None,
) -> bytes:
    """Pack the fields ``names`` of rows; a field that no row has a value for is left out.

    Raises:
        CodecError: a value does not fit its column.
    """
    packed: dict[str, columns.Column] = {}
    read = attrgetter(*names)
    for name, *values in zip(names, *map(read, rows), strict=True):
        if rows and values.count(None) == len(values):
            continue
        if types[name] is float:  # a column takes the kind of its first value: 0 would make it integers
            values = [None if v is None else float(v) for v in values]
        packed[name] = values
    return columns.encode(packed, delta=delta, codec=codec)


def unpack(
    blob: bytes, what: str, types: Mapping[str, type], required: Sequence[str], most: int
) -> list[Any]:
    """Return a blob's rows, as arguments of their dataclass.

    Raises:
        CodecError: as :func:`unpack_columns`.
    """
    known = unpack_columns(blob, what, types, required, most)
    return [dict(zip(known, values, strict=True)) for values in zip(*known.values(), strict=True)]


def unpack_columns(
    blob: bytes, what: str, types: Mapping[str, type], required: Sequence[str], most: int
) -> dict[str, list[Any]]:
    """Return a blob's columns that ``types`` names, as far as it has them; others are left unread.

    Raises:
        CodecError: the blob is damaged, has more than ``most`` rows, lacks a column that is ``required``, or
            one holds values of another kind. ``what`` is its name there.
    """
    # By rows as well as bytes: a few hundred bytes inflate to 400,000 rows, which take seconds to read.
    decoded = columns.decode(blob, max_raw=MAX_RAW, max_rows=most, only=types)
    missing = [name for name in required if name not in decoded]
    if missing:
        raise columns.CodecError(f"{what} lack the columns {missing}")
    known = {name: cast("list[object]", decoded[name]) for name in types if name in decoded}
    for name, values in known.items():
        wanted = types[name]
        optional = name not in required
        for value in values:
            if not (isinstance(value, wanted) or (optional and value is None)):
                raise columns.CodecError(
                    f"column {name!r} of {what} holds {value!r}, {wanted.__name__} wanted"
                )
    return known


def unpack_arrays(
    blob: bytes, what: str, types: Mapping[str, type], required: Sequence[str], most: int
) -> dict[str, columns.Array]:
    """Return a blob's columns that ``types`` names and that have any value, as arrays of one length.

    Raises:
        CodecError: as :func:`unpack_columns`.
    """
    told = columns.arrays(blob, max_raw=MAX_RAW, max_rows=most, only=types)
    missing = [name for name in required if name not in told]
    if missing:
        raise columns.CodecError(f"{what} lack the columns {missing}")
    known: dict[str, columns.Array] = {}
    for name, column in told.items():
        present = column.present
        if name in required and present is not None and not present.all():
            raise columns.CodecError(f"column {name!r} of {what} lacks values")
        if name in required or (len(column) and (present is None or present.any())):
            if len(column) and _type_of(column) is not types[name]:
                raise columns.CodecError(f"column {name!r} of {what} is not of {types[name].__name__}")
            known[name] = column
    return known


def _type_of(column: columns.Array) -> type:
    if column.texts is not None:
        return str
    if column.lengths is not None:
        return list
    return float if column.values.dtype.kind == "f" else int

"""Packed hidden states and their sums: what goes in comes out, and nothing hostile does harm."""

from __future__ import annotations

import re
from dataclasses import astuple, fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from specscope import columns, hidden, hidden_rollup
from specscope.hidden import HiddenRow
from specscope.hidden_rollup import HiddenRollup, Key, Sums

COUNT = st.integers(0, 1 << 40)
SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "int": COUNT,
    "str": st.sampled_from(["draft.extend", "verify", ""]),
    "float": SINGLE,
    "Sequence[int]": st.lists(st.integers(-32768, 32767), max_size=9),
}


def a_row() -> st.SearchStrategy[HiddenRow]:
    values: dict[str, st.SearchStrategy[Any]] = {}
    for f in fields(HiddenRow):
        kind = str(f.type)
        bare = KINDS[kind.removesuffix(" | None")]
        values[f.name] = (st.none() | bare) if kind.endswith(" | None") else bare
    return st.builds(HiddenRow, **values)


@given(st.lists(a_row(), max_size=12))
def test_rows_round_trip(rows: list[HiddenRow]) -> None:
    assert hidden.unpack(hidden.pack(rows)) == rows


def a_row_with(**changes: Any) -> bytes:
    row = HiddenRow(1, "verify", "eager", "draft.extend", "target_fed", 0, 0, 9, 3, 0.5, 1.0, 4.0, 0, 0, 0)
    row.levels, row.fingerprints = [1, 2, 3], [0] * 24
    decoded: Any = columns.decode(hidden.pack([row]))
    return columns.encode({k: v for k, v in (decoded | changes).items() if v != "gone"})


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (a_row_with(place="gone"), "hidden states lack the columns ['place']"),
        (a_row_with(rows=[None]), "column 'rows' of hidden states holds None, int wanted"),
        (a_row_with(mean=["x"]), "column 'mean' of hidden states holds 'x', float wanted"),
        (a_row_with(levels=[3]), "column 'levels' of hidden states holds 3, list wanted"),
        (a_row_with(place=[3]), "column 'place' of hidden states holds 3, str wanted"),
        (hidden.pack([HiddenRow(1, "", "", "", "", 0, 0, 0, 1)] * (hidden.MAX_ROWS + 1)), "over the limit"),
        (columns.encode({"step": list(range(1_200_000))}), "over the limit"),
        (a_row_with()[:-3], "body"),
        (b"SPSC" + bytes(30), "version 0"),
        (b"", "SPSC"),
    ],
)
def test_hostile_rows_are_refused(blob: bytes, message: str) -> None:
    with pytest.raises(columns.CodecError, match=re.escape(message)):
        hidden.unpack(blob)


def test_columns_of_a_later_version_are_ignored() -> None:
    assert hidden.unpack(a_row_with(surprise=[[1]]))[0].rows == 3


@given(st.data())
def test_a_damaged_blob_is_refused_or_the_same(data: st.DataObject) -> None:
    blob = a_row_with()
    at = data.draw(st.integers(0, len(blob) - 1))
    damaged = blob[:at] + bytes((data.draw(st.integers(0, 255)),)) + blob[at + 1 :]
    try:
        assert hidden.unpack(damaged) == hidden.unpack(blob)
    except columns.CodecError:
        assert damaged != blob


# --- fingerprints ---------------------------------------------------------------------------------


@given(
    st.lists(st.floats(1e-30, 1e30), min_size=1, max_size=9), st.integers(0, 1 << 30), st.floats(0.01, 3.0)
)
def test_fingerprints_come_back_within_their_grain(scales: list[float], seed: int, spread: float) -> None:
    rms = np.array(scales)
    projections = np.random.default_rng(seed).normal(0, spread, (len(rms), hidden.PROJECTIONS)) * rms[:, None]
    levels, units = hidden.quantise(rms, projections)
    back_rms, back = hidden.restore(levels, units)
    assert back_rms == pytest.approx(rms, rel=2 ** (0.51 / hidden.PER_OCTAVE) - 1)
    assert all(type(one) is int for one in (*levels, *units))
    limit = 127 / hidden.PER_RMS
    error = np.abs(back / back_rms[:, None] - (projections / rms[:, None]).clip(-limit, limit))
    assert error.max() <= 0.5 / hidden.PER_RMS + 1e-9


def test_a_row_without_an_rms_has_no_level() -> None:
    rms = np.array([0.0, np.inf, np.nan, 1.0])
    projections = np.full((4, hidden.PROJECTIONS), np.nan)
    projections[3] = 0.25
    levels, units = hidden.quantise(rms, projections)
    assert levels == [hidden.NO_LEVEL] * 3 + [0]
    assert units == [0] * 24 + [4] * 8
    assert np.isnan(hidden.restore(levels, units)[0]).tolist() == [True, True, True, False]


# --- sums -----------------------------------------------------------------------------------------

KEYS = st.tuples(
    st.sampled_from(hidden.PLACES),
    st.sampled_from(["target_fed", "self_fed"]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["prefill", "verify"]),
    st.sampled_from(["eager", "graph"]),
)
COUNTS = st.integers(0, 1 << 40)
SUMS = st.builds(
    Sums,
    **dict.fromkeys(hidden_rollup.COUNTS, COUNTS),
    **dict.fromkeys(hidden_rollup.SUM_FIELDS[len(hidden_rollup.COUNTS) :], SINGLE),
)


@given(st.dictionaries(KEYS, SUMS, max_size=20))
def test_sums_round_trip(rows: dict[Key, Sums]) -> None:
    assert hidden_rollup.unpack(hidden_rollup.pack(rows)) == rows


def test_sums_beyond_float32_travel_as_its_largest() -> None:
    key: Key = ("draft.extend", "target_fed", 0, 0, "verify", "eager")
    (sums,) = hidden_rollup.unpack(hidden_rollup.pack({key: Sums(sum=-1e60, sum_square=1e60)})).values()
    assert (sums.sum, sums.sum_square) == (-hidden_rollup.LARGEST, hidden_rollup.LARGEST)


@given(st.lists(st.tuples(st.integers(0, 40), KEYS, SUMS), max_size=20))
def test_every_look_is_in_the_sums_of_its_bucket_once(added: list[tuple[int, Key, Sums]]) -> None:
    book = HiddenRollup()
    wanted: dict[int, dict[Key, Sums]] = {}
    for second, key, sums in added:
        assert book.add(second * 1_000_000_000, key, sums)
        bucket = wanted.setdefault(second // 10 * 10, {})
        bucket.setdefault(key, Sums()).add(sums)
    assert book.take() == wanted
    assert book.take() == {}
    for bucket, rows in wanted.items():
        for key, total in rows.items():
            mine = [s for second, one, s in added if second // 10 * 10 == bucket and one == key]
            assert total.looks == sum(s.looks for s in mine)
            assert total.max_abs == max([0.0, *(s.max_abs for s in mine)])


def test_keys_are_bounded_over_all_buckets() -> None:
    book = HiddenRollup()

    def key(number: int) -> Key:
        return ("draft.carry", "self_fed", number, 0, "verify", "eager")

    for number in range(hidden_rollup.MAX_KEYS):
        assert book.add(number * 1_000_000_000, key(number), Sums(looks=1))
    assert not book.add(0, key(-1), Sums(looks=1))
    assert book.add(0, key(0), Sums(looks=1))  # known already
    taken = book.take()
    assert sum(len(rows) for rows in taken.values()) == hidden_rollup.MAX_KEYS
    assert taken[0][key(0)].looks == 2
    assert book.add(0, key(-1), Sums(looks=1))


def sums_with(**changes: Any) -> bytes:
    row: dict[str, Any] = dict(
        zip(hidden_rollup.KEY_FIELDS, (["p"], ["s"], [0], [0], ["a"], ["m"]), strict=True)
    )
    row |= {name: [value] for name, value in zip(hidden_rollup.SUM_FIELDS, astuple(Sums()), strict=True)}
    row |= changes
    return columns.encode({name: column for name, column in row.items() if column is not None})


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (sums_with(looks=None), "lack the columns ['looks']"),
        (sums_with(place=[1]), "is not texts and numbers >= 0"),
        (sums_with(slot=[-1]), "is not texts and numbers >= 0"),
        (sums_with(slot=[None]), "is not texts and numbers >= 0"),
        (sums_with(rows=[-1]), "must be integers >= 0"),
        (sums_with(rows=[0.5]), "must be integers >= 0"),
        (sums_with(sum=[float("nan")]), "must be finite numbers"),
        (sums_with(sum=[3]), "must be finite numbers"),
        (sums_with(max_abs=[float("inf")]), "must be finite numbers"),
        (sums_with(**{n: v * 2 for n, v in columns.decode(sums_with()).items()}), "is doubled"),
        (
            sums_with(**{n: v * 2000 for n, v in columns.decode(sums_with()).items()}),
            f"over the limit of {hidden_rollup.MAX_KEYS}",
        ),
        (b"nonsense", "SPSC"),
    ],
)
def test_hostile_sums_are_refused(blob: bytes, message: str) -> None:
    with pytest.raises(columns.CodecError, match=re.escape(message)):
        hidden_rollup.unpack(blob)


def test_sums_of_a_later_version_are_read() -> None:
    assert len(hidden_rollup.unpack(sums_with(surprise=["x"]))) == 1

"""Payloads of one request: rows survive packing, hostile blobs do not pass."""

import re
from dataclasses import asdict, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specscope import chunks, columns
from specscope import convention as c
from specscope.chunks import ExtendRow, StepRow

COUNT = st.integers(0, 1 << 40)
IDS = st.lists(st.integers(-1, 200_000), max_size=8)
SHARE = st.floats(0, 1, width=32)


def of(row: type[Any]) -> st.SearchStrategy[Any]:
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "int": COUNT,
        "str": st.sampled_from(["eager", "graph", ""]),
        "float": SHARE,
        "list[int]": IDS,
    }
    values: dict[str, st.SearchStrategy[Any]] = {}
    for f in fields(row):
        kind = str(f.type)
        bare = kinds[kind.removesuffix(" | None")]
        values[f.name] = (st.none() | bare) if kind.endswith(" | None") else bare
    return st.builds(row, **values)


@given(st.lists(of(StepRow), max_size=12))
def test_steps_round_trip(rows: list[StepRow]) -> None:
    assert chunks.unpack_steps(chunks.pack_steps(rows, tokens=True)) == rows


@given(st.lists(of(StepRow), min_size=1, max_size=4))
def test_without_tokens_no_id_leaves(rows: list[StepRow]) -> None:
    blob = chunks.pack_steps(rows, tokens=False)
    assert not set(columns.decode(blob)) & set(chunks.TOKEN_COLUMNS)
    for row, back in zip(rows, chunks.unpack_steps(blob), strict=True):
        wanted = asdict(row) | dict.fromkeys((*chunks.TOKEN_COLUMNS, "root"))
        assert asdict(back) == wanted


@given(st.lists(of(ExtendRow), max_size=12))
def test_extends_round_trip(rows: list[ExtendRow]) -> None:
    assert chunks.unpack_extends(chunks.pack_extends(rows)) == rows


@given(st.lists(of(ExtendRow), max_size=12))
def test_widths_of_extends_are_read_without_the_rest(rows: list[ExtendRow]) -> None:
    packed = chunks.pack_extends(rows)
    found, whole = chunks.extend_width_arrays(packed), columns.decode(packed)
    for name in chunks.WIDTH_COLUMNS:
        values = [getattr(row, name) for row in rows]
        if name in found:
            assert columns.decode(columns.encode({name: found[name]}))[name] == values == whole[name]
        else:
            assert set(values) <= {None}
    assert found.keys() <= set(chunks.WIDTH_COLUMNS)


def test_widths_of_extends_need_their_columns() -> None:
    with pytest.raises(columns.CodecError, match="fed_width"):
        chunks.extend_width_arrays(columns.encode({"step": [1], "after": ["verify"]}))


def test_a_statistic_that_is_a_whole_number_first_is_not_cut_later() -> None:
    rows = [
        ExtendRow(0, 0, "verify", "eager", 8, "bf16", mean=0),
        ExtendRow(1, 0, "verify", "eager", 8, "bf16", mean=0.5),
    ]
    assert [r.mean for r in chunks.unpack_extends(chunks.pack_extends(rows))] == [0.0, 0.5]


def test_columns_without_a_value_are_left_out() -> None:
    row = ExtendRow(0, 0, "verify", "eager", 8, "bf16")
    assert set(columns.decode(chunks.pack_extends([row]))) == {
        "step",
        "t",
        "after",
        "mode",
        "fed_width",
        "dtype",
    }


KEYS = st.tuples(st.sampled_from(c.BOUNDARIES), st.sampled_from(c.SOURCES))
CROSSINGS = st.tuples(st.sampled_from(c.BOUNDARIES), st.sampled_from(c.SOURCES), st.sampled_from(c.MODES))


@given(st.dictionaries(KEYS, COUNT), st.dictionaries(CROSSINGS, COUNT))
def test_boundaries_round_trip(expected: dict[Any, int], observed: dict[Any, int]) -> None:
    assert chunks.unpack_boundaries(chunks.pack_boundaries(expected, observed)) == (expected, observed)


def test_one_row_by_hand() -> None:
    assert chunks.STEP_COLUMNS[:13] == (
        "step", "t", "mode", "batch_size", "row", "context", "drafted_depth", "drafted_nodes",
        "accepted", "bonus", "committed", "overshoot", "weight_version",
    )  # fmt: skip
    assert chunks.BOUNDARY_COLUMNS == ("boundary", "source", "mode", "expected", "observed")


def steps_with(**changes: Any) -> bytes:
    decoded: Any = columns.decode(
        chunks.pack_steps([StepRow(1, 2, "eager", 1, 0, 9, 3, 3, 2, 1, 3, 0, 0)], tokens=True)
    )
    return columns.encode({k: v for k, v in (decoded | changes).items() if v != "gone"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accepted": "gone"}, "steps lack the columns ['accepted']"),
        ({"accepted": [None]}, "column 'accepted' of steps holds None, int wanted"),
        ({"accepted": ["x"]}, "column 'accepted' of steps holds 'x', int wanted"),
        ({"mode": [3]}, "column 'mode' of steps holds 3, str wanted"),
        ({"draft_tokens": [3]}, "column 'draft_tokens' of steps holds 3, list wanted"),
    ],
)
def test_hostile_steps_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(columns.CodecError, match=re.escape(message)):
        chunks.unpack_steps(steps_with(**changes))


def test_columns_of_a_later_version_are_ignored() -> None:
    assert chunks.unpack_steps(steps_with(surprise=[[1]]))[0].accepted == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": None}, "lack the columns"),
        ({"boundary": [1]}, "is not (text, text, text, count, count)"),
        ({"expected": [None]}, "either expected or observed"),
        ({"observed": [2]}, "either expected or observed"),
        ({"expected": [-1]}, "either expected or observed"),
    ],
)
def test_hostile_boundaries_are_refused(changes: dict[str, Any], message: str) -> None:
    table: dict[str, Any] = {
        "boundary": ["b"],
        "source": [""],
        "mode": [""],
        "expected": [1],
        "observed": [None],
    }
    table = {k: v for k, v in (table | changes).items() if v is not None}
    with pytest.raises(columns.CodecError, match=re.escape(message)):
        chunks.unpack_boundaries(columns.encode(table))


def test_a_chunk_larger_than_any_of_ours_is_refused() -> None:
    blob = columns.encode({"step": list(range(1_200_000))})
    with pytest.raises(columns.CodecError, match="over the limit"):
        chunks.unpack_steps(blob)


def test_more_rows_than_any_of_ours_has_are_refused_unread() -> None:
    step = StepRow(1, 2, "eager", 1, 0, 9, 3, 3, 2, 1, 3, 0, 0)
    blob = chunks.pack_steps([step] * (chunks.MAX_STEPS + 1), tokens=True)
    with pytest.raises(columns.CodecError, match="65 rows are over the limit of 64"):
        chunks.unpack_steps(blob)
    many = {(f"b{number}", ""): 1 for number in range(chunks.MAX_BOUNDARIES + 1)}
    with pytest.raises(columns.CodecError, match="1025 rows are over the limit of 1024"):
        chunks.unpack_boundaries(chunks.pack_boundaries(many, {}))


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=40))
def test_prompts_round_trip(ids: list[int]) -> None:
    assert chunks.unpack_prompt(chunks.pack_prompt(ids)) == ids


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (columns.encode({"token": [1]}), "no column 'id'"),
        (columns.encode({"id": [1, None]}), "of whole numbers"),
        (columns.encode({"id": ["x"]}), "of whole numbers"),
        (columns.encode({"id": [0.5]}), "of whole numbers"),
        (columns.encode({"id": [0] * (chunks.MAX_PROMPT + 1)}), "over the limit of 65536"),
        (b"junk", "SPSC"),
    ],
)
def test_hostile_prompts_are_refused(blob: bytes, message: str) -> None:
    with pytest.raises(columns.CodecError, match=message):
        chunks.unpack_prompt(blob)

"""Rollups: slices, positions, buckets and the wire form."""

from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specscope import columns, rollup
from specscope.rollup import ALL, STEP, Counts, StepFacts


def facts(**changes: Any) -> StepFacts:
    values: dict[str, Any] = {
        "drafted_depth": 3,
        "drafted_nodes": 3,
        "accepted": 2,
        "bonus": 1,
        "committed": 3,
        "context": 100,
        "row": 0,
        "batch_size": 4,
        "mode": "eager",
    }
    return StepFacts(**(values | changes))


STEPS = st.builds(
    facts,
    drafted_depth=st.integers(0, 8),
    accepted=st.integers(0, 8),
    bonus=st.integers(0, 1),
    context=st.integers(0, 40_000),
    row=st.integers(0, 300),
    cached_tokens=st.none() | st.integers(0, 50),
    temperature=st.none() | st.floats(0, 2),
    copy_like=st.none() | st.booleans(),
)


@given(st.lists(st.tuples(st.integers(0, 40), STEPS), max_size=30))
def test_rows_survive_the_wire_and_every_dimension_adds_up(steps: list[tuple[int, StepFacts]]) -> None:
    book = rollup.Rollup()
    for second, step in steps:
        book.add(second * 1_000_000_000, step)
    taken = book.take()
    assert book.take() == []
    assert [start for start, _ in taken] == sorted({s // 10 * 10 for s, _ in steps})
    for start, rows in taken:
        assert rollup.unpack(rollup.pack(rows)) == rows
        here = [step for second, step in steps if second // 10 * 10 == start]
        total = rows[ALL, "", STEP]
        assert total.steps == len(here)
        assert total.accepted == sum(s.accepted for s in here)
        for dimension in (rollup.CONTEXT, rollup.ROW, rollup.BATCH, rollup.MODE):
            added = Counts()
            for (name, _, position), counts in rows.items():
                if name == dimension and position == STEP:
                    added.add(counts)
            assert added == total


def test_every_count_is_added() -> None:
    numbers = range(1, len(rollup.COUNT_FIELDS) + 1)
    sums = rollup.Counts(*numbers)
    sums.add(rollup.Counts(*(100 * number for number in numbers)))
    assert sums == rollup.Counts(*(101 * number for number in numbers))


def test_positions_count_what_was_drafted_and_accepted_there() -> None:
    book = rollup.Rollup()
    book.add(0, facts(drafted_depth=3, accepted=1))
    book.add(0, facts(drafted_depth=1, accepted=1))
    ((_, rows),) = book.take()
    at = [astuple(rows[ALL, "", p])[:4] for p in range(3)]
    assert [(steps, accepted) for steps, _, _, accepted in at] == [(2, 2), (1, 0), (1, 0)]
    assert (ALL, "", 3) not in rows  # undrafted is unobserved, never rejected


def test_undrafted_steps_are_not_zero_accept_steps() -> None:
    book = rollup.Rollup()
    book.add(0, facts(drafted_depth=0, drafted_nodes=0, accepted=0))
    book.add(0, facts(drafted_depth=3, accepted=0))
    ((_, rows),) = book.take()
    total = rows[ALL, "", STEP]
    assert (total.steps, total.zero_steps, total.undrafted_steps) == (2, 1, 1)


def sliced(step: rollup.StepFacts) -> set[tuple[str, str]]:
    book = rollup.Rollup()
    book.add(0, step)
    ((_, rows),) = book.take()
    return {(dimension, value) for dimension, value, position in rows if position == STEP}


def test_slices_by_hand() -> None:
    step = facts(
        context=4097, row=1, batch_size=2, mode="graph", cached_tokens=0, temperature=0.7, copy_like=True
    )
    assert sliced(step) == {
        ("all", ""),
        ("context", "4096-8191"),
        ("row", "1"),
        ("batch", "2-3"),
        ("mode", "graph"),
        ("cached", "miss"),
        ("temperature", "<=1"),
        ("copy_like", "yes"),
    }
    assert {name for name, _ in sliced(facts())}.isdisjoint({"cached", "temperature", "copy_like"})


@pytest.mark.parametrize(
    ("value", "name"),
    [(-1, "0"), (0, "0"), (1, "1"), (2, "2-3"), (3, "2-3"), (4, "4-7"), (1024, "1024-2047")],
)
def test_power_slices(value: int, name: str) -> None:
    assert rollup.power_slice(value) == name


@pytest.mark.parametrize(
    ("value", "name"), [(0.0, "0"), (0.5, "<=0.5"), (0.51, "<=1"), (1.0, "<=1"), (1.5, ">1")]
)
def test_temperature_slices(value: float, name: str) -> None:
    assert rollup.temperature_slice(value) == name


def packed(**changes: Any) -> bytes:
    row: dict[str, Any] = {"dimension": ["all"], "slice": [""], "position": [-1]}
    row |= {name: [0] for name in rollup.COUNT_FIELDS}
    row |= changes
    return columns.encode({name: column for name, column in row.items() if column is not None})


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (packed(steps=None), "lacks the columns \\['steps'\\]"),
        (packed(position=[-2]), "out of range"),
        (packed(position=[None]), "is not \\(text, text, integer\\)"),
        (packed(dimension=[7]), "is not \\(text, text, integer\\)"),
        (packed(steps=[-1]), "must be integers >= 0"),
        (packed(steps=[0.5]), "must be integers >= 0"),
        (packed(**{n: v * 2 for n, v in columns.decode(packed()).items()}), "is doubled"),
        (b"nonsense", "SPSC"),
    ],
)
def test_hostile_rollups_are_refused(blob: bytes, message: str) -> None:
    with pytest.raises(columns.CodecError, match=message):
        rollup.unpack(blob)


def test_columns_of_a_later_version_are_ignored() -> None:
    assert rollup.unpack(packed(surprise=["x"])) == {("all", "", -1): Counts()}


def test_more_rows_than_a_process_can_have_are_refused() -> None:
    rows = {(ALL, "", position): rollup.Counts() for position in range(-1, rollup.MAX_ROWS)}
    with pytest.raises(columns.CodecError, match=f"over the limit of {rollup.MAX_ROWS}"):
        rollup.unpack(rollup.pack(rows))

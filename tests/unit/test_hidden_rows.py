"""Hidden states of a pass: by request, over its rows, in the order and precision of the wire."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from specscope import convention as c
from specscope import hidden
from specscope.exporter import fed, hidden_rows, looks
from specscope.hidden import HiddenRow
from specscope.records import HiddenLook, HiddenPass

WIDTH = 8


def measured(states: NDArray[np.float64], slots: int, *, projections: bool = False) -> bytes:
    """The columns of :mod:`specscope.tensorstats` for rows [n, slots * WIDTH], one row after the other."""
    found: list[float] = []
    cut = states.reshape(len(states), slots, WIDTH)
    for at, row in enumerate(cut):
        for slot, values in enumerate(row):
            kept = values[np.isfinite(values)]
            same = at > 0 and values.tobytes() == cut[at - 1, slot].tobytes()
            mean, variance, peak = (
                (kept.mean(), kept.var(), np.abs(kept).max()) if kept.size else (0.0, 0.0, 0.0)
            )
            found += [mean, variance, peak, WIDTH - kept.size, float((values == 0).all()), float(same)]
            if projections:
                found += [kept.sum() / math.sqrt(WIDTH), *kept[:7], *([0.0] * (7 - min(7, kept.size)))]
    return np.array(found, dtype="<f4").tobytes()


def a_look(
    states: NDArray[np.float64],
    counts: Sequence[int],
    *,
    slots: int = 1,
    starts: Sequence[int] | None = None,
    projections: bool = False,
    place: str = hidden.FED,
    source: str = c.TARGET_FED,
    draft_step: int = 0,
) -> HiddenLook:
    begins = np.cumsum([0, *counts])[:-1].tolist() if starts is None else starts
    data = measured(states, slots, projections=projections)
    return HiddenLook(
        place, source, draft_step, slots, tuple(begins), tuple(counts), data, projections=projections
    )


def a_pass(*seen: HiddenLook, step: int = 7, after: str = "verify") -> HiddenPass:
    requests = len(seen[0].counts)
    uids = tuple(f"{index:032d}" for index in range(requests))
    positions = tuple(100 * index for index in range(requests))
    return HiddenPass(1, step, after, c.EAGER, uids, positions, seen)


def rows_of(record: HiddenPass) -> list[list[HiddenRow]]:
    """The rows of each request as a receiver has them."""
    book = hidden_rows.HiddenRows()
    parts = book.parts(record, hidden_rows.reduce(record))
    return [[] if part is None else hidden.unpack(book.pack([part])) for part in parts]


FINITE = st.floats(-1e6, 1e6, width=32)
VALUES = st.one_of(FINITE, st.sampled_from([0.0, 0.0, math.nan, math.inf, -math.inf]))


@st.composite
def batches(draw: st.DrawFn) -> tuple[NDArray[np.float64], list[int], list[int], int]:
    """Rows of a batch, first row and number of rows of each request (with others between), slots."""
    slots = draw(st.integers(1, 3))
    counts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    gaps = draw(st.lists(st.integers(0, 2), min_size=len(counts), max_size=len(counts)))
    starts, at = list[int](), 0
    for count, gap in zip(counts, gaps, strict=True):
        starts.append(at + gap)
        at += gap + count
    states = draw(hnp.arrays(np.float32, (at, slots * WIDTH), elements=VALUES, fill=st.just(0.0)))
    return states.astype(np.float64), starts, counts, slots


@given(batches())
def test_numbers_are_those_of_the_requests_own_rows(
    batch: tuple[NDArray[np.float64], list[int], list[int], int],
) -> None:
    states, starts, counts, slots = batch
    found = rows_of(a_pass(a_look(states, counts, slots=slots, starts=starts)))
    for rows, start, count in zip(found, starts, counts, strict=True):
        assert [row.slot for row in rows] == (list(range(slots)) if count else [])
        for row in rows:
            mine = states[start : start + count, row.slot * WIDTH : (row.slot + 1) * WIDTH]
            assert row.rows == count
            assert row.nonfinite == (~np.isfinite(mine)).sum()
            assert row.zero_rows == (mine == 0).all(axis=1).sum()
            pairs = zip(mine[1:], mine[:-1], strict=True)
            assert row.equal_rows == sum(one.tobytes() == before.tobytes() for one, before in pairs)
            if np.isfinite(mine).all():
                # Rows are told in float32: known to a part of the largest value, and to its smallest number.
                rms, grain = math.sqrt((mine**2).mean()), np.abs(mine).max() * 2**-20 + 2.0**-149
                assert row.mean == pytest.approx(mine.mean(), abs=rms * 2**-9 + grain)
                # As their variances are: one below float32's smallest number, 2**-149, is none.
                assert row.std == pytest.approx(mine.std(), rel=2**-10, abs=max(grain, 2**-74))
                assert row.max_abs == pytest.approx(np.abs(mine).max(), rel=2**-7)
            elif not np.isfinite(mine).any():
                assert (row.mean, row.std, row.max_abs) == (None, None, None)


@given(st.permutations(range(4)), st.integers(0, 1 << 30))
def test_a_batch_in_another_order_gives_each_request_the_same(order: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    counts = [3, 0, 1, 2]
    states = random.normal(size=(6, 2 * WIDTH))
    cut = np.split(states, np.cumsum(counts)[:-1])
    one = rows_of(a_pass(a_look(states, counts, slots=2, projections=True)))
    other = rows_of(
        a_pass(
            a_look(
                np.concatenate([cut[i] for i in order]), [counts[i] for i in order], slots=2, projections=True
            )
        )
    )
    for at, index in enumerate(order):
        for here, there in zip(other[at], one[index], strict=True):
            here.position = there.position
            assert here == there


def test_fingerprints_belong_to_their_rows() -> None:
    random = np.random.default_rng(3)
    counts = [2, 3]
    states = random.normal(size=(5, 2 * WIDTH)) * np.array([1, 2, 4, 8, 16])[:, None]
    single = random.normal(size=(2, WIDTH))
    carry = a_look(single, [1, 1], place=hidden.CARRY, projections=True)
    found = rows_of(a_pass(a_look(states, counts, slots=2, projections=True), carry))
    at = 0
    for request, count in enumerate(counts):
        for row in found[request]:
            if row.place == hidden.CARRY:
                mine = single[request : request + 1]
            else:
                mine = states[at : at + count, row.slot * WIDTH : (row.slot + 1) * WIDTH]
            rms, projections = hidden.restore(row.levels or (), row.fingerprints or ())
            assert rms == pytest.approx(np.sqrt((mine**2).mean(axis=1)), rel=0.002)
            wanted = np.concatenate(
                (mine.sum(axis=1, keepdims=True) / math.sqrt(WIDTH), mine[:, :7]), axis=1
            ).clip(-127 / 16 * rms[:, None], 127 / 16 * rms[:, None])
            assert np.abs(projections - wanted).max(axis=1) == pytest.approx(0, abs=1.01 / 16 * rms.max())
        at += count


def test_self_fed_rows_have_statistics_and_no_fingerprint() -> None:
    states = np.ones((1, WIDTH))
    fed_look = a_look(np.ones((2, WIDTH)), [2], projections=True)
    seen = [
        a_look(states, [1], place=hidden.CARRY, projections=True),
        a_look(states, [1], place=hidden.CARRY, source=c.SELF_FED, draft_step=1, projections=True),
        a_look(states, [1], place=hidden.CARRY, source=c.SELF_FED, draft_step=2, projections=True),
    ]
    (rows,) = rows_of(a_pass(fed_look, *seen))
    assert {(row.place, row.draft_step): row.fingerprints is not None for row in rows} == {
        (hidden.CARRY, 0): True,
        (hidden.CARRY, 1): False,
        (hidden.CARRY, 2): False,
        (hidden.FED, 0): True,
    }
    assert {row.std for row in rows} == {0.0}


def test_a_proposal_starts_from_the_last_token_before_its_pass() -> None:
    """Which is where the pass before left its carry, and apart from what is fed in this one."""
    states = np.ones((2, WIDTH))
    start = a_look(states, [1, 1], place=hidden.START, projections=True)
    carry = a_look(states, [1, 1], place=hidden.CARRY, projections=True)
    found = rows_of(a_pass(start, a_look(np.ones((5, WIDTH)), [2, 3]), carry))
    for rows, first, count in zip(found, (0, 100), (2, 3), strict=True):
        at = {row.place: row.position for row in rows}
        assert at == {hidden.FED: first, hidden.CARRY: first + count - 1, hidden.START: first - 1}
        (start_row,) = [row for row in rows if row.place == hidden.START]
        assert start_row.fingerprints is not None


def test_of_many_rows_the_first_have_fingerprints() -> None:
    count = hidden.MAX_FINGERPRINTS + 5
    states = np.random.default_rng(1).normal(size=(count + 1, WIDTH))
    first, second = rows_of(a_pass(a_look(states, [count, 1], projections=True)))
    assert (first[0].rows, len(first[0].levels or ())) == (count, hidden.MAX_FINGERPRINTS)
    assert len(first[0].fingerprints or ()) == hidden.MAX_FINGERPRINTS * hidden.PROJECTIONS
    assert len(second[0].levels or ()) == 1


def test_a_tensor_of_another_place_is_told_without_numbers() -> None:
    same = HiddenLook(hidden.FC_IN, c.TARGET_FED, 0, 2, (0, 1), (1, 0), same_as=hidden.FED)
    rows, none = rows_of(a_pass(same))
    assert none == []
    assert [(row.place, row.slot, row.same_as, row.rows, row.mean, row.nonfinite) for row in rows] == [
        (hidden.FC_IN, slot, hidden.FED, 1, None, None) for slot in (0, 1)
    ]


def test_sums_made_on_the_device_are_told_as_they_are() -> None:
    one = [3.0, 0.5, 4.0, 9.0, 1.0, 2.0, 1.0]
    none = [0.0] * 7
    data = np.array([[one, none], [none, none]], dtype="<f4").tobytes()
    look = HiddenLook(hidden.FC_OUT, c.TARGET_FED, 0, 2, (0, 3), (3, 0), data, summed=True)
    rows, nothing = rows_of(a_pass(look))
    assert nothing == []
    told = [(r.rows, r.mean, r.std, r.max_abs, r.nonfinite, r.zero_rows, r.equal_rows) for r in rows]
    assert told[0] == (3, 0.5, 2.0, 9.0, 1, 2, 1)


def test_a_number_beyond_float32_is_not_told_and_nothing_warns() -> None:
    data = np.array([1.0, np.inf, 1e30, 0, 0, 0], dtype="<f4").tobytes()
    ((row,),) = rows_of(a_pass(HiddenLook(hidden.FED, c.TARGET_FED, 0, 1, (0,), (1,), data)))
    assert (row.mean, row.std, row.rms) == (1.0, None, None)
    assert row.max_abs == pytest.approx(1e30, rel=2**-7)


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (HiddenLook(hidden.FED, c.TARGET_FED, 0, 1, (0,), (2,), bytes(24)), "not among the 1"),
        (HiddenLook(hidden.FED, c.TARGET_FED, 0, 1, (-1,), (1,), bytes(24)), "not among the 1"),
        (HiddenLook(hidden.FED, c.TARGET_FED, 0, 1, (0,), (1,), bytes(20)), "reshape|buffer"),
        (HiddenLook(hidden.FED, c.TARGET_FED, 0, 1, (0, 0), (1, 0), bytes(24)), "2 counts for 1"),
        (HiddenLook(hidden.FED, c.TARGET_FED, 0, 1, (), (1,), bytes(24)), "0 starts for 1"),
        (HiddenLook(hidden.FED, c.TARGET_FED, 0, 1, (0,), (1,), bytes(56), summed=True), "2 sums for 1"),
        (
            HiddenLook(hidden.FED, c.TARGET_FED, 0, 1, (0,), (1,), np.full(6, np.nan, "<f4").tobytes()),
            "count of rows or values is not finite",
        ),
    ],
)
def test_a_look_that_does_not_fit_is_refused(look: HiddenLook, message: str) -> None:
    record = HiddenPass(1, 7, "verify", c.EAGER, ("a",), (0,), (look,))
    with pytest.raises(ValueError, match=message):
        rows_of(record)


def test_names_are_bounded() -> None:
    book = hidden_rows.HiddenRows()
    for index in range(2 * hidden_rows.MAX_NAMES):
        record = a_pass(HiddenLook(f"place{index}", c.TARGET_FED, 0, 1, (0,), (1,), same_as="x"))
        if index < hidden_rows.MAX_NAMES - 4:
            book.parts(record, [None])
    with pytest.raises(ValueError, match=f"more than {hidden_rows.MAX_NAMES} names"):
        for index in range(8):
            again = a_pass(HiddenLook(f"other{index}", c.TARGET_FED, 0, 1, (0,), (1,), same_as="x"))
            book.parts(again, [None])
    book.parts(a_pass(HiddenLook("place0", c.TARGET_FED, 0, 1, (0,), (1,), same_as="x")), [None])


def whole(look: HiddenLook) -> list[Any]:
    last = fed.LastFed()
    record = a_pass(look)
    last.add(record, hidden_rows.reduce(record))
    return [last.of(7, "verify").get(uid) for uid in record.uids]


def test_what_was_fed_is_told_over_the_whole_width() -> None:
    random = np.random.default_rng(5)
    states = random.normal(0.3, 2.0, (5, 3 * WIDTH))
    states[1] = 0.0
    states[3, :WIDTH] = 0.0
    one, none, other = whole(a_look(states, [2, 0, 3], slots=3))
    assert none is None
    for told, mine in ((one, states[:2]), (other, states[2:])):
        assert told.mean == pytest.approx(mine.mean(), rel=2**-10)
        assert told.std == pytest.approx(mine.std(), rel=2**-10)
        assert told.rms == pytest.approx(math.sqrt((mine**2).mean()), rel=2**-10)
        assert told.max_abs == pytest.approx(np.abs(mine).max(), rel=2**-10)
    assert (one.rows, one.zero_rows) == (2, 1)
    assert (other.rows, other.zero_rows) == (3, 0)  # zero in one slot only


def test_rows_that_are_zero_in_single_slots_are_not_guessed_from_sums() -> None:
    def sums(*zero: int) -> HiddenLook:
        data = [[[3.0, 0.0, 1.0, 2.0, 0.0, float(count), 0.0] for count in zero]]
        raw = np.array(data, dtype="<f4").tobytes()
        return HiddenLook(hidden.FED, c.TARGET_FED, 0, len(zero), (0,), (3,), raw, summed=True)

    assert [whole(sums(*zero))[0].zero_rows for zero in ((2,), (0, 2), (3, 3), (1, 2))] == [2, 0, 3, None]


def test_only_the_last_passes_are_remembered() -> None:
    last = fed.LastFed()
    for step in range(100):
        record = a_pass(a_look(np.ones((1, WIDTH)), [1]), step=step)
        last.add(record, hidden_rows.reduce(record))
    known = [step for step in range(100) if last.of(step, "verify")]
    assert known == list(range(100 - fed.PASSES, 100))
    assert not last.of(99, "prefill")


@given(st.floats(-1e30, 1e30), st.integers(3, 22))
def test_rounded_numbers_are_close_and_short(value: float, bits: int) -> None:
    (found,) = looks.rounded(np.array([value]), bits)
    assert found == pytest.approx(value, rel=2.0 ** -(bits + 1) * 1.001 + 1e-7, abs=1e-37)
    assert found.view("<u4") & ((1 << (23 - bits)) - 1) == 0

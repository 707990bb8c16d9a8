"""Checks of the reduction of hidden states where torch and Triton are: by numpy, by torch and by the kernel.

Run by ``test_tensorstats_in_torch.py`` under the interpreter that has torch. The Triton kernel runs in
Triton's interpreter, which needs no device. Prints a JSON object: the traceback of each check, empty where it
passed.
"""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import numpy as np
from check_report import report
from numpy.typing import NDArray
from specscope import tensorstats, tensorstats_host, tensorstats_torch, tensorstats_triton
from specscope.copies import LOOKS, REFUSED, Copies
from specscope.signs import signs
from specscope.static_stats import StaticStats

torch: Any = importlib.import_module("torch")
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WAYS: dict[str, Callable[[Any, Any], None]] = {
    "host": tensorstats_host.reduce,
    "torch": tensorstats_torch.reduce,
    "triton": tensorstats_triton.reduce,
}
MEAN, VARIANCE, PROJECTION = 1e-5, 1e-4, 1e-4
"""As docs/reference/fingerprint.md states: of the rms, relative, of the rms."""


def exact(rows: Any, slots: int) -> NDArray[np.float64]:
    """The columns in float64, by their definitions."""
    values = rows.double().numpy().reshape(len(rows), slots, -1)
    finite = np.isfinite(values)
    kept = np.where(finite, values, 0.0)
    of = np.maximum(finite.sum(-1), 1)
    mean = kept.sum(-1) / of
    variance = (np.where(finite, kept - mean[..., None], 0.0) ** 2).sum(-1) / of
    bits = rows.contiguous().view(torch.uint8).numpy().reshape(len(rows), slots, -1)
    equal = np.zeros(mean.shape)
    equal[1:] = (bits[1:] == bits[:-1]).all(-1)
    projections = kept @ signs(values.shape[-1]).T / np.sqrt(values.shape[-1])
    peak = np.abs(kept).max(-1)
    zero = finite.all(-1) & (peak == 0)
    return np.concatenate(
        (np.stack((mean, variance, peak, (~finite).sum(-1), zero, equal), -1), projections), axis=-1
    )


def check(way: str, rows: Any, slots: int) -> None:
    expected = exact(rows, slots)
    # Triton's interpreter takes 10 ms a row and slot.
    for columns in (6, 14) if way != "triton" or slots == 2 else (14,):
        given = torch.full((len(rows), slots, columns), -7.0)
        WAYS[way](rows, given)
        found = given.double().numpy()
        rms = np.sqrt(expected[..., 0] ** 2 + expected[..., 1])
        where = f"{way} {rows.dtype} {tuple(rows.shape)} {slots}"
        assert (abs(found[..., 0] - expected[..., 0]) <= MEAN * rms).all(), where
        assert (abs(found[..., 1] - expected[..., 1]) <= VARIANCE * expected[..., 1] + 1e-44).all(), where
        assert np.array_equal(found[..., 2:6], expected[..., 2:6]), where
        if columns == 14:
            assert (abs(found[..., 6:] - expected[..., 6:]) <= PROJECTION * rms[..., None]).all(), where


def odd_rows(n: int, slots: int, width: int, dtype: Any) -> Any:
    """Rows with everything that can be in them, in different slots."""
    rows = (torch.randn(n, slots * width, generator=torch.Generator().manual_seed(7)) * 3 + 2).to(dtype)
    rows[2] = rows[1]
    rows[3, :width] = 0
    rows[4, :width] = -0.0
    rows[5, 0] = float("nan")
    rows[5, -1] = float("inf")
    rows[6, :width] = float("nan")
    rows[7] = rows[6]
    rows[8, -width:] = rows[7, -width:]
    return rows


def three_ways_agree_with_exact_numbers() -> None:
    for dtype in DTYPES:
        for slots, width in ((3, 128), (1, 300), (2, 7)):
            rows = odd_rows(9, slots, width, dtype)
            for way in WAYS:
                if way != "triton" or slots != 3 or dtype is torch.bfloat16:
                    check(way, rows, slots)


def a_row_as_wide_as_a_large_model() -> None:
    for dtype in DTYPES:
        rows = odd_rows(9, 3, 7168, dtype)
        check("host", rows, 3)
        check("torch", rows, 3)
        check("triton", rows[4:6], 3)


def a_large_mean_does_not_cancel_the_variance() -> None:
    # Whole numbers, so that the dtype holds them: 1000 ± 1 in float32 and float16, 128 ± 1 in bfloat16.
    for dtype, mean in ((torch.float32, 1e6), (torch.float16, 1000.0), (torch.bfloat16, 128.0)):
        rows = (mean + torch.arange(512) % 3 - 1).repeat(4, 1).to(dtype)
        for way in WAYS:
            check(way, rows, 2)


def sums_of_the_largest_numbers_do_not_overflow() -> None:
    large = torch.tensor([3.3e38, -3.2e38]).repeat(200).bfloat16()
    rows = torch.stack((large, large.abs(), large * 1e-20, torch.full((400,), 1e19).bfloat16()))
    for given in (rows, rows.float()):
        expected = exact(given, 1)
        for way, reduce in WAYS.items():
            found = torch.empty(4, 1, 14)
            reduce(given, found)
            numbers = found.double().numpy()
            assert np.allclose(numbers[..., 0], expected[..., 0], rtol=1e-5), way
            # What float32 cannot hold is infinite, and all else is right.
            held = expected <= 3.4028e38
            held &= expected >= -3.4028e38
            assert not held[0, 0, 1]
            assert held[2].all()
            assert np.isinf(numbers[~held]).all(), way
            assert np.allclose(numbers[held], expected[held], rtol=1e-4, atol=1e15), way


def tiny_numbers_are_not_called_zero() -> None:
    rows = torch.full((2, 64), 1e-40)
    rows[1] = 0
    for way, reduce in WAYS.items():
        found = torch.empty(2, 1, 6)
        reduce(rows, found)
        assert found[:, 0, 4].tolist() == [0.0, 1.0], way
        assert abs(float(found[0, 0, 2]) / 1e-40 - 1) < 1e-4, way


def golden_numbers() -> None:
    for width, mean, variance, sums in (
        (128, -0.6171875, 851.08001708984375, [207, -295, -149, -105, -49, 731, 509, -273]),
        (300, -0.10666666666666667, 850.46862222222222, [458, 56, -208, 342, -814, 466, 940, -690]),
    ):
        whole = torch.arange(width) * 37 % 101 - 50
        for dtype in DTYPES:
            for way, reduce in WAYS.items():
                found = torch.empty(2, 1, 14)
                reduce(whole.to(dtype).repeat(2, 1), found)
                first, second = found[:, 0].tolist()
                assert np.allclose(first[:2], [mean, variance], rtol=1e-6), (way, dtype, first)
                assert first[2:6] == [50, 0, 0, 0], (way, dtype, first)
                projected = np.array(sums) / np.sqrt(width)
                assert np.allclose(first[6:], projected, rtol=1e-5), (way, dtype, first)
                assert second == [*first[:5], 1.0, *first[6:]], (way, dtype)


def any_shape_can_be_had() -> None:
    for dtype in DTYPES:
        wide = odd_rows(9, 4, 96, dtype)
        for way in WAYS:
            check(way, wide[:, : 3 * 96][1:4], 3)  # a row stride
            check(way, wide[::3], 4)
            check(way, wide[1:2], 4)
    empty = tensorstats.reduce(torch.empty(0, 384), 3, projections=True)
    assert tuple(empty.shape) == (0, 3, 14)
    assert tuple(tensorstats.combine(empty, [], []).shape) == (0, 3, 7)
    assert tensorstats.combine(empty, [0, 0], [0, 0]).abs().sum() == 0
    out = torch.full((12, 4, 6), -1.0)
    rows = odd_rows(12, 4, 96, torch.bfloat16)
    assert tensorstats.reduce(rows, 4, projections=False, out=out) is out
    assert torch.equal(out, tensorstats.reduce(rows, 4, projections=False))
    # Types no kernel knows: float64, as float32.
    check("host", torch.randn(5, 64, dtype=torch.float64).float().double(), 2)


def rows_of_many_blocks_know_the_row_before() -> None:
    rows = torch.randn(40, 3 * 7168, generator=torch.Generator().manual_seed(1)).bfloat16()
    rows[1:] = rows[0]
    rows[20, 7168] += 1
    step = tensorstats_host.AT_ONCE // rows.shape[1]
    assert 0 < step < 20
    for way in ("host", "torch"):
        check(way, rows, 3)


def the_engines_rows_are_never_written_to() -> None:
    for dtype in (*DTYPES, torch.float64):
        rows = odd_rows(12, 3, 32, dtype)
        before = rows.clone()
        for projections in (False, True):
            tensorstats.reduce(rows, 3, projections=projections)
        assert torch.equal(rows.view(torch.uint8), before.view(torch.uint8))
    kept = torch.randn(4, 8, requires_grad=True)
    assert not tensorstats.reduce(kept, 1, projections=True).requires_grad
    with torch.inference_mode():
        tensorstats.reduce(torch.randn(4, 8), 1, projections=True)


def nonsense_is_refused_with_its_numbers() -> None:
    def refused(text: str, *args: Any, **kwargs: Any) -> None:
        try:
            tensorstats.reduce(*args, **{"projections": False, **kwargs})
        except ValueError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"not refused: {text}")

    refused("rows of shape [2, 385] are not [n, 3 slots x H]", torch.zeros(2, 385), 3)
    refused("rows of shape [385] are not [n, 1 slots x H]", torch.zeros(385), 1)
    refused("[n, 0 slots x H]", torch.zeros(2, 4), 0)
    refused("rows of shape [2, 0] are not", torch.zeros(2, 0), 1)
    refused("rows of torch.int64 hold no real numbers", torch.zeros(2, 4, dtype=torch.int64), 1)
    refused("rows of strides [1, 4]", torch.zeros(8, 4).t(), 1)
    refused("torch.float32 [2, 1, 14]", torch.zeros(2, 4), 1, out=torch.zeros(2, 1, 14))
    for starts, counts, text in (([0, 1], [1], "2 starts and 1 counts"), ([3], [2], "of 4 rows")):
        try:
            tensorstats.combine(torch.zeros(4, 1, 6), starts, counts)
        except ValueError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)


def rows_reach_their_request_in_any_order() -> None:
    """The rows of requests moved about give each request the numbers it had."""
    generator = torch.Generator().manual_seed(3)
    lengths = [1, 7, 3, 140, 0, 5]
    each = [odd_rows(max(n, 9), 2, 48, torch.bfloat16)[:n] + k for k, n in enumerate(lengths)]
    ways = (tensorstats_host.combine, tensorstats_torch.combine, tensorstats_triton.combine)
    alone = [tensorstats.combine(tensorstats.reduce(r, 2, projections=True), [0], [len(r)])[0] for r in each]
    for turn in range(4):
        order: list[int] = torch.randperm(len(each), generator=generator).tolist()
        padding = torch.randn(3, 96, generator=generator).bfloat16()
        batch: list[Any] = [padding]
        starts: list[int] = [0] * len(each)
        at: int = 3
        for k in order:
            starts[k] = at
            batch += [each[k], padding]
            at += lengths[k] + 3
        found = tensorstats.reduce(torch.cat(batch), 2, projections=True)
        for way in ways if turn == 0 else ways[:2]:
            for numbers in ((starts, lengths), (torch.tensor(starts), torch.tensor(lengths))):
                combined = way(found, *numbers)
                for one, expected in zip(combined, alone, strict=True):
                    assert torch.allclose(one, expected, rtol=1e-5, atol=1e-5, equal_nan=True), way


def combined_rows_are_the_statistics_of_all_values() -> None:
    rows = (torch.randn(300, 2 * 64, generator=torch.Generator().manual_seed(5)) + 100).float()
    rows[11] = rows[10]
    rows[40:44] = 0
    rows[50, 0] = float("nan")
    rows[60] = float("inf")  # counts for nothing
    found = tensorstats.reduce(rows, 2, projections=False)
    spans = ((0, 11), (10, 20), (30, 270))
    starts, counts = zip(*spans, strict=True)
    for way in (tensorstats_host.combine, tensorstats_torch.combine, tensorstats_triton.combine):
        for (first, count), got in zip(spans, way(found, starts, counts), strict=True):
            values = rows[first : first + count].view(count, 2, 64).double()
            for slot in range(2):
                finite = values[:, slot][values[:, slot].isfinite()]
                told = got[slot].double()
                assert told[0] == count
                # Rows count alike: the one NaN moves a mean over 270 rows by its share of a row.
                assert abs(told[1] - finite.mean()) < 1e-3, way
                assert abs(told[2] / finite.var(correction=0) - 1) < 1e-3, way
                assert abs(told[3] - finite.abs().max()) < 1e-4
                assert told[4] == (~values[:, slot].isfinite()).sum()
                assert told[5] == (values[:, slot] == 0).all(-1).sum()
                assert told[6] == (first == 10) * 1 + (first == 30) * 3


def a_capture_is_read_after_each_replay() -> None:
    missed: Counter[str] = Counter()
    capturing, loaded = [False], set[tuple[int, int]]()
    static = StaticStats(
        missed,
        most=4096,
        capturing=lambda: capturing[0],
        loaded=lambda rows, slots, columns: (slots, columns) in loaded,
    )
    rows = torch.randn(8, 24)
    # Not loaded: it would break the capture.
    capturing[0] = True
    assert not static.record("g", "fed", rows, 3, projections=True)
    assert missed == {REFUSED: 1}
    # A warm-up loads it and records nothing.
    capturing[0] = False
    assert not static.record("g", "fed", rows, 3, projections=True)
    assert static.read("g", 8) == []
    loaded.add((3, 14))
    capturing[0] = True
    assert static.record("g", "fed", rows, 3, projections=True)
    assert static.read("g", 8) == [], "nothing is read while a graph is captured"
    capturing[0] = False
    assert static.held == 8 * 3 * 14 * 4
    (look,) = static.read("g", 5)
    assert look.place == "fed"
    assert torch.equal(look.found, tensorstats.reduce(rows, 3, projections=True)[:5])
    # What was read is a copy: the next replay writes to the buffer before it is on the host.
    kept = look.found.clone()
    replayed = tensorstats.reduce(rows * 2, 3, projections=True)
    capturing[0] = True
    assert static.record("g", "fed", rows * 2, 3, projections=True)
    capturing[0] = False
    assert torch.equal(look.found, kept)
    assert torch.equal(static.read("g", 8)[0].found, replayed)
    copy = Copies(missed, LOOKS).start([one.found for one in static.read("g", 2)], [14])
    assert copy is not None
    assert (copy.ready() or [])[0].data == replayed[:2].numpy().tobytes()
    assert static.read("unknown", 8) == []


def buffers_are_bounded_and_come_back() -> None:
    missed: Counter[str] = Counter()
    capturing = [False]
    static = StaticStats(
        missed, most=4096, capturing=lambda: capturing[0], loaded=lambda rows, slots, columns: True
    )
    rows = torch.randn(10, 12)
    static.record("a", "fed", rows, 1, projections=False)
    capturing[0] = True
    each = 10 * 6 * 4
    for k in range(20):
        static.begin(k)
        assert static.record(k, "fed", rows, 1, projections=False) == (k < 4096 // each), k
    assert missed == {REFUSED: 20 - 4096 // each}
    full = static.held
    assert full == 4096 // each * each
    # A second capture of the same graph takes the place of the first.
    static.begin(3)
    assert static.held == full - each
    assert static.record(3, "fc", rows[:4], 1, projections=False)
    capturing[0] = False
    assert [one.place for one in static.read(3, {"fc": 2})] == ["fc"]
    assert [tuple(one.found.shape) for one in static.read(3, {"fc": 2})] == [(2, 1, 6)]
    assert [tuple(one.found.shape) for one in static.read(3, {})] == [(4, 1, 6)]
    # The same place twice: the last rows, in the same buffer; never rows of another shape.
    capturing[0] = True
    held = static.held
    assert static.record(3, "fc", rows[4:8], 1, projections=False)
    assert not static.record(3, "fc", rows[:5], 1, projections=False)
    assert static.held == held
    capturing[0] = False
    assert torch.equal(static.read(3, 4)[0].found, tensorstats.reduce(rows[4:8], 1, projections=False))
    # Holes grow together again: one buffer takes all of it.
    for k in range(20):
        static.forget(k)
    assert static.held == 0
    capturing[0] = True
    assert static.record("all", "fed", torch.randn(4096 // 24, 4), 1, projections=False)
    assert 4096 - 16 <= static.held <= 4096


CHECKS = [
    three_ways_agree_with_exact_numbers,
    a_row_as_wide_as_a_large_model,
    a_large_mean_does_not_cancel_the_variance,
    sums_of_the_largest_numbers_do_not_overflow,
    tiny_numbers_are_not_called_zero,
    golden_numbers,
    any_shape_can_be_had,
    rows_of_many_blocks_know_the_row_before,
    the_engines_rows_are_never_written_to,
    nonsense_is_refused_with_its_numbers,
    rows_reach_their_request_in_any_order,
    combined_rows_are_the_statistics_of_all_values,
    a_capture_is_read_after_each_replay,
    buffers_are_bounded_and_come_back,
]

if __name__ == "__main__":
    torch.set_num_threads(1)
    report(CHECKS)

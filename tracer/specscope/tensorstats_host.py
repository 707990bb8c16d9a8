"""The reduction of :mod:`specscope.tensorstats` in host memory, on the engine's thread: few and cheap calls.

The largest magnitude of a row is found in its bits, as whole numbers, and says at once whether any value is
not finite, or so large that sums might overflow. Only rows near such a one go the slow way of
:mod:`.tensorstats_torch`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from specscope import tensorstats_torch
from specscope.signs import weights

AT_ONCE: Final = 1 << 17
"""Values taken at a time: 512 KiB as float32, so that they stay in a core's cache."""


def _of_bfloat16(bits: NDArray[Any]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


_DTYPES: Final[dict[str, tuple[str, Any, int, Callable[[NDArray[Any]], NDArray[Any]]]]] = {
    # Whole numbers of the size, all bits but the sign, the bits of BIG (of infinity where that is less), and
    # what makes numbers of such bits.
    "torch.bfloat16": ("int16", np.int16(0x7FFF), (127 + 50) << 7, _of_bfloat16),
    "torch.float16": ("int16", np.int16(0x7FFF), 0x7C00, lambda bits: bits.view(np.float16)),
    "torch.float32": ("int32", np.int32(0x7FFFFFFF), (127 + 50) << 23, lambda bits: bits.view(np.float32)),
}


def reduce(rows: Any, found: Any) -> None:
    """Put the statistics of ``rows`` [n, slots x H] into ``found`` [n, slots, columns]."""
    known = _DTYPES.get(str(rows.dtype))
    if known is None:
        tensorstats_torch.reduce(rows, found)
        return
    torch: Any = importlib.import_module("torch")
    whole, magnitude, limit, numbers_of = known
    n, slots, _ = found.shape
    values = rows.view(n, slots, -1)
    bits: NDArray[Any] = values.view(getattr(torch, whole)).numpy()
    numbers: NDArray[np.float32] = found.numpy()
    step = max(1, AT_ONCE // rows.shape[1])
    for first in range(0, n, step):
        some = slice(first, first + step)
        peak = np.maximum.reduce(bits[some] & magnitude, -1)
        if peak.max() < limit:
            _finite(values[some], numbers[some])
            numbers[some, :, 2] = numbers_of(peak)
            np.equal(peak, 0, out=numbers[some, :, 4], casting="unsafe")
        else:
            tensorstats_torch.values(rows[some], found[some])
    numbers[..., 5] = _equal(bits)


def _finite(values: Any, numbers: NDArray[np.float32]) -> None:
    """Put mean, variance, ``nonfinite`` and projections of ``values`` [n, slots, H], all of them finite."""
    kept = values.float()
    width = kept.shape[-1]
    if numbers.shape[-1] > 6:
        numbers[..., 6:] = (kept @ weights(width, kept.device)).numpy()
    apart: NDArray[np.float32] = kept.numpy()
    mean = np.add.reduce(apart, -1)
    mean /= width
    # float32 is not copied, and the engine's own tensor is never written to.
    apart = np.subtract(apart, mean[..., None], out=None if kept.dtype is values.dtype else apart)
    numbers[..., 0] = mean
    np.divide(np.einsum("nsh,nsh->ns", apart, apart), width, out=numbers[..., 1])
    numbers[..., 3] = 0.0


def _equal(bits: NDArray[Any]) -> NDArray[np.bool_]:
    """Return [n, slots]: whether the row is that before; ``bits`` [n, slots, H] are whole numbers."""
    found = np.zeros(bits.shape[:2], dtype=np.bool_)
    # The first value tells nearly all rows apart.
    np.equal(bits[1:, :, 0], bits[:-1, :, 0], out=found[1:])
    at, slot = np.nonzero(found)
    step = max(1, AT_ONCE // bits.shape[-1])
    for first in range(0, len(at), step):
        rows, of = at[first : first + step], slot[first : first + step]
        found[rows, of] = (bits[rows, of] == bits[rows - 1, of]).all(-1)
    return found


def combine(found: Any, starts: Any, counts: Any) -> Any:
    """Return the statistics of requests, as :func:`specscope.tensorstats.combine`."""
    torch: Any = importlib.import_module("torch")
    first, many = np.asarray(starts, dtype=np.int64), np.asarray(counts, dtype=np.int64)
    rows: NDArray[np.float32] = found.numpy()
    if len(many) and (min(first.min(), many.min()) < 0 or (first + many).max() > len(rows)):
        raise ValueError(f"starts {first.tolist()} and counts {many.tolist()} of {len(rows)} rows")
    made = np.zeros((len(many), rows.shape[1], 7), dtype=np.float32)
    some = np.flatnonzero(many)
    if len(some):
        of = many[some]
        begin = np.cumsum(of) - of
        picked = rows[np.repeat(first[some] - begin, of) + np.arange(of.sum()), :, :6].astype(np.float64)
        picked[begin, :, 5] = 0.0
        known = (picked[..., 3] == 0) | (picked[..., 2] > 0)
        counted = np.maximum(np.add.reduceat(known.astype(np.float64), begin), 1.0)
        sums = np.add.reduceat(picked, begin)
        mean = sums[..., 0] / counted
        apart = np.where(known, picked[..., 0] - np.repeat(mean, of, axis=0), 0.0)
        made[some, :, 0] = of[:, None]
        made[some, :, 1] = mean
        made[some, :, 2] = (sums[..., 1] + np.add.reduceat(apart * apart, begin)) / counted
        made[some, :, 3] = np.maximum.reduceat(picked[..., 2], begin)
        made[some, :, 4:] = sums[..., 3:]
    return torch.from_numpy(made)
